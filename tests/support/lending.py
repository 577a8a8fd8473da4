"""A pool with models and training jobs, and a make-believe cluster that answers its grants: the allocator's loop
without a log. What would stand in the log is kept as it would be there, so that a new leader can begin from it."""

from __future__ import annotations

import textwrap
from dataclasses import replace

from events.types.grants import GrantDecided
from events.types.reclaims import ReclaimChanged
from events.types.replicas import CardsObserved
from events.types.shared import Resources
from events.types.training import Stop, TrainingGranted, TrainingObserved
from events.units import Instant
from preemption.core.allocator import GrantPlan, Pool
from preemption.core.inventory import MILLI
from preemption.core.lending.policy import LendingPolicy
from preemption.core.lending.seat import Job
from preemption.core.training import TrainingPolicy
from preemption.core.view import AllocatorPolicy
from tests.support.pool import World, needs, node
from tests.support.training import Trainer, TrainingAdapter

_WHO = {"person": "a person", "grows": "nobody", "cards_gone": "want of its cards"}
SMALLEST = 0.1
"""Seconds between two looks of the cluster."""


class LendingWorld(World):
    """Models as in `World`, and training beside them."""

    def __init__(self, *nodes: CardsObserved, lending: LendingPolicy | None = None) -> None:
        policy = AllocatorPolicy() if lending is None else AllocatorPolicy(lending=lending)
        super().__init__(*nodes, policy=policy)
        self.adapter = TrainingAdapter()
        self.jobs: dict[str, Job] = {}
        self.training: dict[str, TrainingGranted] = {}
        self.seen: dict[str, TrainingObserved] = {}
        self.reclaims: dict[str, tuple[ReclaimChanged, int]] = {}
        self.epoch = 1
        self.story: list[str] = []
        self.began = self.now
        self.pool.lead(self.epoch)

    @property
    def instant(self) -> Instant:
        """Now."""
        return Instant(self.now)

    # People.

    def train(
        self, name: str, trainer: Trainer | None = None, resources: Resources | None = None, **fields: object
    ) -> None:
        """Declare a job."""
        takes = needs(gpus=1) if resources is None else resources
        fields.setdefault("min_members", fields.get("members", 1))
        policy = TrainingPolicy(job=name, command=("train",), resources=takes, **fields)  # type: ignore[arg-type]  # tests name real fields
        self.adapter.add(name, Trainer() if trainer is None else trainer)
        self.tell_job(Job(policy=policy, uid=f"{name}-1", revision=1, at=Instant(self.now)))

    def tell_job(self, job: Job) -> None:
        self.jobs[job.name] = job
        self.pool.lender.set_job(job)

    def change_job(self, name: str, **fields: object) -> None:
        """Pause, resume, cancel, delete, or declare anew."""
        self.tell_job(replace(self.jobs[name], **fields))  # type: ignore[arg-type]  # tests name real fields

    # The loop.

    def decide(self, after: float = 0.0) -> GrantPlan:
        """One decision, recorded whole."""
        self.now += after
        plan = self.pool.decide(Instant(self.now))
        self.record_reclaims(plan)
        self.record_grants(plan)
        return plan

    def record_reclaims(self, plan: GrantPlan) -> None:
        for one in plan.lent.reclaims:
            self.reclaims[one.id] = one, self.epoch
            happened = f" ({one.history[-1].happened})" if one.history else f" for {one.shortage or _WHO[one.cause]}"
            self._tell(f"{one.job}: {one.state}{happened}")

    def record_grants(self, plan: GrantPlan) -> None:
        self.grants |= {grant.model: grant for grant in plan.grants}
        self.memories |= plan.memories
        for grant in plan.grants:
            self._tell_model(grant)
        for training in plan.lent.grants:
            self.training[training.job] = training
            self._tell_training(training)

    def settle(self) -> None:
        """Decide and obey until nothing more happens now."""
        for _ in range(60):
            plan = self.decide()
            self.obey_all()
            changed = plan.grants or plan.lent.grants or plan.lent.reclaims
            if not changed and (plan.again_at is None or plan.again_at > self.now):
                return
        raise AssertionError("the pool does not come to rest")

    def obey_all(self) -> None:
        """The cluster does what is granted; what is seen of it is told."""
        for model in self.grants:
            self.obey(model)
        for grant in self.training.values():
            self.adapter.take(grant, self.epoch, self.now)
        for seen in self.adapter.move(self.now):
            if self.seen.get(seen.job) != seen:
                self.seen[seen.job] = seen
                self.pool.lender.set_observed(seen)

    def pass_time(self, seconds: float, every: float = SMALLEST) -> None:
        """Time goes by; the cluster is looked at often, and the pool decides when it is told something or said so."""
        until = round(self.now + seconds, 6)
        while self.now < until - 1e-9:
            self.now = round(min(until, self.now + every), 6)
            self.obey_all()
            self.settle()

    def restart(self) -> None:
        """Another allocator leads: all it knows is what stands in the log."""
        self.epoch += 1
        self.pool = Pool(self.policy)
        for seen in self.nodes.values():
            self.pool.set_node(seen)
        for view in self.snapshot().models:
            self.pool.set_view(replace(view, memory=type(view.memory)()))
        for job in self.jobs.values():
            self.pool.lender.set_job(job)
        for grant in self.training.values():
            self.pool.lender.set_granted(grant)
        for run in self.seen.values():
            self.pool.lender.set_observed(run)
        for one, epoch in self.reclaims.values():
            self.pool.lender.set_reclaim(one, epoch)
        self.pool.lead(self.epoch)

    # What is told.

    def states(self, job: str) -> list[str]:
        """The states of the newest attempt of a job."""
        newest = [one for one, _ in self.reclaims.values() if one.job == job][-1]
        return [step.state for step in newest.history]

    def _tell(self, words: str) -> None:
        self.story.append(f"{self.now - self.began:6.1f} {words}")

    def _tell_model(self, grant: GrantDecided) -> None:
        names = " ".join(one.replica + (" drains" if one.drain else "") for one in grant.replicas) or "nothing"
        short = (
            ""
            if grant.shortage is None
            else f"; short of {grant.shortage.replicas}: {grant.shortage.message.split('free; ')[-1]}"
        )
        self._tell(f"{grant.model} has {names}{short}")

    def _tell_training(self, grant: TrainingGranted) -> None:
        where = " ".join("+".join(one.placement.gpus) for one in grant.members) or "nothing"
        notice = "" if grant.notice is None else f"; {grant.notice.mode}"
        stop = "" if grant.stop is Stop.NOT else f"; {grant.stop}"
        self._tell(f"{grant.job} run {grant.run} has {where}{notice}{stop} ({' '.join(grant.reasons)})")


