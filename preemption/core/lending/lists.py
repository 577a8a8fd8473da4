"""Jobs by what they wait for: to be started, for more members, for their next try. Kept up to date one job at a time,
so that a decision need not look at all of them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from events.names import training_key
from events.units import Instant
from preemption.core.lending.claims import ClaimBook
from preemption.core.lending.granting import Because, words_of
from preemption.core.lending.seat import Job, JobSeat, Want
from preemption.core.lending.waiting import waits_since


class Lists:
    """Who waits. `changes` counts up with each change that may make a difference to who is started, or must yield."""

    def __init__(self, seats: Mapping[str, JobSeat], claims: ClaimBook) -> None:
        self.changes = 0
        self.waiting: set[str] = set()
        self.growing: set[str] = set()
        """Jobs that run with fewer members than they could."""
        self.blocked: set[str] = set()
        """Jobs that something forbids to end by force: who is asked is another question once it does not."""
        self.aged: set[str] = set()
        """Those that have waited so long that their places are kept free, by the last decision."""
        self.back_off: dict[str, Instant] = {}
        self._seats = seats
        self._claims = claims

    def declare(self, seat: JobSeat, job: Job, gangs: Container[str]) -> None:
        """A declaration that has changed. `gangs`: shortages of jobs, for which others are asked to yield.

        Who waits without any prospect, and does not want to run any more, leaves nothing to others: all that is known
        of them stands. So thousands of such jobs can be deleted one after the other without looking at all the others
        each time.
        """
        if not (job.stopped and self._in_vain(seat, gangs)):
            self.changes += 1
        seat.job = job

    def sort(self, dirty: Iterable[str], now: Instant) -> set[str]:
        """Put these, and those whose time has come, where they belong; about which of them there is news."""
        due = {name for name, at in self.back_off.items() if at <= now}
        return {name for name in sorted({*dirty, *due}) if self._sort(name, now)}

    def start(self, name: str) -> None:
        """It waits no more."""
        self.waiting.discard(name)

    def _in_vain(self, seat: JobSeat, gangs: Container[str]) -> bool:
        """Whether a job waits, holds nothing, keeps nothing free for itself, and nobody is asked to yield for it."""
        waits = seat.name in self.waiting and seat.fits_since is None and seat.name not in self.aged
        key = training_key(seat.name)
        return waits and not (seat.open or seat.held or key in gangs or self._claims.has(key))

    def _sort(self, name: str, now: Instant) -> bool:
        """Whether a job waits for room, for its next try, or does not want to run; whether there is news about it."""
        waited = name in self.waiting
        self.waiting.discard(name)
        self.growing.discard(name)
        self.back_off.pop(name, None)
        seat = self._seats.get(name)
        (self.blocked.add if seat is not None and seat.blocked else self.blocked.discard)(name)
        if seat is None or seat.job is None:
            return False
        want = seat.want(now)
        if want is Want.RUN:
            return self._wants_to_run(seat, now, waited=waited)
        self.changes += waited and not seat.job.stopped  # (`declare` has counted those)
        retry_at = None if seat.observed is None else seat.observed.retry_at
        if want is Want.BACKS_OFF and retry_at is not None:
            self.back_off[name] = Instant(retry_at)
        else:
            seat.waiting_since = None
        seat.fits_since = None
        news = seat.told != (told := ((str(want),), ""))
        seat.told = told
        return news

    def _wants_to_run(self, seat: JobSeat, now: Instant, *, waited: bool) -> bool:
        free = seat.governing is None and not seat.alive and (seat.empty or seat.misplaced)
        if free or seat.kept:
            self.waiting.add(seat.name)
            self.changes += not waited
            seat.waiting_since = waits_since(seat, now) if seat.waiting_since is None else seat.waiting_since
        elif seat.may_grow:
            self.growing.add(seat.name)
        elif not seat.alive:
            return tell(seat, Because.WAITS_EMPTY, "its last run is not seen to be gone from its cards")
        return False


def tell(seat: JobSeat, why: Because, message: str) -> bool:
    """Why a job is not started; whether that is news, which other numbers alone are not."""
    news = seat.told[0] != (str(why),) or words_of(seat.told[1]) != words_of(message) or seat.grant is None
    seat.told = (str(why),), message
    return news
