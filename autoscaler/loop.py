"""The shell around `decide`: observe, decide, record, act. A recorded wish is the act: the allocator follows it.

An event only wakes the loop and says which model is dirty; the decision is made from the whole view of that model. More
requests than the last wish is good for are urgent; ordinary windows wait for the model's tick; quiet models wait for
their `again_at`. Everything runs on one event loop and in small slices, because a gateway may run beside it.

The parts: `owning` (which partitions are ours); `following`, `reading_back`, `observing` (what the log says of them);
`estate` (what is known); `deciding`, `recording`, `waiting`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from autoscaler.core.agenda import Agenda
from autoscaler.core.model import Decision, Snapshot
from autoscaler.core.policy import ScalingPolicy
from autoscaler.core.view import Wish
from autoscaler.deciding import Decider, Elsewhere
from autoscaler.estate import Estate
from autoscaler.observing import Observer
from autoscaler.owning import Means, Owning
from autoscaler.ports import OwnPolicies
from autoscaler.recording import Recorder
from autoscaler.settings import AutoscalerSettings
from autoscaler.waiting import Pauses, Waker
from events.clock import Clock
from events.log import EventLog, LogClosed, LogUnavailable
from events.units import Instant
from events.writer import EventWriter

DECIDE_SLICE: Final = 32
"""Models decided before the event loop is let go: under a millisecond on one core."""


@dataclass(frozen=True, slots=True)
class ModelReport:
    """How a model stands now: what a decision would see, the last decision, and the wish on record."""

    snapshot: Snapshot
    policy: ScalingPolicy
    decision: Decision | None
    wish: Wish | None


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts since the start; `models` and `partitions` as of now.

    `takeovers`: partitions taken; `losses`: partitions that another took while they were ours. `refused_wishes`: of
    autoscalers that had lost the partition when they wrote.
    """

    models: int
    decided: int
    recorded: int
    policy_failures: int
    log_failures: int
    unreadable_declarations: int
    partitions: int = 0
    takeovers: int = 0
    losses: int = 0
    refused_wishes: int = 0


