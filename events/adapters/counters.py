"""What a log counts; written by the loop's thread only."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from events.log import LogStats


@dataclass(slots=True)
class Counters:
    """See `events.log.LogStats`, which is what others get to see."""

    appended: int = 0
    duplicates: int = 0
    offered: int = 0
    dropped: int = 0
    put_off: int = 0
    ignored: int = 0
    rejected: int = 0
    commits: int = 0
    failures: int = 0

    def stats(self, queue_depth: int = 0) -> LogStats:
        """The counts as they are now."""
        return LogStats(**asdict(self), queue_depth=queue_depth)
