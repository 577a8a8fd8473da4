"""A model's whole loop on a simulated clock: the real slot authority, meters, fold and decisions; a simulated cluster.

Requests come from a trace. A replica takes about `Plan.start` seconds to start and serves a request in a time that its
tokens give; what the authority publishes reaches the autoscaler at once, and so does a wish the cluster. Everything
that is drawn comes from one seed, so that a run can be repeated to the last bit.
"""

from __future__ import annotations

import csv
import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count
from pathlib import Path

from coldstart.core.hold import HoldBudget
from events.types.decisions import WishDecided
from events.types.replicas import Phase, PhaseSpan, ReplicasObserved, ReplicaState, ReplicaStatus
from events.types.requests import RequestWindow
from events.units import Bytes, Instant
from runtime.core.authority import Authority
from runtime.core.commands import Command, Drained, Grant, Refuse, SendWindow
from runtime.ports import Lease
from tests.support import autoscaling, slots

MODEL, UID = str(slots.MODEL), "u1"
GATEWAY = "relume/gateway/g"
SLOTS = 4


@dataclass(frozen=True)
class Asked:
    """One request of a trace: seconds after its begin, tokens."""

    at: float
    tokens_in: int
    tokens_out: int


def azure(path: Path, seconds: float) -> list[Asked]:
    """The first `seconds` of one of Azure's traces of language models (TIMESTAMP, ContextTokens, GeneratedTokens)."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [
            (datetime.fromisoformat(row["TIMESTAMP"]), int(row["ContextTokens"]), int(row["GeneratedTokens"]))
            for row in csv.DictReader(file)
        ]
    begin = rows[0][0]
    asked = [Asked((at - begin).total_seconds(), read, made) for at, read, made in rows]
    return [one for one in asked if one.at < seconds]


@dataclass(frozen=True)
class Plan:
    """What is simulated. `start`: seconds until a replica is ready, up to a fifth more or less."""

    start: float = 5.0
    first_token: float = 0.5
    tokens_in_per_second: float = 4000.0
    seconds_per_token: float = 0.05
    max_replicas: int = 12
    seed: int = 1
    restart_at: tuple[float, ...] = ()
    """Seconds after the begin at which the autoscaler is killed and starts again."""


@dataclass
class Story:
    """What happened. Instants are seconds since the trace began."""

    granted: list[str] = field(default_factory=list)
    """Requests in the order of their grants."""
    held: list[float] = field(default_factory=list)
    finished: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    lowered: list[tuple[float, int, int, int]] = field(default_factory=list)
    """(when, from, to, requests that really waited then)."""
    most_running: int = 0
    """Leases on one replica at the same time."""
    replica_seconds: float = 0.0
    done_at: float = 0.0
    """When the last request ended."""


class Simulation:
    """Plays `asked` and then lets time pass; `story` tells."""

    def __init__(self, asked: list[Asked], plan: Plan) -> None:
        self.plan = plan
        self.story = Story()
        self.run = self._autoscaler()
        self.authority = Authority("g", HoldBudget(100_000, Bytes(1 << 40)))
        self._draw = random.Random(plan.seed)
        self._do(self.authority.declare(slots.declared(uid=UID), self.run.now))
        self.replicas: dict[int, ReplicaStatus] = {}
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._windows: list[tuple[float, RequestWindow]] = []
        self._running: Counter[str] = Counter()
        self._tokens: dict[str, Asked] = {}
        self._wish = 0
        for number, one in enumerate(asked):
            self._plan(one.at, self._asks(f"r{number:05}", one))
        for at in plan.restart_at:
            self._plan(at, self._restart)

    @property
    def now(self) -> float:
        """Seconds since the trace began."""
        return self.run.now - autoscaling.T0

    @property
    def waiting(self) -> int:
        """Requests in the hold queue."""
        return sum(status.held for status in self.authority.statuses())

    def play(self, until: float) -> None:
        """Let everything happen that happens before `until`."""
        end = autoscaling.T0 + until
        while (at := self._next()) <= end:
            self.run.advance(max(0.0, at - self.run.now))
            self.run.clock.set(at)
            while self._agenda and self._agenda[0][0] <= at:
                heapq.heappop(self._agenda)[2]()
            due = self.authority.due()
            if due is not None and due <= at:
                self._do(self.authority.advance(Instant(at)))
            self._follow()
        self.run.clock.set(end)

    def _next(self) -> float:
        mine = self._agenda[0][0] if self._agenda else None
        instants = (mine, self.authority.due(), self.run.agenda.next_at())
        return min((one for one in instants if one is not None), default=float("inf"))

    def _plan(self, at: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (autoscaling.T0 + at, next(self._order), act))

    # Requests

    def _asks(self, name: str, one: Asked) -> Callable[[], None]:
        def arrive() -> None:
            self._tokens[name] = one
            self._do(self.authority.take(slots.ticket(name, self.run.now), self.run.now))

        return arrive

    def _do(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Grant):
                self._dispatch(command.lease)
            elif isinstance(command, Refuse):
                self.story.refused.append(f"{command.request}: {command.refusal.code}")
            elif isinstance(command, SendWindow):
                self._windows.append((self.run.now, command.window))
                self.run.put(command.window, GATEWAY)
            elif isinstance(command, Drained):
                self._gone(str(command.replica))

    def _dispatch(self, lease: Lease) -> None:
        story, one = self.story, self._tokens.pop(lease.request)
        story.granted.append(lease.request)
        story.held.append(lease.held_seconds)
        self._running[lease.replica] += 1
        story.most_running = max(story.most_running, self._running[lease.replica])
        plan = self.plan
        took = plan.first_token + one.tokens_in / plan.tokens_in_per_second + one.tokens_out * plan.seconds_per_token

        def finish() -> None:
            story.finished[lease.request] += 1
            story.done_at = self.now
            self._running[lease.replica] -= 1
            self._do(self.authority.give_back(lease.id, slots.DONE, self.run.now))

        self._plan(self.now + took, finish)

    # The cluster

    def _follow(self) -> None:
        """Start and drain replicas as the newest wish says; in this world everything fits."""
        wish = self._newest()
        if wish is None or wish.replicas == self._wish:
            return
        if wish.replicas < self._wish:
            self.story.lowered.append((self.now, self._wish, wish.replicas, self.waiting))
        self._wish = wish.replicas
        wanted = [index for index, one in self.replicas.items() if one.state is not ReplicaState.DRAINING]
        for index in sorted(wanted, key=self._worth)[: max(0, len(wanted) - wish.replicas)]:
            self._drain(index)
        for _ in range(wish.replicas - len(wanted)):
            self._start(next(index for index in count() if index not in self.replicas))
        self._observed()

    def _newest(self) -> WishDecided | None:
        return self.run.wishes[-1][1] if self.run.wishes else None

    def _worth(self, index: int) -> tuple[bool, int]:
        """Those that start go first, then the least running."""
        one = self.replicas[index]
        return one.state is ReplicaState.READY, self._running[one.replica]

    def _start(self, index: int) -> None:
        self.story.starts.append(self.now)
        life = len(self.story.starts)
        self.replicas[index] = ReplicaStatus(
            replica=f"{MODEL}-r1-{index}", uid=UID, revision=1, state=ReplicaState.STARTING, slots=SLOTS, pid=life,
            created_at=self.run.now, phases=(PhaseSpan(phase=Phase.LOAD, started_at=self.run.now),), phase=Phase.LOAD,
        )  # fmt: skip
        took = self.plan.start * self._draw.uniform(0.8, 1.2)
        self._plan(self.now + took, lambda: self._ready(index, life))

    def _ready(self, index: int, life: int) -> None:
        one = self.replicas.get(index)
        if one is None or one.pid != life:
            return  # it was let go while it started
        span = replace(one.phases[0], ended_at=self.run.now)
        self.replicas[index] = replace(
            one, state=ReplicaState.READY, address=f"127.0.0.1:{9000 + index}", ready_at=self.run.now, phases=(span,),
            phase=None,
        )  # fmt: skip
        self._observed()

    def _drain(self, index: int) -> None:
        one = self.replicas[index]
        if one.state is ReplicaState.STARTING:
            del self.replicas[index]
        else:
            self.replicas[index] = replace(one, state=ReplicaState.DRAINING)

    def _gone(self, name: str) -> None:
        index = next(index for index, one in self.replicas.items() if one.replica == name)
        assert not self._running[name], "drained means that nothing runs"
        one = self.replicas.pop(index)
        assert one.ready_at is not None
        self.story.replica_seconds += self.run.now - one.ready_at
        self._plan(self.now, self._observed)

    def _observed(self) -> None:
        state = ReplicasObserved(model=MODEL, uid=UID, replicas=tuple(self.replicas.values()))
        self.run.put(state, "relume/cluster/local")
        self._do(self.authority.observe(state, self.run.now))

    # The autoscaler

    def _autoscaler(self) -> autoscaling.Run:
        declared = autoscaling.declared(MODEL, UID, maxReplicas=self.plan.max_replicas)
        return autoscaling.Run(declared, obey=False)

    def _restart(self) -> None:
        """Another process: it reads back the states and the windows of the log; until then it may lower nothing."""
        self.run = self.run.restart(history=False)
        self._observed()
        for at, window in self._windows:
            self.run.put(window, GATEWAY, at=at)
        self.run.read_history()

    def recorded(self) -> Iterator[tuple[float, WishDecided]]:
        """(seconds since the begin, wish) of everything recorded."""
        yield from self.run.wishes
