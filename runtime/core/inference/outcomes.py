"""The record of outcomes: which requests are settled or parked, and the answers by idempotency key. Bounded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from events.types.inference import InferenceCompleted
from events.units import Instant
from runtime.core.inference.errand import Ident
from runtime.core.inference.policy import InferencePolicy

Idempotency = tuple[str, str]
"""(model, idempotency key)."""


@dataclass(frozen=True, slots=True)
class _Known:
    """`parked`: not settled, it stands on the topic of parked requests."""

    at: Instant
    parked: bool


@dataclass(frozen=True, slots=True)
class _Answer:
    """What stands for an idempotency key: the answer, or who is under way to it (parked)."""

    at: Instant
    ident: Ident
    answer: InferenceCompleted | None
    size: int


class Outcomes:
    """Oldest entries go first: beyond an age, a number, and (answers) a number of bytes."""

    def __init__(self, policy: InferencePolicy) -> None:
        self._policy = policy
        self._known: OrderedDict[Ident, _Known] = OrderedDict()
        self._answers: OrderedDict[Idempotency, _Answer] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._known)

    def settled(self, ident: Ident, now: Instant) -> None:
        """The request has its result or its dead letter."""
        self._learn(ident, _Known(now, parked=False))

    def parked(self, ident: Ident, idempotency: Idempotency | None, now: Instant) -> None:
        """The request waits on its topic."""
        self._learn(ident, _Known(now, parked=True))
        if idempotency is not None:
            self._answer(idempotency, _Answer(now, ident, None, 0))

    def answered(self, idempotency: Idempotency, ident: Ident, answer: tuple[InferenceCompleted, int], now: Instant
                 ) -> None:  # fmt: skip
        """What requests with this key are answered; the answer comes with its bytes."""
        self._answer(idempotency, _Answer(now, ident, *answer))

    def unanswered(self, idempotency: Idempotency, ident: Ident) -> None:
        """That request ended without an answer: the next with its key is run."""
        known = self._answers.get(idempotency)
        if known is not None and known.ident == ident:
            self._drop(idempotency)

    def is_settled(self, ident: Ident, now: Instant) -> bool:
        """Whether it is known to have its outcome."""
        self._forget(now)
        known = self._known.get(ident)
        return known is not None and not known.parked

    def is_parked(self, ident: Ident, now: Instant) -> bool:
        """Whether it is known to wait on the topic of parked requests."""
        self._forget(now)
        known = self._known.get(ident)
        return known is not None and known.parked

    def answer(self, idempotency: Idempotency, now: Instant) -> InferenceCompleted | Ident | None:
        """The answer for a key; or who is parked on the way to it; None: nobody yet."""
        self._forget(now)
        known = self._answers.get(idempotency)
        if known is None:
            return None
        return known.ident if known.answer is None else known.answer

    # Inside.

    def _learn(self, ident: Ident, known: _Known) -> None:
        self._known[ident] = known
        self._known.move_to_end(ident)
        while len(self._known) > self._policy.record_ids:
            self._known.popitem(last=False)

    def _answer(self, idempotency: Idempotency, answer: _Answer) -> None:
        self._drop(idempotency)
        self._answers[idempotency] = answer
        self._bytes += answer.size
        for oldest in self._oldest():
            if self._bytes <= self._policy.record_bytes and len(self._answers) <= self._policy.record_ids:
                break
            self._drop(oldest)

    def _forget(self, now: Instant) -> None:
        before = now - self._policy.record_age
        while self._known and next(iter(self._known.values())).at < before:
            self._known.popitem(last=False)
        for oldest in self._oldest():
            if self._answers[oldest].at >= before:
                break
            self._drop(oldest)

    def _oldest(self) -> Iterator[Idempotency]:
        while self._answers:
            yield next(iter(self._answers))

    def _drop(self, idempotency: Idempotency) -> None:
        gone = self._answers.pop(idempotency, None)
        self._bytes -= 0 if gone is None else gone.size
