"""The numbers that asynchronous inference goes by. Those without a source are chosen by reasoning, and said why."""

from __future__ import annotations

from dataclasses import dataclass

from events.units import Bytes, Seconds


@dataclass(frozen=True, slots=True)
class InferencePolicy:
    """How long, how often, how many. All bounds are of one process."""

    longest_wait: Seconds = Seconds(86_400.0)
    """A request without a deadline waits so long, from its first append (design §5)."""
    latest_deadline: Seconds = Seconds(7 * 86_400.0)
    """Later deadlines count as this: topics forget after so long by default."""
    park_after: Seconds = Seconds(5.0)
    """A request that waited so long for a model that gives no slots is parked (design §5)."""
    park_when_full_after: Seconds = Seconds(1.0)
    """The same when its partition's look-ahead is full: others stand behind it. (Then those whose model gives slots are
    parked too, after `park_after`, unless they have a ticket.)"""
    lap: Seconds = Seconds(30.0)
    """A parked request is moved to the end of its topic when the look-ahead there is full and it waited so long: all
    that are parked are seen once in a lap, and cost one write in it."""
    lookahead: int = 2048
    """Offsets of one partition from the first unfinished request on: 2048 bits fit in a commit's metadata (4 KiB)."""
    lookahead_bytes: Bytes = Bytes(16 << 20)
    """Bytes of the bodies among them; one body more may come on top."""
    tickets: int = 16
    """Requests of one model that stand in the hold queue at once; those that run are bounded by slots. So many slots
    may become free together and find somebody waiting; HTTP requests have the rest of the queue."""
    attempts: int = 5
    """How often a request is sent to a replica that fails over it."""
    retry_first: Seconds = Seconds(1.0)
    retry_most: Seconds = Seconds(60.0)
    """Back-off between attempts: doubled from the first to the most, less up to half by chance."""
    refused_most: Seconds = Seconds(10.0)
    """Longest pause before a model that refused is asked again."""
    record_age: Seconds = Seconds(3600.0)
    record_ids: int = 100_000
    record_bytes: Bytes = Bytes(64 << 20)
    """Duplicates are known for so long, so many outcomes and so many bytes of answers; whichever is the least."""
    drain_within: Seconds = Seconds(300.0)
    """A backlog without nearer deadlines shall be done in so long."""
