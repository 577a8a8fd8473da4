"""What must hold at every moment of a simulated system; a breach raises with the last events."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from events.clock import Clock
from events.envelope import AnyEnvelope
from events.types.decisions import WishDecided
from events.types.grants import GrantDecided, LeadershipTaken, ReplicaGrant
from events.types.models import ModelDeclared
from events.types.replicas import ReplicasObserved
from events.types.requests import RequestWindow
from tests.support.simulated_cluster import Engine, Machine
from tests.support.simulated_time import START

EPSILON = 1e-6


class Breach(AssertionError):
    """Something that must hold does not."""


@dataclass
class Ledger:
    """What the log says, as an outsider reads it; checked with every event and every process."""

    machine: Machine
    clock: Clock
    declared: dict[str, ModelDeclared] = field(default_factory=dict)
    wishes: dict[str, WishDecided] = field(default_factory=dict)
    grants: dict[str, GrantDecided] = field(default_factory=dict)
    observed: dict[str, ReplicasObserved] = field(default_factory=dict)
    trace: deque[str] = field(default_factory=lambda: deque(maxlen=120))
    wish_changes: dict[str, int] = field(default_factory=dict)
    events: int = 0
    _ids: set[str] = field(default_factory=set)
    _wished_for: set[tuple[str, str]] = field(default_factory=set)
    _overridden: set[tuple[str, str]] = field(default_factory=set)
    """Models by (name, uid): an allocator that has not read of the newest one yet grants to the one before."""
    _ever_granted: set[tuple[str, ReplicaGrant]] = field(default_factory=set)
    _epoch: int = 0

    def say(self, text: str) -> None:
        """Remember it for people."""
        self.trace.append(f"{self.clock.now() - START:10.3f} {text}")

    def breach(self, text: str) -> Breach:
        """An error that tells what led to it."""
        return Breach(f"{self.clock.now() - START:.3f}: {text}\n" + "\n".join(self.trace))

    # What is written

    def writes(self, events: Sequence[AnyEnvelope]) -> None:
        """These are about to be written together."""
        for envelope in events:
            self._writes(envelope)
        if any(isinstance(envelope.data, GrantDecided) for envelope in events):
            self._not_too_much("these grants")

    def _writes(self, envelope: AnyEnvelope) -> None:
        self.events += 1
        if envelope.cause is not None and envelope.cause not in self._ids:
            raise self.breach(f"{type(envelope.data).__name__} names a cause that is not on record: {envelope.cause}")
        self._ids.add(envelope.id)
        match envelope.data:
            case ModelDeclared() as data:
                self.declared[data.model] = data
                if data.override is not None:
                    self._overridden.add((data.model, data.uid))
                deleted = " deleted" if data.deleted else ""
                numbers = "" if data.override is None else f" override {data.override.replicas}"
                self.say(f"declared {data.model} {data.uid} r{data.revision}{deleted}{numbers}")
            case WishDecided() as data:
                before = self.wishes.get(data.model)
                if before is None or before.replicas != data.replicas:
                    self.wish_changes[data.model] = self.wish_changes.get(data.model, 0) + 1
                self.wishes[data.model] = data
                self._wished_for.add((data.model, data.uid))
                self.say(f"wish     {data.model} {data.uid} r{data.revision} {data.replicas} {data.reasons}")
            case GrantDecided() as data:
                self._granted(data)
            case ReplicasObserved() as data:
                self.observed[data.model] = data
                shown = [f"{one.replica} {one.state}" for one in data.replicas]
                failures = f" failures {data.failures}" if data.failures else ""
                self.say(f"observed {data.model} {data.uid} {shown}{failures}")
            case LeadershipTaken():
                self.say(f"leader   {envelope.data.leader}")
            case RequestWindow() as data if data.edge:
                self.say(f"edge     {data.model} running {data.now.running} waiting {data.now.waiting}")
            case _:
                pass

    def _granted(self, grant: GrantDecided) -> None:
        shown = [f"{one.replica}{'-' if one.drain else ''}{list(one.placement.gpus)}" for one in grant.replicas]
        short = f" short {grant.shortage.replicas}" if grant.shortage else ""
        self.say(f"grant    {grant.model} {grant.uid} {shown} of {grant.wished}{short} {grant.reasons}")
        before = self.grants.get(grant.model)
        had = {one.replica for one in before.replicas} if before else set()
        new = [one for one in grant.replicas if one.replica not in had and not one.drain]
        overridden = (grant.model, grant.uid) in self._overridden
        if new and not overridden and (grant.model, grant.uid) not in self._wished_for:
            raise self.breach(f"{new[0].replica} is granted, and no wish for it is on record")
        if len({one.replica for one in grant.replicas}) != len(grant.replicas):
            raise self.breach(f"a grant of {grant.model} names a replica twice")
        self.grants[grant.model] = grant
        self._ever_granted |= {(grant.uid, _plain(one)) for one in grant.replicas if not one.drain}

    # What runs

    def begins(self, engine: Engine) -> None:
        """A process begins."""
        self.say(f"process  {engine.grant.replica} begins, {list(engine.grant.placement.gpus)}")
        if (engine.uid, _plain(engine.grant)) not in self._ever_granted:
            raise self.breach(f"{engine.grant.replica} starts and was never granted so")
        self._not_too_much(f"the start of {engine.grant.replica}")

    def ends(self, engine: Engine) -> None:
        """A process ends."""
        self.say(f"process  {engine.grant.replica} ends")

    def holders(self) -> dict[str, ReplicaGrant]:
        """All that is granted or runs, by replica. What runs elsewhere than it is granted counts twice."""
        found = {one.replica: one for grant in self.grants.values() for one in grant.replicas}
        for name, engine in self.machine.engines.items():
            granted = found.get(name)
            if granted is None or _plain(granted) != _plain(engine.grant):
                found[f"{name} (runs)"] = engine.grant
        return found

    def free(self) -> tuple[float, int, int]:
        """Cores, bytes and cards that nobody holds."""
        cards = self.machine.cards
        held = list(self.holders().values())
        taken = {gpu for one in held for gpu in one.placement.gpus}
        cpu = cards.cpu - sum(one.resources.cpu for one in held)
        return cpu, cards.memory_bytes - sum(one.resources.memory_bytes for one in held), len(cards.cards) - len(taken)

    def _not_too_much(self, what: str) -> None:
        held = self.holders()
        cards: dict[str, str] = {}
        for name, one in held.items():
            for gpu in one.placement.gpus:
                if gpu in cards:
                    raise self.breach(f"after {what} {gpu} belongs to {cards[gpu]} and {name}")
                cards[gpu] = name
        cpu, memory, _ = self.free()
        if cpu < -EPSILON or memory < 0:
            raise self.breach(f"after {what} too much is held: {cpu} cores, {memory} bytes free, by {sorted(held)}")


def _plain(grant: ReplicaGrant) -> ReplicaGrant:
    """Where and with what, whether it drains or not."""
    return ReplicaGrant(
        replica=grant.replica, revision=grant.revision, placement=grant.placement, resources=grant.resources
    )


@dataclass
class Since:
    """Since when each of some names has been in a state without a break."""

    clock: Clock
    _began: dict[str, float] = field(default_factory=dict)

    def hold(self, names: Iterable[str]) -> dict[str, float]:
        """These are in it now, and no others: for how many seconds each."""
        now = self.clock.now()
        self._began = {name: self._began.get(name, now) for name in names}
        return {name: now - began for name, began in self._began.items()}
