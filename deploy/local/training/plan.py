"""What to do so that a job's processes become what was granted. Pure: the whole view in, commands out.

Nothing here remembers. A run is begun once: `begun` is the newest that ever was, whatever became of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from events.types.training import MemberGrant, NoticeGiven, NoticeMode, Stop, TrainingGranted
from events.units import Instant

Held = tuple[tuple[str, tuple[str, ...]], ...]
"""Members with their cards."""


@dataclass(frozen=True, slots=True)
class ActualRun:
    """A run that exists: it has processes, or that it has none is not on record yet (`alive`), or its cards are not
    seen empty yet. `notice`: the id of the one
    that was given and not taken back; `stop`: how hard it was told to end."""

    uid: str
    run: int
    held: Held
    alive: bool
    notice: str = ""
    stop: Stop = Stop.NOT


@dataclass(frozen=True, slots=True)
class Actual:
    """What is of a job. `begun`: the newest run that was begun. `retry_at`: no run begins before (back-off). `uid`: of
    the newest declaration; only a grant for that one begins anything."""

    runs: tuple[ActualRun, ...] = ()
    begun: int = 0
    retry_at: Instant | None = None
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Begin:
    """Start all members of this grant."""

    grant: TrainingGranted


@dataclass(frozen=True, slots=True)
class Skip:
    """It must end before it began: say that it has."""

    grant: TrainingGranted


@dataclass(frozen=True, slots=True)
class Give:
    """Tell the run of this notice."""

    run: int
    notice: NoticeGiven


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Tell it that its notice no longer holds."""

    run: int


@dataclass(frozen=True, slots=True)
class End:
    """Make it end; `why` is for people."""

    run: int
    stop: Stop
    why: str


Command = Begin | Skip | Give | Withdraw | End


@dataclass(frozen=True, slots=True)
class Plan:
    """Commands, in an order that may be followed at once, and when to look again though nothing happened."""

    commands: tuple[Command, ...]
    again_at: Instant | None = None


_HARDER = {Stop.NOT: 0, Stop.TERMINATE: 1, Stop.KILL: 2}


def plan(grant: TrainingGranted | None, actual: Actual, now: Instant) -> Plan:
    """What to do now. `grant` None: nothing may run."""
    commands: list[Command] = []
    for run in actual.runs:
        if run.alive:
            commands += _follow(run, grant)
    if grant is None or not _may_begin(grant, actual):
        return Plan(tuple(commands))
    if grant.stop is not Stop.NOT:
        return Plan((*commands, Skip(grant)))
    if actual.retry_at is not None and actual.retry_at > now:
        return Plan(tuple(commands), actual.retry_at)
    return Plan((*commands, Begin(grant)))


def held_by(members: Iterable[MemberGrant]) -> Held:
    """What a grant's members hold."""
    return tuple((one.member, tuple(one.placement.gpus)) for one in members)


def harder(one: Stop, other: Stop) -> bool:
    """Whether the first is more than the second."""
    return _HARDER[one] > _HARDER[other]


def _follow(run: ActualRun, grant: TrainingGranted | None) -> Iterable[Command]:
    """The end, or the notice, of a run that lives."""
    stop, why = _stop(run, grant)
    if harder(stop, run.stop):
        yield End(run.run, stop, why)
    if grant is None or stop is not Stop.NOT or run.run != grant.run:
        return
    notice = grant.notice
    if notice is None or notice.mode is NoticeMode.WITHDRAWN:
        if run.notice and (notice is None or notice.id == run.notice):
            yield Withdraw(run.run)
    elif notice.id != run.notice:
        yield Give(run.run, notice)


def _stop(run: ActualRun, grant: TrainingGranted | None) -> tuple[Stop, str]:
    """How hard a run must be told to end, and why."""
    if grant is None or run.uid != grant.uid:
        return Stop.TERMINATE, "nothing is granted to this declaration of the job any more"
    if run.run != grant.run:
        return Stop.TERMINATE, f"run {grant.run} is granted, not this one"
    if grant.stop is not Stop.NOT:
        return grant.stop, "told to end"
    if not grant.members:
        return Stop.TERMINATE, "no longer granted"
    if held_by(grant.members) != run.held:
        return Stop.TERMINATE, "granted other members or cards than it has"
    return Stop.NOT, ""


def _may_begin(grant: TrainingGranted, actual: Actual) -> bool:
    """Whether it is a new run, and nothing of an earlier one is in its way."""
    if not grant.members or grant.uid != actual.uid or grant.run <= actual.begun:
        return False
    cards = {card for one in grant.members for card in one.placement.gpus}
    return not any(run.alive or cards & {card for _, has in run.held for card in has} for run in actual.runs)
