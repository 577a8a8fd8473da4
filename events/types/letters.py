"""`relume.dead-letters`: what could not be read, with the reason; for people."""

from __future__ import annotations

from events.kinds import event
from events.names import Topic
from events.types.shared import At, Count


@event("relume.event.rejected", Topic.DEAD_LETTERS)
class EventRejected:
    """A record that could not be read. `raw` is what it said, cut to 4 KiB, undecodable bytes escaped.

    Without partition and offset it never stood in the log: it was refused on arrival.
    """

    topic: str
    reason: str
    partition: Count | None = None
    offset: Count | None = None
    type: str = ""
    source: str = ""
    raw: str = ""
    raw_bytes: Count = 0
    at: At
