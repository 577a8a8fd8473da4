"""A pool of GPUs with a make-believe cluster adapter: tests say what is declared, wished, seen, and read grants."""

from __future__ import annotations

from dataclasses import replace

from events.types.caches import CacheObserved, ModelWarmth
from events.types.grants import GrantDecided
from events.types.models import Override
from events.types.replicas import Card, CardsObserved, ReplicasObserved, ReplicaState, ReplicaStatus
from events.types.shared import Resources
from events.units import Instant
from preemption.core.allocator import GrantPlan, Pool, Snapshot
from preemption.core.inventory import MILLI, need_of
from preemption.core.view import AllocatorPolicy, Declared, Memory, ModelView, Wish

GI = 1 << 30


def node(name: str = "n1", gpus: int = 2, cpu: float = 64.0, memory: int = 512 * GI) -> CardsObserved:
    """A node with cards gpu-0, gpu-1, …"""
    cards = tuple(Card(id=f"{name}-gpu-{index}", virtual=True) for index in range(gpus))
    return CardsObserved(node=name, cpu=cpu, memory_bytes=memory, cards=cards)


def needs(gpus: int = 0, fraction: float = 0.0, cpu: float = 1.0, memory: int = GI, mig: str = "") -> Resources:
    """What a replica takes."""
    return Resources(gpus=gpus, gpu_fraction=fraction, mig_profile=mig, cpu=cpu, memory_bytes=memory)


class World:
    """Feeds a pool and obeys its grants; keeps everything that a whole snapshot needs beside it."""

    def __init__(self, *nodes: CardsObserved, policy: AllocatorPolicy | None = None) -> None:
        self.policy = AllocatorPolicy() if policy is None else policy
        self.now = 1000.0
        self.pool = Pool(self.policy)
        self.nodes: dict[str, CardsObserved] = {}
        self.declared: dict[str, Declared] = {}
        self.wishes: dict[str, Wish] = {}
        self.grants: dict[str, GrantDecided] = {}
        self.observed: dict[str, ReplicasObserved] = {}
        self.running: dict[str, dict[str, float]] = {}
        self.memories: dict[str, Memory] = {}
        self.caches: dict[str, tuple[CacheObserved, Instant]] = {}
        for one in nodes:
            self.set_node(one)

    # What people and the autoscaler do.

    def set_node(self, seen: CardsObserved) -> None:
        self.nodes[seen.node] = seen
        self.pool.set_node(seen)

    def warm(self, where: str, *told: tuple[str, str, float | None], revision: int = 1) -> None:
        """A node's agent tells of models: where their weights are, and the seconds to their first token."""
        models = tuple(ModelWarmth(model=m, tier=t, seconds=s, revision=revision) for m, t, s in told)
        seen = CacheObserved(node=where, used_bytes=0, capacity_bytes=GI, models=models)
        self.caches.pop(where, None)
        self.caches[where] = seen, Instant(self.now)
        self.pool.set_cache(seen, Instant(self.now))

    def declare(self, model: str, **fields: object) -> None:
        """Declare a model, or change some fields of its declaration."""
        known = self.declared.get(model, Declared(model=model, uid=f"{model}-1", revision=1, max_replicas=100))
        self.declared[model] = replace(known, **fields)  # type: ignore[arg-type]  # tests name real fields
        self.pool.set_declared(self.declared[model])

    def scale(self, model: str, replicas: int, seconds: float) -> None:
        """A person's override."""
        self.declare(model, override=Override(replicas=replicas, until=self.now + seconds))

    def wish(
        self, model: str, replicas: int, gain: float = 0.0, uid: str | None = None, *, kept: int = 0,
        waits: bool = False, asleep: int | None = None,
    ) -> None:  # fmt: skip
        wish = Wish(self.declared[model].uid if uid is None else uid, replicas, gain, kept, waits, asleep)
        self.wishes[model] = wish
        self.pool.set_wish(model, wish)

    # What the allocator does.

    def decide(self, after: float = 0.0) -> GrantPlan:
        self.now += after
        plan = self.pool.decide(Instant(self.now))
        self.grants |= {grant.model: grant for grant in plan.grants}
        self.memories |= plan.memories
        for model in plan.gone:
            self.memories.pop(model, None)
        return plan

    def snapshot(self) -> Snapshot:
        """The whole of what the pool was told, for `preemption.core.allocator.decide`."""
        views = [
            ModelView(
                declared=declared, wish=self.wishes.get(model), grant=self.grants.get(model),
                observed=self.observed.get(model), running=self.running.get(model, {}),
                memory=self.memories.get(model, Memory()),
            )
            for model, declared in self.declared.items()
        ]  # fmt: skip
        return Snapshot(tuple(self.nodes.values()), tuple(views), tuple(self.caches.values()))

    def live(self, model: str) -> list[str]:
        """Names of granted replicas that do not drain."""
        grant = self.grants.get(model)
        return [] if grant is None else [one.replica for one in grant.replicas if not one.drain]

    def draining(self, model: str) -> list[str]:
        grant = self.grants.get(model)
        return [] if grant is None else [one.replica for one in grant.replicas if one.drain]

    # What the cluster does.

    def ends(self, model: str, replica: str) -> None:
        """Another hand ends what a replica runs in: it drains, and its adapter says why."""
        seen = self.observed[model]
        told = (
            replace(one, state=ReplicaState.DRAINING, reason="Deleted") if one.replica == replica else one
            for one in seen.replicas
        )
        self.observed[model] = replace(seen, replicas=tuple(told))
        self.pool.set_observed(self.observed[model])

    def see(self, model: str, *states: tuple[str, ReplicaState], failures: int = 0, retry_in: float = 0.0) -> None:
        """The adapter's newest word on a model's replicas."""
        granted = {one.replica: one for one in self.grants[model].replicas} if model in self.grants else {}
        before = self._statuses(model)
        statuses = []
        for name, state in states:
            if name in before:
                asleep = before[name].sleep_level if state is ReplicaState.STOPPING else 0
                level = 1 if state is ReplicaState.SLEEPING else asleep
                at = before[name].ready_at
                ready_at = self.now if at is None and state is ReplicaState.READY else at
                statuses.append(replace(before[name], state=state, sleep_level=level, ready_at=ready_at))
                continue
            one = granted[name]
            statuses.append(
                ReplicaStatus(
                    replica=name, uid=self.grants[model].uid, revision=one.revision, state=state,
                    node=one.placement.node, gpus=one.placement.gpus, resources=one.resources, created_at=self.now,
                    ready_at=self.now if state is ReplicaState.READY else None,
                )
            )  # fmt: skip
        uid = self.declared[model].uid
        retry_at = self.now + retry_in if failures else None
        self.observed[model] = ReplicasObserved(
            model=model, uid=uid, replicas=tuple(statuses), failures=failures, retry_at=retry_at
        )
        self.pool.set_observed(self.observed[model])

    def obey(self, model: str, *, ready: bool = True) -> None:
        """Start what is granted (ready at once, unless told otherwise) and stop what drains or is not named."""
        state = ReplicaState.READY if ready else ReplicaState.STARTING
        self.see(model, *((name, self._kept(model, name, state)) for name in self.live(model)))

    def load(self, model: str, replica: str, running: float) -> None:
        self.running.setdefault(model, {})[replica] = running
        self.pool.set_running(model, replica, running)

    def _kept(self, model: str, name: str, state: ReplicaState) -> ReplicaState:
        """A replica that is ready stays so."""
        known = self._statuses(model).get(name)
        return ReplicaState.READY if known is not None and known.state is ReplicaState.READY else state

    def _statuses(self, model: str) -> dict[str, ReplicaStatus]:
        observed = self.observed.get(model)
        return {} if observed is None else {status.replica: status for status in observed.replicas}


