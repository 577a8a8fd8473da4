"""News that was read and waits to be folded. An edge is folded at once, ahead of the windows of all other models."""

from __future__ import annotations

from collections.abc import Iterator

from events.log import Record

WAITING_MOST = 4096
"""Records that may wait; then no more are read until there is room. Folding so many takes some 50 ms."""


class Inbox:
    """Records by model, each model's in the order of the log; between models the one that waits longest comes first."""

    __slots__ = ("_by_model", "_count")

    def __init__(self) -> None:
        self._by_model: dict[str, list[Record]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        """Whether no more should be put in for now."""
        return self._count >= WAITING_MOST

    def put(self, record: Record) -> None:
        """Let it wait."""
        self._by_model.setdefault(_model(record), []).append(record)
        self._count += 1

    def with_all_before(self, record: Record) -> list[Record]:
        """The record after those of its model that wait; they wait no longer."""
        before = self._by_model.pop(_model(record), [])
        self._count -= len(before)
        return [*before, record]

    def take(self, most: int) -> Iterator[Record]:
        """About so many: all that waits of the models whose turn it is."""
        while self._by_model and most > 0:
            records = self._by_model.pop(next(iter(self._by_model)))
            self._count -= len(records)
            most -= len(records)
            yield from records


def _model(record: Record) -> str:
    """Whose record it is; the key of a foreign producer may be another."""
    model = getattr(record.envelope.data, "model", None)
    return model if isinstance(model, str) else record.envelope.key
