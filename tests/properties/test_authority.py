"""Random lives of a slot authority: no slot oversold, no request lost or answered twice, order kept, ledger empty."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from events.types.replicas import ReplicaState, ReplicaStatus
from events.types.requests import RequestWindow
from events.units import Instant
from runtime.core.authority import Authority
from runtime.core.commands import Command, Grant, Refuse, SendWindow
from runtime.core.model_slots import Declared
from runtime.ports import Ending, Lease, Outcome, TicketRequest
from tests.support.slots import MODEL, START, budget, declared, hold, observed, replica, ticket

CALLERS = ["a", "b"]
ENDINGS = [
    Outcome(Ending.FINISHED, status=200),
    Outcome(Ending.CLIENT_LEFT),
    Outcome(Ending.CLIENT_LEFT, engine_done=False),
    Outcome(Ending.UNREACHABLE),
    Outcome(Ending.BROKEN, engine_done=False),
    Outcome(Ending.TIMED_OUT, engine_done=False),
]


class Life:
    """Requests, leases, replicas and time at random. The machine plays gateway, adapter and engines.

    `engine` holds what each life of a replica really runs: a request enters with its lease and leaves when the lease
    ends with `engine_done`, or, when it does not, at some later time of its own.
    """

    def __init__(self) -> None:
        self.authority = Authority("g", budget(requests=18))
        self.authority.declare(self.declaration(1), START)
        self.now = START
        self.count = 0
        self.revision = 1
        self.replicas: dict[str, ReplicaStatus] = {}
        self.lives = 1
        self.waiting: dict[str, TicketRequest] = {}
        self.live: dict[int, tuple[Lease, TicketRequest, ReplicaStatus]] = {}
        self.engine: dict[tuple[str, int | None], set[str]] = {}
        self.answers: Counter[str] = Counter()
        self.left: set[str] = set()
        self.entered: dict[str, list[str]] = {caller: [] for caller in CALLERS}
        self.windows: dict[tuple[int, float], RequestWindow] = {}
        self.waited = self.ran = 0.0

    @staticmethod
    def declaration(revision: int) -> Declared:
        return declared(revision=revision, hold=hold(requests=12, size=300, wait=50.0), total=20.0)

    # The world

    def take(self, rng: random.Random) -> None:
        for _ in range(rng.randint(1, 4)):
            self.count += 1
            how = {"caller": rng.choice(CALLERS), "wait": rng.uniform(0.1, 60.0), "size": rng.randint(0, 40)}
            self.ask(ticket(f"r{self.count}", self.now, stream=rng.random() < 0.5, **how))  # type: ignore[arg-type]  # see `ticket`

    def leave(self, rng: random.Random) -> None:
        if self.waiting:
            request = rng.choice(list(self.waiting))
            self.left.add(request)
            self.forget(request)
            self.follow(self.authority.leave(request, self.now))

    def give_back(self, rng: random.Random) -> None:
        for _ in range(min(rng.randint(1, 3), len(self.live))):
            self.end_one(rng.choice(list(self.live)), rng.choice(ENDINGS), again=rng.random() < 0.7)

    def end_one(self, ended: int, outcome: Outcome, *, again: bool) -> None:
        lease, wanted, status = self.live.pop(ended)
        if outcome.engine_done:
            self.engine[status.replica, status.pid].discard(lease.request)
        self.follow(self.authority.give_back(lease.id, outcome, self.now))
        if again and outcome.ending is Ending.UNREACHABLE:
            self.answers[lease.request] -= 1
            self.ask(wanted.again(wanted.attempt + 1))

    def start_replica(self, rng: random.Random) -> None:
        if len(self.replicas) > 1:
            return
        self.lives += 1
        revision = max(1, self.revision - rng.randint(0, 1))
        path = rng.choice(["", "/slots"])
        index, slots = rng.randint(0, 3), rng.randint(1, 3)
        made = replica(index, slots=slots, revision=revision, life=self.lives, busy_path=path)
        self.replicas[made.replica] = made
        self.engine[made.replica, made.pid] = set()
        self.observe()

    def change_replica(self, rng: random.Random) -> None:
        if not self.replicas:
            return
        found = rng.choice(list(self.replicas))
        if rng.random() < 0.3:
            del self.replicas[found]
        else:
            state = rng.choice([ReplicaState.DRAINING, ReplicaState.READY, ReplicaState.READY])
            self.replicas[found] = replace(self.replicas[found], state=state)
        self.observe()

    def roll_out(self, _: random.Random) -> None:
        self.revision += 1
        self.follow(self.authority.declare(self.declaration(self.revision), self.now))

    def pass_time(self, rng: random.Random) -> None:
        self.go_on(rng.choice([0.01, 0.3, 1.0, 5.0, 25.0]))

    def engines_tell(self, rng: random.Random) -> None:
        """Every engine that is asked works off some of what nobody waits for and tells its true count."""
        self.go_on(rng.choice([0.06, 0.5, 2.0]))
        for poll in self.authority.polls():
            status = self.replicas[poll.replica]
            running = self.engine[status.replica, status.pid]
            live = {lease.request for lease, _, leased_on in self.live.values() if leased_on.pid == status.pid}
            for request in sorted(running - live):
                if rng.random() < 0.4:
                    running.discard(request)
            self.follow(self.authority.engine_running(poll, len(running), self.now, self.now))

    def walk(self, rng: random.Random, steps: int) -> None:
        """Some steps at random, checked after each."""
        weights = {
            self.take: 8, self.give_back: 8, self.engines_tell: 4, self.pass_time: 3, self.start_replica: 3,
            self.change_replica: 2, self.leave: 1, self.roll_out: 0.3,
        }  # fmt: skip
        for _ in range(steps):
            (step,) = rng.choices(list(weights), list(weights.values()))
            step(rng)
            self.no_slot_is_oversold()
            self.each_request_has_one_fate()
            self.the_ledger_agrees()

    def go_on(self, seconds: float) -> None:
        end = Instant(self.now + seconds)
        while (due := self.authority.due()) is not None and due <= end:
            self.go_to(due)
            self.follow(self.authority.advance(self.now))
        self.go_to(end)

    # What follows

    def ask(self, wanted: TicketRequest) -> None:
        self.waiting[wanted.request] = wanted
        if wanted.attempt:
            self.entered[wanted.caller].insert(0, wanted.request)
        else:
            self.entered[wanted.caller].append(wanted.request)
        self.follow(self.authority.take(wanted, self.now))

    def observe(self) -> None:
        self.follow(self.authority.observe(observed(*self.replicas.values()), self.now))

    def go_to(self, instant: Instant) -> None:
        self.waited += len(self.waiting) * (instant - self.now)
        self.ran += len(self.live) * (instant - self.now)
        self.now = instant

    def forget(self, request: str) -> TicketRequest:
        wanted = self.waiting.pop(request)
        self.entered[wanted.caller].remove(request)
        return wanted

    def follow(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Grant():
                    self.leased(command.lease)
                case Refuse():
                    self.forget(command.request)
                    self.answers[command.request] += 1
                case SendWindow():
                    self.windows[command.window.revision, command.window.started_at] = command.window

    def leased(self, lease: Lease) -> None:
        caller = self.waiting[lease.request].caller
        assert self.entered[caller][0] == lease.request, "not the first of its caller"
        wanted = self.forget(lease.request)
        self.answers[lease.request] += 1
        status = self.replicas[lease.replica]
        ready = [one for one in self.replicas.values() if one.state is ReplicaState.READY]
        assert status.state is ReplicaState.READY
        assert status.revision == max(one.revision for one in ready)
        self.live[lease.id] = (lease, wanted, status)
        if status.busy_path:
            self.engine[status.replica, status.pid].add(lease.request)

    # What always holds

    def no_slot_is_oversold(self) -> None:
        """Live leases never exceed the slots; where the engine counts, neither does what it really runs."""
        leased = Counter((status.replica, status.pid) for _, _, status in self.live.values())
        for status in self.replicas.values():
            assert leased[status.replica, status.pid] <= status.slots
            assert len(self.engine[status.replica, status.pid]) <= status.slots

    def each_request_has_one_fate(self) -> None:
        """It waits, or left, or got exactly one answer."""
        for index in range(1, self.count + 1):
            request = f"r{index}"
            fates = self.answers[request] + (request in self.waiting) + (request in self.left)
            assert fates == 1, (request, fates)

    def the_ledger_agrees(self) -> None:
        statuses = list(self.authority.statuses())
        assert [status.held for status in statuses] == [len(self.waiting)]
        assert [status.running for status in statuses] == [len(self.live)]
        assert self.authority.live_leases == len(self.live)

    def end(self) -> None:
        """When all have ended the ledger is empty, and the windows add up to what happened."""
        for _ in range(20):  # nobody waits longer than 50 s
            for lease, _, _ in list(self.live.values()):
                del self.live[lease.id]
                self.follow(self.authority.give_back(lease.id, Outcome(Ending.FINISHED, status=200), self.now))
            self.go_on(10.0)
        assert not self.waiting
        assert not self.live
        assert self.authority._tickets == {}
        assert self.authority._live == {}
        assert self.authority._budget.requests == self.authority._budget.bytes == 0
        assert len(self.authority._meters) == 0
        if self.windows:
            waited = sum(window.waiting_seconds for window in self.windows.values())
            ran = sum(window.running_seconds for window in self.windows.values())
            assert abs(waited - self.waited) < 1e-6 * (1 + self.waited)
            assert abs(ran - self.ran) < 1e-6 * (1 + self.ran)
            assert sum(window.arrivals for window in self.windows.values()) == self.count
        assert all(window.model == MODEL for window in self.windows.values())


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_slot_is_oversold_and_no_request_is_lost(seed: int) -> None:
    """Eighty random steps: each request has one fate, slots are exact, callers are served in order, nothing is left."""
    life = Life()
    life.walk(random.Random(seed), 80)
    life.end()
