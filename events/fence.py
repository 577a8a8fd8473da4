"""Fences: which writer of a scope counts. Pure, and without a clock.

Who takes a scope (a partition of wishes, a pool of GPUs) says so in the log; the offset of that record is the epoch in
all that it writes from then on. Readers refuse smaller epochs: their writer was replaced and does not know it yet.
"""

from __future__ import annotations


class Fence:
    """The newest epoch of each scope."""

    def __init__(self) -> None:
        self._newest: dict[object, int] = {}

    def take(self, scope: object, epoch: int) -> None:
        """From `epoch`, the offset of the record that took the scope, smaller ones are refused."""
        self._newest[scope] = max(epoch, self._newest.get(scope, epoch))

    def allows(self, scope: object, epoch: int | None) -> bool:
        """Whether a write with `epoch` stands. Before anybody took the scope all do; after, one without does not."""
        newest = self._newest.get(scope)
        return newest is None or (epoch is not None and epoch >= newest)
