"""What was decided, into the log: records of attempts first, then grants. Only then may anybody act on them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from events.clock import Clock
from events.envelope import AnyEnvelope
from events.keys import default_key
from events.log import EventLog, LogUnavailable, Position, Record
from events.payload import Unencodable
from events.types.accounts import TrainingAccounted
from events.types.grants import GrantDecided
from events.types.reclaims import ReclaimChanged
from events.types.training import TrainingGranted
from events.units import Instant
from events.writer import EventWriter
from preemption.core.allocator import GrantPlan, Pool
from preemption.folding import PoolFold

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = (0.05, 0.2, 1.0, 5.0)
"""Waits between tries to append while the log cannot be written; the last one repeats."""

Written = GrantDecided | TrainingGranted | ReclaimChanged | TrainingAccounted


Recorded = Callable[[Sequence[Record]], None]


def _nobody(records: Sequence[Record]) -> None:
    """There is no adapter beside this allocator."""


class Recorder:
    """Writes plans, under the leadership that `fold` knows."""

    def __init__(self, log: EventLog, clock: Clock, writer: EventWriter, fold: PoolFold) -> None:
        self.grants = 0
        self.recorded: Recorded = _nobody
        """Told of what has just been written: an adapter of this process need not wait until the log tells it."""
        self._log = log
        self._clock = clock
        self._writer = writer
        self._fold = fold

    async def record(self, plan: GrantPlan, pool: Pool) -> None:
        """Append what changed. A notice is sent, and cards change hands, by a grant: so what is to become of the
        attempt that it belongs to stands in the log before it."""
        for model in plan.gone:
            self._fold.causes.pop(f"model/{model}", None)
        again = self._said_again(pool, plan)
        await self._write([*plan.lent.reclaims, *(one for one in again if isinstance(one, ReclaimChanged))])
        rest = [one for one in again if not isinstance(one, ReclaimChanged)]
        grants: list[Written] = [*plan.grants, *plan.lent.grants, *rest]
        await self._write(grants)
        self.grants += len(grants)
        await self._write(self._fold.accounts.due(self._clock.now()))

    async def append(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
        """Append, again and again while the log cannot be written: the same ids, so never twice."""
        tries = 0
        while True:
            try:
                return await self._log.append(events)
            except LogUnavailable as error:
                await self.pause(tries, f"grants cannot be recorded, so nothing is granted: {error}")
                tries += 1

    async def pause(self, tries: int, why: str) -> None:
        """Wait before another try."""
        wait = _RETRY_SECONDS[min(tries, len(_RETRY_SECONDS) - 1)]
        logger.warning("%s; trying again in %s s", why, wait)
        await self._clock.sleep_until(Instant(self._clock.now() + wait))

    async def _write(self, values: Sequence[Written]) -> None:
        if not values:
            return
        envelopes = [
            self._writer.envelope(one, cause=self._fold.causes.get(default_key(one) or ""), epoch=self._fold.epoch)
            for one in values
        ]
        try:
            positions = await self.append(envelopes)
        except Unencodable:
            for envelope in envelopes:
                await self._append_alone(envelope)
        else:
            now = self._clock.now()
            self.recorded([Record(at, now, one) for at, one in zip(positions, envelopes, strict=True)])

    async def _append_alone(self, envelope: AnyEnvelope) -> None:
        """One that cannot be encoded stays unsaid; its model or job keeps what it has, and all others theirs."""
        try:
            await self.append([envelope])
        except Unencodable as error:
            logger.error("the state of %s cannot be written: %s", envelope.key, error)  # noqa: TRY400 - its words say it all

    def _said_again(self, pool: Pool, plan: GrantPlan) -> list[Written]:
        """Ours that a deposed leader's late writing hides: who reads the newest values only would find theirs."""
        said = {default_key(one) for one in (*plan.grants, *plan.lent.grants, *plan.lent.reclaims)}
        hidden, self._fold.hidden = self._fold.hidden, {}
        ours = [_ours(pool, theirs) for key, theirs in hidden.items() if key not in said]
        return [one for one in ours if one is not None]


def _ours(pool: Pool, theirs: GrantDecided | TrainingGranted | ReclaimChanged) -> Written | None:
    match theirs:
        case GrantDecided():
            return pool.granted(theirs.model)
        case TrainingGranted():
            return pool.lender.granted(theirs.job)
    return pool.lender.reclaim(theirs.job, theirs.id)
