"""What is known of outcomes when a partition is taken over: read back from where they were told."""

from __future__ import annotations

from events.clock import Clock
from events.log import EventLog, Query
from events.names import Topic
from events.types.inference import InferenceCompleted, InferenceFailed, InferenceParked
from events.units import Instant
from runtime.core.inference.errand import Ident
from runtime.core.inference.outcomes import Outcomes

SIZE: int = 1024
"""Bytes that an answer is taken for which was read back: what it had on the wire is not told, and most are small."""


async def restore(outcomes: Outcomes, log: EventLog, span: tuple[int, Instant], clock: Clock) -> None:
    """Learn what was settled and parked in a partition since an instant. Raises LogUnavailable."""
    partition, since = span
    settled: set[Ident] = set()
    for topic in (Topic.INFERENCE_RESULTS, Topic.INFERENCE_DEAD_LETTERS, Topic.INFERENCE_PARKED):
        async for record in log.read(Query(topic, partition=partition, from_time=since)):
            data, now = record.envelope.data, clock.now()
            match data:
                case InferenceCompleted():
                    ident = (data.origin.source, data.origin.id)
                    settled.add(ident)
                    outcomes.settled(ident, now)
                    if data.idempotency_key is not None:
                        outcomes.answered((data.model, data.idempotency_key), ident, (data, SIZE), now)
                case InferenceFailed():
                    ident = (data.origin.source, data.origin.id)
                    settled.add(ident)
                    outcomes.settled(ident, now)
                case InferenceParked():
                    ident = (data.origin.source, data.origin.id)
                    if ident not in settled:
                        key = data.requested.idempotency_key
                        known = None if key is None else (data.model, key)
                        answered = known is not None and isinstance(outcomes.answer(known, now), InferenceCompleted)
                        outcomes.parked(ident, None if answered else known, now)
