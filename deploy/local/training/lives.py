"""What adapters' runs of training jobs have in common: the life that `jobs` lets them live."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from deploy.local.training.plan import ActualRun
from deploy.local.training.starting import Shape
from deploy.local.training.story import Story
from events.clock import Clock
from events.types.training import Ending, MemberStatus, NoticeGiven, RunState, Stop, TrainingObserved
from events.units import Instant


class AnyRun(Protocol):
    """One run of a job, whatever its members are: processes of this machine, or pods."""

    shape: Shape
    state: RunState
    started_at: Instant
    ended_at: Instant | None
    empty_at: Instant | None
    ending: Ending | None
    log_tail: tuple[str, ...]
    epoch: int
    """Of the newest grant: notices carry it."""
    told_to_end: bool
    """By a grant, or because relume stops: its end is no failure of its own."""
    settled: bool
    """Whether its end stands in the log: only then may another begin."""

    @property
    def story(self) -> Story:
        """What it has said."""

    @property
    def blocked(self) -> str:
        """Why it cannot be made to end by force now; empty: it can."""

    @property
    def failed(self) -> bool:
        """Whether its end counts as a failure."""

    @property
    def got_on(self) -> bool:
        """Whether it has committed a checkpoint."""

    def give(self, notice: NoticeGiven) -> None:
        """Tell it of a notice."""

    def withdraw(self) -> None:
        """Its notice no longer holds."""

    def end(self, stop: Stop, why: str) -> None:
        """Make it end."""

    async def live(self) -> None:
        """Until nothing of it runs and all that it said is known."""

    async def prove_empty(self) -> None:
        """Return once nothing of it is left, neither processes nor anything on its cards."""

    def actual(self) -> ActualRun:
        """As the plan sees it."""

    def statuses(self) -> tuple[MemberStatus, ...]:
        """Its members, as all others see them."""

    def trouble(self) -> tuple[str, str]:
        """The reason of a failure, and what to tell people of how it is or ended."""


R = TypeVar("R", bound=AnyRun)


def _nowhere(_shape: Shape) -> str:
    """It is not known here."""
    return ""


async def _nothing(_job: str, _kept: str) -> None:
    """There are no such folders."""


@dataclass(frozen=True, slots=True)
class Hands(Generic[R]):
    """What differs between adapters. `make` makes a run that has not begun, and that tells the last argument of each
    change; `prove` returns once nothing is left of a run that had ended before, and was not seen empty; `purge` removes
    the folders that jobs of a name have of their own, except that of this uid; `folder` says where members start, as
    far as that is known here."""

    clock: Clock
    make: Callable[[Shape, Story, Callable[[R], None]], R]
    prove: Callable[[TrainingObserved], Awaitable[None]]
    purge: Callable[[str, str], Coroutine[Any, Any, None]] = _nothing
    folder: Callable[[Shape], str] = _nowhere