def assert_nothing_twice(world: LendingWorld) -> None:
    """No card is given to two: counted from what is granted and what really runs, not from the ledger."""
    held: dict[str, int] = {}

    def take(holder: str, node: str, cards: tuple[str, ...], share: int) -> None:
        for card in cards:
            held[card] = held.get(card, 0) + share
            assert held[card] <= MILLI, f"{card} of {node} is given twice: {holder}"

    for grant in world.grants.values():
        for one in grant.replicas:
            take(one.replica, one.placement.node, one.placement.gpus, round(one.resources.gpu_fraction * 1000) or MILLI)
    for job in world.adapter.jobs.values():
        run = job.run
        runs = [] if run is None or run.empty_at is not None else list(run.grant.members)
        granted = world.training.get(job.name)
        if granted is not None and (run is None or granted.run > run.grant.run):
            runs += granted.members
        for member in runs:
            share = round(member.resources.gpu_fraction * 1000) or MILLI
            take(member.member, member.placement.node, member.placement.gpus, share)


def one_card(trainer: Trainer | None = None, **job: object) -> LendingWorld:
    """The only card is lent to `tune`, which has run for twenty seconds; `llama` is at zero."""
    world = LendingWorld(node(gpus=1))
    world.train("tune", trainer, **job)  # type: ignore[arg-type]  # tests name real fields
    world.declare("llama", resources=needs(gpus=1))
    world.settle()
    world.pass_time(20)
    world.story.clear()
    return world


def wish(world: LendingWorld, replicas: int, model: str = "llama") -> None:
    """The autoscaler wants so many replicas."""
    world.wish(model, replicas)
    world.settle()


def change(world: LendingWorld, **fields: object) -> None:
    """A person changes the declaration of `tune`."""
    world.change_job("tune", **fields)
    world.settle()


def check(world: LendingWorld, expected: str, *, messages: bool = False) -> None:
    """Compare the story; without the lines of who is short, unless `messages`."""
    assert_nothing_twice(world)
    told = [line for line in world.story if messages or "; short of" not in line]
    found = textwrap.dedent("\n".join(told))
    assert found == textwrap.dedent(expected).strip("\n"), "\n" + "\n".join(world.story)
