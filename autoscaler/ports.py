"""What the autoscaler needs of the world besides the event log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from autoscaler.asking import Question
from autoscaler.core.lag import Look
from autoscaler.core.model import Decision
from autoscaler.core.policy import LagPolicy, QueryPolicy
from autoscaler.core.query import Answer
from autoscaler.own import OwnPolicyFailed


class Unmeasured(Exception):
    """A number could not be measured; the message says why, in a sentence for people."""


class LagUnknown(Unmeasured):
    """A lag could not be looked at."""


class QueryUnknown(Unmeasured):
    """A query was not answered."""


class LagReader(Protocol):
    """Looks at consumer groups."""

    async def look(self, lag: LagPolicy) -> Look:
        """All partitions of this lag, now. Never blocks the loop; ends within its own bound. Raises LagUnknown."""

    def close(self) -> None:
        """Give up what is under way; waits for nothing."""


class QueryReader(Protocol):
    """Asks metrics servers."""

    async def ask(self, query: QueryPolicy) -> Answer:
        """What the server answers, now. Never blocks the loop; ends within its own bound. Raises QueryUnknown."""

    def close(self) -> None:
        """Give up what is under way; waits for nothing."""


class OwnPolicies(Protocol):
    """Asks models' own policies where they can harm nobody."""

    def ask(self, question: Question, answered: Callable[[Decision | OwnPolicyFailed], None]) -> None:
        """Have it asked; `answered` is called once, on the loop, within a bound of the adapter's own."""

    async def close(self) -> None:
        """Give up what stands: nothing is answered any more."""
