"""The clerk of asynchronous inference in a world of values: topics are lists, the clock is set, the process dies."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from events.types.inference import InferenceCompleted, InferenceRequested, Origin
from events.units import Instant, Seconds
from runtime.core.inference.clerk import Clerk
from runtime.core.inference.endings import (
    Answered,
    Ask,
    Cancel,
    Command,
    Copied,
    Dead,
    Parked,
    Repeated,
    Run,
    Settle,
    Settlement,
    Withdraw,
    answer_of,
)
from runtime.core.inference.errand import Arrival, Errand, Place, State
from runtime.core.inference.policy import InferencePolicy

REQUESTS, PARKED = "requests", "parked"
SMALL = InferencePolicy(
    lookahead=6, tickets=2, longest_wait=Seconds(200.0), attempts=3, lap=Seconds(10.0), retry_most=Seconds(4.0)
)
"""Bounds that little worlds reach."""


@dataclass(frozen=True)
class Outcome:
    """What a reader of results and dead letters sees."""

    id: str
    what: str
    answer: InferenceCompleted | None = None


@dataclass
class World:
    """What survives a crash: the topics, the marks and the outcomes."""

    policy: InferencePolicy = SMALL
    partitions: int = 1
    now: Instant = field(default_factory=lambda: Instant(1000.0))
    topics: dict[Place, list[Arrival]] = field(default_factory=dict)
    marks: dict[Place, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    runs: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for topic in (REQUESTS, PARKED):
            for partition in range(self.partitions):
                self.topics[topic, partition] = []
        self.start()

    def start(self) -> None:
        """A new process: it knows what stands in the topics, nothing else."""
        self.clerk = Clerk(self.policy)
        self.tickets: dict[int, Errand] = {}
        self.running: dict[int, Errand] = {}
        self.pending: list[Settlement] = []
        self.read: dict[Place, int] = {}
        for outcome in self.outcomes:
            ident = ("//shop", outcome.id)
            self.clerk.outcomes.settled(ident, self.now)
            if outcome.answer is not None and outcome.answer.idempotency_key and outcome.answer.origin.id == outcome.id:
                key = (outcome.answer.model, outcome.answer.idempotency_key)
                self.clerk.outcomes.answered(key, ident, (outcome.answer, 1), self.now)
        known = {outcome.id for outcome in self.outcomes}
        for place, arrivals in self.topics.items():
            low, done = self.marks.get(place, (0, ()))
            self.clerk.assign(place, low, done)
            self.read[place] = low
            for arrival in arrivals if place[0] == PARKED else ():
                if arrival.origin.id not in known:
                    self.clerk.outcomes.parked(arrival.ident, arrival.idempotency, self.now)

    def produce(self, ident: str, model: str, key: str | None = None, lasts: float = 1e9, priority: int = 0) -> None:
        """A producer appends a request, perhaps not for the first time."""
        partition = hash(model) % self.partitions
        topic = self.topics[REQUESTS, partition]
        topic.append(Arrival(
            place=(REQUESTS, partition), offset=len(topic), origin=Origin(id=ident, source="//shop"), model=model,
            caller="//shop", since=self.now,
            requested=InferenceRequested(body={"model": model}, idempotency_key=key, priority=priority),
            deadline=Instant(self.now + min(lasts, self.policy.longest_wait)),
        ))  # fmt: skip

    def deliver(self, most: int = 100) -> int:
        """Hand over what stands there; how many."""
        count = 0
        for place, arrivals in self.topics.items():
            while count < most and self.read[place] < len(arrivals) and not self.clerk.full(place):
                arrival = arrivals[self.read[place]]
                self.read[place] += 1
                count += 1
                self.do(self.clerk.arrive(arrival, self.now))
        return count

    def do(self, commands: list[Command]) -> None:
        """What the shell does with commands."""
        for command in commands:
            match command:
                case Ask(errand=errand):
                    assert errand.number not in self.tickets
                    self.tickets[errand.number] = errand
                case Withdraw(errand=errand):
                    self.tickets.pop(errand.number, None)
                case Run(errand=errand):
                    self.running[errand.number] = errand
                    self.runs[errand.arrival.origin.id] += 1
                case Cancel(errand=errand):
                    self.running.pop(errand.number, None)
                case Settle(settlement=settlement):
                    if settlement.errand is not None:
                        assert settlement.errand.state is State.SETTLING
                        self.running.pop(settlement.errand.number, None)
                    self.pending.append(settlement)

    def grant(self, index: int = 0) -> None:
        """One of those with a ticket gets a slot."""
        errand = self.tickets.pop(list(self.tickets)[index % len(self.tickets)])
        self.do(self.clerk.leased(errand, self.now))

    def refuse(self, index: int = 0) -> None:
        """One of those with a ticket is refused for now."""
        errand = self.tickets.pop(list(self.tickets)[index % len(self.tickets)])
        self.do(self.clerk.refused(errand, Seconds(2.0), self.now))

    def answer(self, index: int = 0) -> None:
        """One that runs is answered."""
        errand = self.running.pop(list(self.running)[index % len(self.running)])
        self.do(self.clerk.answered(errand, Answered(200, {"ok": errand.arrival.origin.id}), 0.5, self.now))

    def fail(self, index: int, why: Dead, chance: float = 0.5) -> None:
        """One that runs fails over its replica."""
        errand = self.running.pop(list(self.running)[index % len(self.running)])
        self.do(self.clerk.failed(errand, why, 1, chance, self.now))

    def advance(self, seconds: float) -> None:
        """Time passes."""
        self.now = Instant(self.now + seconds)
        self.do(self.clerk.advance(self.now))

    def settle(self, tell: bool = True, late: int = 0) -> None:
        """One transaction with all that waits; without `tell` the process dies before it hears of it. `late` records
        are delivered before it hears."""
        batch, marks = self.clerk.finish(self.pending)
        self.pending = []
        for one in batch:
            self._write(one)
        self.marks.update(marks)
        self.deliver(late)
        if tell:
            self.do(self.clerk.settled(batch, self.now))
        else:
            self.start()

    def _write(self, one: Settlement) -> None:
        errand = one.errand
        assert errand is not None
        arrival = errand.arrival
        match one.ending:
            case Answered() as ending:
                self.outcomes.append(Outcome(arrival.origin.id, "result", answer_of(errand, ending)))
            case Copied(answer=answer):
                self.outcomes.append(Outcome(arrival.origin.id, "result", answer))
            case Dead(reason=reason):
                self.outcomes.append(Outcome(arrival.origin.id, reason.value))
            case Parked(not_before=not_before):
                self._park(errand, not_before)
            case Repeated():
                pass

    def _park(self, errand: Errand, not_before: Instant) -> None:
        arrival = errand.arrival
        topic = self.topics[PARKED, arrival.place[1]]
        topic.append(Arrival(
            place=(PARKED, arrival.place[1]), offset=len(topic), origin=arrival.origin, model=arrival.model,
            caller=arrival.caller, requested=arrival.requested, since=arrival.since, deadline=arrival.deadline,
            parked=True, not_before=not_before, attempts=errand.attempts, parks=arrival.parks + 1,
        ))  # fmt: skip
