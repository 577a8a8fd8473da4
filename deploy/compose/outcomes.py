"""Outcomes of asynchronous requests, read from Kafka without a running relume: as any consumer would read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from deploy.compose.eventlog import MISSING, kafka_settings
from deploy.settings.settings import Settings
from events.codec import encode_structured
from events.envelope import Envelope
from events.log import LogUnavailable
from events.names import Topic

TOPICS: Final = (Topic.INFERENCE_RESULTS, Topic.INFERENCE_DEAD_LETTERS)
TURN: Final = 500  # milliseconds of one poll


def outcomes_on_kafka(settings: Settings, servers: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Committed results and dead letters as CloudEvents: those that stand there, then as they come, without an end.

    Raises LogUnavailable, SettingsRefused.
    """
    try:
        from kafka import TopicPartition  # noqa: PLC0415 - comes with an extra
        from kafka.errors import KafkaError  # noqa: PLC0415 - as above

        from events.adapters.kafka import client  # noqa: PLC0415 - as above
        from events.adapters.kafka.wire import find  # noqa: PLC0415 - as above
    except ImportError as error:
        raise LogUnavailable(f"{MISSING} ({error})") from error
    ours = kafka_settings(settings, servers)
    client.quieten()
    try:
        consumer = client.make_consumer(ours)
        try:
            counts = {str(topic): len(consumer.partitions_for_topic(topic) or ()) for topic in TOPICS}
            consumer.assign([TopicPartition(topic, at) for topic, count in counts.items() for at in range(count)])
            consumer.seek_to_beginning()
            while True:
                for raws in consumer.poll(timeout_ms=TURN).values():
                    for raw in raws:
                        found = find(raw, counts[raw.topic])
                        if isinstance(found, Envelope):
                            yield orjson.loads(encode_structured(found))
        finally:
            consumer.close(autocommit=False, timeout_ms=TURN)
    except (KafkaError, OSError) as error:
        raise LogUnavailable(client.told(ours, error)) from error