def used(world: World) -> dict[str, tuple[float, int, dict[str, int]]]:
    """By node: cores, bytes, thousandths of each card that granted or observed replicas hold, counted from scratch."""
    found = {name: (0.0, 0, dict.fromkeys((card.id for card in one.cards), 0)) for name, one in world.nodes.items()}
    for replica, (where, cards, resources) in _holdings(world).items():
        assert where in found, f"{replica} is on the unknown node {where}"
        cpu, memory, by_card = found[where]
        need = need_of(resources)
        for card in cards:
            by_card[card] += need.gpu_milli or MILLI
        found[where] = cpu + resources.cpu, memory + resources.memory_bytes, by_card
    return found


def _holdings(world: World) -> dict[str, tuple[str, tuple[str, ...], Resources]]:
    found: dict[str, tuple[str, tuple[str, ...], Resources]] = {}
    asleep = {one.replica for observed in world.observed.values() for one in observed.replicas if one.sleep_level}
    for observed in world.observed.values():
        found |= {one.replica: (one.node, one.gpus, one.resources) for one in observed.replicas}
    found = {name: held for name, held in found.items() if name not in asleep}
    for grant in world.grants.values():
        found |= {
            one.replica: (one.placement.node, one.placement.gpus, one.resources)
            for one in grant.replicas
            if not (one.drain and one.replica in asleep)
        }
    return found


def assert_not_overcommitted(world: World) -> None:
    """No node gives more than it has, no card is given twice."""
    for name, (cpu, memory, cards) in used(world).items():
        assert cpu <= world.nodes[name].cpu + 1e-6, f"{name}: {cpu} cores of {world.nodes[name].cpu}"
        assert memory <= world.nodes[name].memory_bytes, f"{name}: {memory} bytes"
        assert all(milli <= MILLI for milli in cards.values()), f"{name}: {cards}"