class Autoscaler:
    """Owns the wishes of the models of its partitions: those that the group of all autoscalers on this log gives it.

    On a log of one process it is all of them. Give `writer` its own source, and `settings.owner` a name that no other
    process has, nor this one after a restart. `policies`: where models' own policies are asked; None: in this process,
    which one that does not return then stops. `start`, `wait`, `close`.
    """

    def __init__(
        self, log: EventLog, clock: Clock, writer: EventWriter, settings: AutoscalerSettings,
        policies: OwnPolicies | None = None,
    ) -> None:  # fmt: skip
        self._clock = clock
        self._settings = settings
        self._pauses = Pauses(clock, settings)
        self._waker = Waker(clock)
        self._agenda = Agenda()
        self._estate = Estate(self._agenda, settings.tick)
        means = Means(log, clock, writer, settings, self._pauses)
        self._observer = Observer(means, self._estate, self._waker, self._decide_edges)
        self._owning = Owning(means, self._estate, self._observer.topics, self._observer.gateways_read)
        self._policies = policies
        elsewhere = None if policies is None else Elsewhere(policies, self._waker.wake)
        self._decider = Decider(self._estate, self._agenda, settings, elsewhere=elsewhere)
        self._recorder = Recorder(log, clock, writer, self._pauses, self._waker)
        self._tasks: list[asyncio.Task[None]] = []

    # -- life

    async def start(self) -> None:
        """Join the group and take what it gives, read the states, then decide. Returns when the first decisions may be
        taken; also when others have all partitions, or the group has yet to be dealt anew: then this one stands by.

        Past demand is read back meanwhile; until it is, wishes may rise and none falls. Raises LogClosed, and
        LogUnavailable when the log has said nothing within `settings.start_most`.
        """
        topics = self._observer.topics
        for work in (
            self._observer.follow_common(), topics.states.run(), topics.news.run(), self._owning.run(), self._work(),
        ):  # fmt: skip
            self._spawn(work)
        ready = asyncio.create_task(self._estate.progress.until(lambda: self.deciding))
        late = asyncio.create_task(self._pauses.sleep(self._settings.start_most))
        try:
            tasks = list(self._tasks)
            await asyncio.wait([ready, late, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    if not task.cancelled():
                        task.result()
                    raise LogClosed("the log, or the autoscaler, was closed while it started")
            if not ready.done():
                raise LogUnavailable(f"{self.missing()[0]}, after {self._settings.start_most:.0f} s")
        finally:
            ready.cancel()
            late.cancel()
            await asyncio.gather(ready, late, return_exceptions=True)

    async def close(self) -> None:
        """Stop, and leave the group: others take over at once. What was recorded stands."""
        tasks, self._tasks = [*self._tasks, *self._recorder.cancel()], []
        self._waker.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._policies is not None:
            await self._policies.close()

    async def wait(self) -> None:
        """Return when the log was closed; raise what a task of this autoscaler has failed of."""
        await asyncio.gather(*self._tasks)

    # -- answers

    @property
    def deciding(self) -> bool:
        """Whether it decides all that it is given: it has joined the group, and of each of its partitions it has read
        the states, and nobody has taken it away."""
        return self._owning.joined and self._observer.gateways_read.is_set() and not self._undecided()

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions whose models it decides now."""
        return frozenset(one.partition for one in self._estate.tenures.values() if one.decides)

    @property
    def history_read(self) -> bool:
        """Whether past demand of all that it is given has been read back, so that wishes may fall."""
        tenures = self._estate.tenures
        return self.deciding and all(tenures[one].history_read.is_set() for one in self._owning.assigned)

    async def wait_history_read(self) -> None:
        """Return once past demand has been read back."""
        await self._estate.progress.until(lambda: self.history_read)

    def missing(self) -> Sequence[str]:
        """What keeps it from deciding, a sentence each."""
        if not self._owning.joined:
            return ["the autoscaler has not joined the others yet"]
        lost = [
            f"the autoscaler does not decide: {owner} has taken partition {partition}"
            for partition, owner in self._estate.lost_to.items()
        ]
        if lost or self.deciding:
            return lost
        return ["the autoscaler has not read the states yet"]

    def view(self, model: str) -> ModelReport | None:
        """How a model stands now; None when it is not declared, or not decided here."""
        found = self._estate.find(model)
        if found is None:
            return None
        tenure, view = found
        snapshot = view.snapshot(self._clock.now(), tenure.fold.world)
        if view.declared is None or snapshot is None:
            return None
        return ModelReport(snapshot, view.declared.policy, view.last, view.wish)

    def signalled(self) -> Iterator[tuple[str, ScalingPolicy]]:
        """The models that are decided here and declare signals, with their policies."""
        for view in self._estate.views():
            declared = view.declared
            if declared is not None and declared.policy.signals and not declared.deleted:
                yield view.model, declared.policy

    def statistics(self) -> Statistics:
        """Counts since the start."""
        estate = self._estate
        return Statistics(
            models=estate.models,
            decided=self._decider.decided,
            recorded=self._recorder.recorded,
            policy_failures=self._decider.policy_failures,
            log_failures=self._pauses.failures,
            unreadable_declarations=estate.unreadable,
            partitions=len(self.partitions),
            takeovers=estate.taken,
            losses=estate.lost,
            refused_wishes=estate.refused,
        )

    def _undecided(self) -> list[int]:
        """What is given to us and not decided."""
        return sorted(self._owning.assigned - self.partitions)

    # -- decide

    async def _work(self) -> None:
        """Decide what is dirty and due, slice by slice; wait when nothing is. Ends when the log is closed."""
        while not (self._observer.closed or self._recorder.closed):
            if self._recorder.failure is not None:
                raise self._recorder.failure
            self._observer.fold_some()
            await self._decide_edges()
            answers = self._decider.answers(self._clock.now())
            if answers:
                await self._recorder.record(answers, self._decider)
            if self._recorder.ordinary:
                await self._decide_all(self._agenda.take(self._clock.now(), DECIDE_SLICE))
            next_at = self._next_at()
            if (
                self._observer.waiting
                or self._decider.answered
                or (next_at is not None and next_at <= self._clock.now())
            ):
                await asyncio.sleep(0)
            else:
                await self._waker.rest(next_at)
        self._observer.end()

    def _next_at(self) -> Instant | None:
        """When there is something to decide; None: not before something happens."""
        if self._recorder.ordinary:
            return self._agenda.next_at()
        return Instant(0.0) if self._agenda.has_edges else None

    async def _decide_edges(self) -> None:
        """Some of them; whoever calls this comes again."""
        if self._agenda.has_edges:
            await self._decide_all(self._agenda.take_edges(DECIDE_SLICE))

    async def _decide_all(self, models: Sequence[str]) -> None:
        """Decide these, and have recorded what must be."""
        now = self._clock.now()
        taken = [one for model in models if (one := self._decider.decide(model, now)) is not None]
        if taken:
            await self._recorder.record(taken, self._decider)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.append(asyncio.create_task(work))
