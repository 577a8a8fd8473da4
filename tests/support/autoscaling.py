"""Builders for the autoscaler's tests, and `Run`: its fold, agenda and decisions driven by hand, without tasks."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

from autoscaler.core.agenda import Agenda
from autoscaler.core.decide import decide
from autoscaler.core.model import Decision, Demand, Memory, Replicas, Snapshot
from autoscaler.core.policy import ScalingPolicy
from autoscaler.fold import Fold
from autoscaler.record import read_wish, wish_of
from events.clock import SimulatedClock
from events.log import Position, Record
from events.types.decisions import WishDecided
from events.types.models import ModelDeclared
from events.types.replicas import ReplicasObserved, ReplicaState, ReplicaStatus
from events.types.requests import Levels, RequestWindow
from events.units import Instant, Seconds
from events.writer import EventWriter

T0 = 1_000_000_000.0
"""When tests begin."""

POLICY = ScalingPolicy(
    name="relume", min_replicas=0, max_replicas=10, target=4.0, slots=4, keep_alive=Seconds(300.0),
    stable_window=Seconds(60.0), panic_window=Seconds(6.0), priority=100,
)  # fmt: skip


def seen(
    *,
    wished: int | None = 0,
    running: int = 0,
    waiting: int = 0,
    ready: int = 0,
    starting: int = 0,
    memory: Memory | None = None,
    demand: dict[str, Any] | None = None,
    **fields: Any,
) -> Snapshot:
    """A snapshot at `T0`: history read, averages zero unless `demand` says otherwise."""
    told = {"stable": 0.0, "panic": 0.0, **(demand or {})}
    return Snapshot(
        model="m", uid="u", revision=1, taken_at=T0, wished=wished,
        replicas=Replicas(ready=ready, starting=starting),
        demand=Demand(running=running, waiting=waiting, **told),
        memory=memory or Memory(),
        **{"history_read": True, "followed_since": T0 - 600, **fields},
    )  # fmt: skip


def declared(
    model: str = "m", uid: str = "u", *, revision: int = 1, deleted: bool = False, **scaling: Any
) -> ModelDeclared:
    """A declaration with four slots; `scaling` in camelCase as users write it."""
    spec: dict[str, Any] = {
        "slots": 4,
        "priority": 100,
        "scaling": {"maxReplicas": 10, **scaling},
        "engine": {"type": "simulated"},
    }
    return ModelDeclared(model=model, uid=uid, revision=revision, generation=1, spec=spec, deleted=deleted)


def window(begin: float, end: float, running: int = 0, waiting: int = 0, **fields: Any) -> RequestWindow:
    """A window of gateway g whose levels were the same all along."""
    whole: dict[str, Any] = {
        "model": "m", "uid": "u", "revision": 1, "gateway": "g", "started_at": begin, "ended_at": end,
        "running_seconds": running * (end - begin), "waiting_seconds": waiting * (end - begin),
        "now": Levels(running=running, waiting=waiting),
    }  # fmt: skip
    return RequestWindow(**{**whole, **fields})


def observed(ready: int = 0, starting: int = 0, draining: int = 0, model: str = "m", **fields: Any) -> ReplicasObserved:
    """Replicas by state."""
    states = [ReplicaState.READY] * ready + [ReplicaState.STARTING] * starting + [ReplicaState.DRAINING] * draining
    replicas = tuple(
        ReplicaStatus(replica=f"{model}-r1-{index}", uid="u", revision=1, state=state)
        for index, state in enumerate(states)
    )
    return ReplicasObserved(**{"model": model, "uid": "u", "replicas": replicas, **fields})


class Run:
    """One autoscaler on a simulated clock: what `autoscaler.loop` does, step by step and without tasks.

    `obey`: replicas follow the wish at once. `wishes` holds (seconds since the start, wish) of everything recorded.
    """

    def __init__(self, *declarations: ModelDeclared, history: bool = True, obey: bool = True) -> None:
        self.clock = SimulatedClock(T0)
        self.agenda = Agenda()
        self.fold = Fold(self.agenda, Seconds(2.0), Instant(T0))
        self.obey = obey
        self.wishes: list[tuple[float, WishDecided]] = []
        self.decided = 0
        self._writers: dict[str, EventWriter] = {}
        self._offsets = count(1)
        self._begun: dict[tuple[str, str], float] = {}
        self.fold.states_read()
        if history:
            self.read_history()
        for declaration in declarations:
            self.put(declaration)

    @property
    def now(self) -> Instant:
        return self.clock.now()

    def read_history(self) -> None:
        """Past demand is known from now on."""
        self.fold.history_read(Instant(self.now - 600), self.now)
        self._work()

    def put(self, data: object, source: str = "relume/test", at: float | None = None) -> None:
        """An event comes out of the log, now or (history) as of `at`; what it makes urgent is decided."""
        writer = self._writers.setdefault(source, EventWriter(source, self.clock))
        envelope = writer.envelope(data)
        appended = Instant(self.now if at is None else at)
        self.fold.take(Record(Position("t", 0, next(self._offsets)), appended, envelope), self.now)
        self._work()

    def serve(
        self, gateway: str = "g", *, running: int = 0, waiting: int = 0, seconds: int = 1, model: str = "m"
    ) -> None:
        """A gateway tells of these levels: at once, and at the end of each of the next seconds."""
        begin = self._begun.get((gateway, model), self.now)
        self._tell(gateway, model, begin, (running, waiting))
        for _ in range(seconds):
            self.advance(1.0)
            self._tell(gateway, model, self.now - 1.0, (running, waiting))
        self._begun[gateway, model] = self.now

    def stop(self, gateway: str = "g", model: str = "m") -> None:
        """The gateway's requests are done: it says so with a window of zeros."""
        begin = self._begun.pop((gateway, model), self.now)
        self.put(window(begin, self.now, model=model, gateway=gateway), f"relume/gateway/{gateway}")

    def advance(self, seconds: float) -> None:
        """Time passes; what becomes due is decided at its time."""
        end = self.now + seconds
        while (due := self.agenda.next_at()) is not None and due <= end:
            self.clock.set(due)
            self._work()
        self.clock.set(end)

    def restart(self, *, history: bool = True) -> Run:
        """Another process on the same log: it knows the declarations and the newest wishes, and nothing else."""
        other = Run(history=False, obey=self.obey)
        other.clock.set(self.now)
        for view in self.fold.models.values():
            newest = [wish for _, wish in self.wishes if wish.model == view.model]
            assert view.declared is not None
            other.fold.models[view.model] = fresh = type(view)(view.model)
            fresh.declare(view.declared, self.now, other.fold.world)
            if newest:
                fresh.adopt(*read_wish(newest[-1], self.now))
            other.agenda.at(view.model, self.now)
        other.wishes = list(self.wishes)
        if history:
            other.read_history()
        return other

    def wish(self, model: str = "m") -> WishDecided:
        """The newest wish of a model."""
        return next(wish for _, wish in reversed(self.wishes) if wish.model == model)

    def numbers(self) -> list[int]:
        """All recorded numbers, without those that only changed a reason."""
        every = [wish.replicas for _, wish in self.wishes]
        return [number for index, number in enumerate(every) if index == 0 or number != every[index - 1]]

    def decision(self, model: str = "m") -> Decision:
        """The last decision about a model, recorded or not."""
        last = self.fold.models[model].last
        assert last is not None
        return last

    def _tell(self, gateway: str, model: str, begin: float, levels: tuple[int, int]) -> None:
        told = window(begin, self.now, *levels, model=model, gateway=gateway)
        self.put(told, f"relume/gateway/{gateway}")

    def _work(self) -> None:
        while models := self.agenda.take(self.now, 32):
            for model in models:
                self._decide(model)

    def _decide(self, model: str) -> None:
        view = self.fold.models.get(model)
        snapshot = None if view is None else view.snapshot(self.now, self.fold.world)
        if view is None or view.declared is None or snapshot is None:
            return
        decision = decide(snapshot, view.declared.policy, self.now)
        self.decided += 1
        record_at = view.record_at(decision, self.now, Seconds(10.0))
        if record_at == self.now:
            wish = wish_of(snapshot, view.declared.policy, decision)
            self.wishes.append((round(self.now - T0, 3), wish))
            view.recorded(decision, view.declared, self.now)
        view.decided(decision, self.now)
        if view.declared.deleted:
            self.fold.forget(model)
            return
        if self.obey and snapshot.replicas.ready != decision.replicas:
            view.observe(replace(observed(decision.replicas), model=model, uid=view.declared.uid), self.now)
        for again_at in (decision.again_at, record_at):
            if again_at is not None and again_at > self.now:
                self.agenda.at(model, Instant(again_at))
