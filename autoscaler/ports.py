"""What the autoscaler needs of the world besides the event log."""

from __future__ import annotations

from typing import Protocol

from autoscaler.core.lag import Look
from autoscaler.core.policy import LagPolicy


class LagUnknown(Exception):
    """A lag could not be looked at; the message says why, in a sentence for people."""


class LagReader(Protocol):
    """Looks at consumer groups."""

    async def look(self, lag: LagPolicy) -> Look:
        """All partitions of this lag, now. Never blocks the loop; ends within its own bound. Raises LagUnknown."""

    def close(self) -> None:
        """Give up what is under way; waits for nothing."""
