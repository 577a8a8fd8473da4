"""Events to an event log on Kafka without a running relume: as any producer would send them."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from deploy.compose.eventlog import MISSING, kafka_settings
from deploy.settings.settings import Settings
from events.codec import MAX_EVENT_BYTES
from events.envelope import AnyEnvelope
from events.log import LogUnavailable
from events.payload import kind_of

ACKNOWLEDGED_WITHIN: Final = 30.0
"""Seconds for a batch to be durable."""


class KafkaSender:
    """A producer. Use it in a `with`; `send` returns when all in-sync replicas have the events.

    Raises LogUnavailable, SettingsRefused, and Unencodable for an event that is too large.
    """

    def __init__(self, settings: Settings, servers: tuple[str, ...]) -> None:
        try:
            from kafka.errors import KafkaError  # noqa: PLC0415 - comes with an extra

            from events.adapters.kafka import client  # noqa: PLC0415 - as above
        except ImportError as error:
            raise LogUnavailable(f"{MISSING} ({error})") from error
        self._settings = kafka_settings(settings, servers)
        self._failures = (KafkaError, OSError)
        self._told = client.told
        client.quieten()
        try:
            self._producer = client.make_producer(self._settings)
        except self._failures as error:
            raise LogUnavailable(self._told(self._settings, error)) from error

    def send(self, envelopes: Sequence[AnyEnvelope]) -> None:
        """All of them, in their order."""
        from events.adapters.kafka.wire import outgoing  # noqa: PLC0415 - comes with an extra

        try:
            sent = []
            partitions: dict[str, int] = {}
            for envelope in envelopes:
                topic = str(kind_of(envelope.data).topic)
                if topic not in partitions:
                    partitions[topic] = self._partitions(topic)
                record = outgoing(envelope, partitions, MAX_EVENT_BYTES)
                sent.append(
                    self._producer.send(
                        record.topic, record.value, key=record.key, headers=record.headers, partition=record.partition
                    )
                )
            for future in sent:
                future.get(ACKNOWLEDGED_WITHIN)
        except self._failures as error:
            raise LogUnavailable(self._told(self._settings, error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producer.close(ACKNOWLEDGED_WITHIN if kind is None else 0.0)

    def _partitions(self, topic: str) -> int:
        """How many there are. The client waits 5 s for a topic that is not there, and then only says that it waited."""
        try:
            found = self._producer.partitions_for(topic)
        except self._failures as error:
            at = ",".join(self._settings.servers)
            raise LogUnavailable(f"there is no topic {topic} at {at}, or nobody tells of it ({error})") from error
        return len(found or ())
