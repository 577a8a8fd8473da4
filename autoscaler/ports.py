"""What the autoscaler needs of the world besides the event log."""

from __future__ import annotations

from typing import Protocol

from autoscaler.core.lag import Look
from autoscaler.core.policy import LagPolicy, QueryPolicy
from autoscaler.core.query import Answer


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
