"""Heartbeats of a held stream: the first one commits the status 200, so that no proxy between gives the wait up."""

from __future__ import annotations

from events.units import Instant, Seconds
from runtime.gateway import sse
from runtime.gateway.answer import Answer
from runtime.ports import Progress


class Beats:
    """When the next comment is due. The first is due `every` seconds after the request begins to wait."""

    __slots__ = ("_every", "next_at")

    def __init__(self, every: Seconds, now: Instant) -> None:
        self._every = every
        self.next_at = now + every

    def beat(self, now: Instant, answer: Answer, own: bytes, progress: Progress | None) -> None:
        """Write a comment, behind the head of an event stream if that is not sent yet."""
        if not answer.committed:
            answer.commit_stream(own)
        answer.write(sse.held_comment(progress))
        self.next_at = now + self._every
