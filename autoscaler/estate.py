"""What this autoscaler owns now: a tenure for each of its partitions, with all that is known of the models in it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Final

from autoscaler.core.agenda import Agenda
from autoscaler.core.gateways import GATEWAYS_KEPT, Gateways
from autoscaler.core.view import ModelView
from autoscaler.fold import NAME_MOST, Fold
from autoscaler.reading_back import PastReader
from autoscaler.waiting import Progress
from events.kinds import carrier
from events.log import Record
from events.types.gateways import GatewayBeat
from events.units import Instant, Seconds

RECENT: Final = Seconds(2.0)
"""Live news is followed from so long before the partition was taken. A gateway sends a window a second of each model
that has requests, so that all levels of now are in it."""

UNOWNED: Final = Seconds(30.0)
"""What is said once is read from so long before that: the partition may have had no owner since. Chosen: Kafka's
session of 6 s (12 where brokers refuse that), the dealing, and the start of a process."""

HEARD: Final = Seconds(2.0)
"""A beat, or that the log has gone on, proves something about a gateway only after so long by our own clock: windows
that it sent meanwhile stand in another topic, and a process that stood still reads its topics in any order."""

HEARD_MOST: Final = 4 * GATEWAYS_KEPT
"""What is remembered of them at most: twice what so many gateways as are kept say meanwhile. Of more the oldest is left
out, which the next beat says again."""

MARK: Final = Seconds(0.5)
"""How exactly it is remembered when the log had gone on how far."""


@carrier
class _Heard:
    """The log had gone on to `at`, maybe with a beat, when it was read at `read_at` by our clock."""

    read_at: Instant
    at: Instant
    beat: GatewayBeat | None


class Tenure:
    """One time of owning one partition: from its `ownership.taken` until it is revoked or lost."""

    __slots__ = (
        "fold",
        "history_read",
        "live_from",
        "lost",
        "partition",
        "past",
        "read_to",
        "states_read",
        "wished_at",
    )

    def __init__(self, partition: int, fold: Fold) -> None:
        self.partition = partition
        self.fold = fold
        self.states_read = asyncio.Event()
        self.history_read = asyncio.Event()
        self.lost = asyncio.Event()
        self.past: PastReader | None = None
        self.live_from = Instant(0.0)
        """Live news is followed from then on."""
        self.wished_at: dict[str, Instant] = {}
        """When those before us decided last, by model; until what was said once since then has been read."""
        self.read_to = Instant(0.0)
        """Append time of the last news that was taken."""

    @property
    def decides(self) -> bool:
        """Whether its models may be decided."""
        return self.states_read.is_set() and not self.lost.is_set()


class Estate:
    """The tenures, by partition. Everything here happens at once, on the loop."""

    def __init__(self, agenda: Agenda, tick: Seconds) -> None:
        self.tenures: dict[int, Tenure] = {}
        self.gateways = Gateways()
        self.progress = Progress()
        """Moves when a tenure begins, comes further, or ends."""
        self.lost_to: dict[int, str] = {}
        """Who has taken a partition from us that is assigned to us; until it is ours again."""
        self.taken = self.lost = 0
        self._agenda = agenda
        self._tick = tick
        self._unreadable = self._refused = 0
        self._heard: deque[_Heard] = deque(maxlen=HEARD_MOST)
        """What will prove something, in the order in which it was read."""
        self._marked = Instant(0.0)
        self._cold_start_cost: Seconds | None = None

    def begin(self, partition: int, epoch: int) -> Tenure:
        """The partition is ours as of this epoch."""
        fold = Fold(self._agenda, self._tick, Instant(float("inf")), self.gateways)
        fold.epoch = epoch
        fold.set_cold_start_cost(self._cold_start_cost, self._marked)
        tenure = self.tenures[partition] = Tenure(partition, fold)
        self.lost_to.pop(partition, None)
        self.taken += 1
        self.progress.moved()
        return tenure

    def know_states(self, tenure: Tenure, now: Instant) -> None:
        """Its states have been read: its models may be decided, and live news makes them dirty."""
        taken_at = now if tenure.fold.taken_at is None else tenure.fold.taken_at
        tenure.read_to = tenure.live_from = Instant(taken_at - RECENT)
        tenure.fold.live_from = Instant(tenure.live_from - UNOWNED)
        views = tenure.fold.models.values()
        tenure.wished_at = {view.model: view.wish.recorded_at for view in views if view.wish is not None}
        tenure.fold.states_read()
        tenure.states_read.set()
        self.progress.moved()

    def know_past(self, tenure: Tenure, since: Instant, now: Instant) -> None:
        """Its demand has been read back: its wishes may fall."""
        tenure.past = None
        tenure.fold.join_past(since, now)
        tenure.history_read.set()
        self.progress.moved()

    def end(self, tenure: Tenure) -> bool:
        """It is not ours any more: its models are forgotten. False: that was known."""
        if self.tenures.get(tenure.partition) is not tenure:
            return False
        del self.tenures[tenure.partition]
        self._unreadable += tenure.fold.unreadable
        self._refused += tenure.fold.owners.refused
        tenure.fold.forget_all()
        self.progress.moved()
        return True

    def fold(self, record: Record, now: Instant) -> None:
        """Take in a record of an owned partition; others are nobody's business here."""
        tenure = self.tenures.get(record.position.partition)
        if tenure is None or tenure.lost.is_set():
            return
        self._went_on(record, now)
        tenure.fold.take(record, now)
        if tenure.fold.lost_to is not None:
            self.lost += 1
            self.lost_to[tenure.partition] = tenure.fold.lost_to
            tenure.fold.forget_all()  # at once: nothing of it is decided any more
            tenure.lost.set()
            self.progress.moved()

    def beat(self, record: Record, now: Instant) -> None:
        """Take in a record of `relume.gateways`."""
        data = record.envelope.data
        at = min(record.appended_at, now)
        self._heard.append(_Heard(now, at, data if isinstance(data, GatewayBeat) else None))
        self._believe(Instant(now - HEARD))

    def price(self, cost: Seconds | None, now: Instant) -> None:
        """The pool says what a cold start is worth, in GPU-seconds."""
        self._cold_start_cost = cost
        for tenure in self.tenures.values():
            tenure.fold.set_cold_start_cost(cost, now)

    def know_gateways(self, now: Instant) -> None:
        """All beats of before the start have been read: they are believed, since nothing was read before them."""
        self._believe(now)

    def _went_on(self, record: Record, now: Instant) -> None:
        """The log has gone on to this record."""
        at = min(record.appended_at, now)
        if at >= self._marked + MARK:
            self._marked = at
            self._heard.append(_Heard(now, at, None))
        self._believe(Instant(now - HEARD))

    def _believe(self, until: Instant) -> None:
        """What was read until then proves something from now on."""
        while self._heard and self._heard[0].read_at <= until:
            heard = self._heard.popleft()
            self.gateways.passed(heard.at)
            if heard.beat is not None:
                self.gateways.beat(heard.beat.gateway[:NAME_MOST], heard.beat.boot[:NAME_MOST], heard.at)

    def find(self, model: str) -> tuple[Tenure, ModelView] | None:
        """A model that may be decided."""
        for tenure in self.tenures.values():
            view = tenure.fold.models.get(model)
            if view is not None:
                return (tenure, view) if tenure.decides else None
        return None

    def views(self) -> Iterator[ModelView]:
        """All models that are known."""
        for tenure in self.tenures.values():
            yield from tenure.fold.models.values()

    @property
    def models(self) -> int:
        """How many models are known."""
        return sum(len(tenure.fold.models) for tenure in self.tenures.values())

    @property
    def unreadable(self) -> int:
        """Declarations that could not be read, since the start."""
        return self._unreadable + sum(tenure.fold.unreadable for tenure in self.tenures.values())

    @property
    def refused(self) -> int:
        """Wishes of others that had lost a partition, since the start."""
        return self._refused + sum(tenure.fold.owners.refused for tenure in self.tenures.values())
