"""Random lives of a slot authority: no slot oversold, no request lost or answered twice, order kept, ledger empty."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from events.types.replicas import ReplicaState, ReplicaStatus
from events.types.requests import RequestWindow
from events.units import Instant
from runtime.core.authority import Authority
from runtime.core.commands import Command, Grant, Refuse, SendWindow
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


class LifeOfAnAuthority(RuleBasedStateMachine):
    """Requests, leases, replicas and time at random. The machine plays gateway, adapter and engines.

    `engine` holds what each life of a replica really runs: a request enters with its lease and leaves when the lease
    ends with `engine_done`, or, when it does not, at some later time of its own.
    """

    def __init__(self) -> None:
        super().__init__()
        self.authority = Authority("g", budget(requests=12))
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
    def declaration(revision: int) -> object:
        return declared(revision=revision, hold=hold(requests=8, size=100, wait=50.0), total=20.0)

    # The world

    @rule(caller=st.sampled_from(CALLERS), wait=st.floats(0.1, 60.0), size=st.integers(0, 30), count=st.integers(1, 4))
    def take(self, caller: str, wait: float, size: int, count: int) -> None:
        for _ in range(count):
            self.count += 1
            stream = bool(self.count % 2)
            self.ask(ticket(f"r{self.count}", self.now, caller=caller, wait=wait, size=size, stream=stream))

    @precondition(lambda self: self.waiting)
    @rule(index=st.integers(0, 100))
    def leave(self, index: int) -> None:
        request = list(self.waiting)[index % len(self.waiting)]
        self.left.add(request)
        self.forget(request)
        self.follow(self.authority.leave(request, self.now))

    @precondition(lambda self: self.live)
    @rule(index=st.integers(0, 100), outcome=st.sampled_from(ENDINGS), again=st.booleans(), count=st.integers(1, 3))
    def give_back(self, index: int, outcome: Outcome, again: bool, count: int) -> None:
        for _ in range(min(count, len(self.live))):
            self.end_one(index, outcome, again)

    def end_one(self, index: int, outcome: Outcome, again: bool) -> None:
        lease, wanted, status = self.live.pop(list(self.live)[index % len(self.live)])
        if outcome.engine_done:
            self.engine[status.replica, status.pid].discard(lease.request)
        self.follow(self.authority.give_back(lease.id, outcome, self.now))
        if again and outcome.ending is Ending.UNREACHABLE:
            self.answers[lease.request] -= 1
            self.ask(replace(wanted, attempt=wanted.attempt + 1))

    @precondition(lambda self: len(self.replicas) < 2)
    @rule(index=st.integers(0, 3), slots=st.integers(2, 4), counts=st.booleans(), old=st.booleans())
    def start_replica(self, index: int, slots: int, counts: bool, old: bool) -> None:
        self.lives += 1
        revision = max(1, self.revision - int(old))
        made = replica(index, slots=slots, revision=revision, life=self.lives, busy_path="/slots" if counts else "")
        self.replicas[made.replica] = made
        self.engine[made.replica, made.pid] = set()
        self.observe()

    @precondition(lambda self: self.replicas and self.count > 5)
    @rule(index=st.integers(0, 100), what=st.sampled_from(["gone", "drain", "back"]))
    def change_replica(self, index: int, what: str) -> None:
        found = list(self.replicas)[index % len(self.replicas)]
        if what == "gone":
            del self.replicas[found]
        else:
            state = ReplicaState.DRAINING if what == "drain" else ReplicaState.READY
            self.replicas[found] = replace(self.replicas[found], state=state)
        self.observe()

    @precondition(lambda self: self.revision < 4)
    @rule()
    def roll_out(self) -> None:
        self.revision += 1
        self.follow(self.authority.declare(self.declaration(self.revision), self.now))  # type: ignore[arg-type]  # a Declared

    @rule(seconds=st.floats(0.01, 30.0))
    def pass_time(self, seconds: float) -> None:
        end = Instant(self.now + seconds)
        while (due := self.authority.due()) is not None and due <= end:
            self.go_to(due)
            self.follow(self.authority.advance(self.now))
        self.go_to(end)

    @rule(done=st.booleans())
    def engines_tell(self, done: bool) -> None:
        """Every engine that is asked works off what nobody waits for (or not yet) and tells its true count."""
        self.go_to(Instant(self.now + 2.0))
        self.follow(self.authority.advance(self.now))
        for poll in self.authority.polls():
            status = self.replicas[poll.replica]
            running = self.engine[status.replica, status.pid]
            if done:
                running &= {lease.request for lease, _, leased_on in self.live.values() if leased_on.pid == status.pid}
            self.follow(self.authority.engine_running(poll, len(running), self.now, self.now))

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

    @invariant()
    def no_slot_is_oversold(self) -> None:
        """Live leases never exceed the slots; where the engine counts, neither does what it really runs."""
        leased = Counter((status.replica, status.pid) for _, _, status in self.live.values())
        for status in self.replicas.values():
            assert leased[status.replica, status.pid] <= status.slots
            assert len(self.engine[status.replica, status.pid]) <= status.slots

    @invariant()
    def each_request_has_one_fate(self) -> None:
        """It waits, or left, or got exactly one answer."""
        for index in range(1, self.count + 1):
            request = f"r{index}"
            fates = self.answers[request] + (request in self.waiting) + (request in self.left)
            assert fates == 1, (request, fates)

    @invariant()
    def the_ledger_agrees(self) -> None:
        statuses = list(self.authority.statuses())
        assert [status.held for status in statuses] == [len(self.waiting)]
        assert [status.running for status in statuses] == [len(self.live)]
        assert self.authority.live_leases == len(self.live)

    def teardown(self) -> None:
        """When all have ended the ledger is empty, and the windows add up to what happened."""
        for _ in range(20):  # 12 wait at most, for at most 60 s
            for lease, _, _ in list(self.live.values()):
                del self.live[lease.id]
                self.follow(self.authority.give_back(lease.id, Outcome(Ending.FINISHED, status=200), self.now))
            self.pass_time(10.0)
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


LifeOfAnAuthority.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestLifeOfAnAuthority = LifeOfAnAuthority.TestCase
