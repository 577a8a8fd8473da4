"""The event log that the settings name, opened."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol, cast

from deploy.local.folder import name_if_ours
from deploy.settings.events_url import KafkaEvents, MemoryEvents, SqliteEvents
from deploy.settings.settings import Settings, SettingsRefused, unreadable
from events.adapters.kafka import settings as kafka
from events.adapters.memory import MemoryEventLog
from events.adapters.sqlite import SqliteEventLog
from events.adapters.sqlite_writer import SqliteSettings
from events.clock import Clock
from events.log import EventLog, LogStats, LogUnavailable
from events.work import WorkLog

MISSING: Final = "the event log on Kafka needs more than is installed; install relume[kafka]"


class OpenLog(EventLog, WorkLog, Protocol):
    """What every log has besides the port."""

    @property
    def trouble(self) -> str:
        """Why the log is not written now; empty when it is."""

    def stats(self) -> LogStats:
        """Counts since it was opened."""


def event_log(settings: Settings, clock: Clock, folder: Path) -> AbstractAsyncContextManager[OpenLog]:
    """The log as a context manager; entering it may raise LogInUse, LogCorrupt, LogUnavailable. `folder`: the data
    folder of this process, by which it is known again when it was killed and comes back."""
    match settings.events_url:
        case MemoryEvents():
            return MemoryEventLog(clock)
        case SqliteEvents(path=path):
            return SqliteEventLog(path, clock, SqliteSettings(retention=settings.retention))
        case KafkaEvents(servers=servers):
            try:
                from events.adapters.kafka.log import KafkaEventLog  # noqa: PLC0415 - comes with an extra
            except ImportError as error:
                raise LogUnavailable(f"{MISSING} ({error})") from error
            ours = replace(kafka_settings(settings, servers), identity=lambda: name_if_ours(folder))
            return KafkaEventLog(ours, clock)


def kafka_settings(settings: Settings, servers: tuple[str, ...]) -> kafka.KafkaSettings:
    """The Kafka log's part of the settings. Raises SettingsRefused for a password that cannot be read."""
    security = kafka.KafkaSecurity(
        protocol=cast("kafka.Protocol", settings.kafka_security.upper()),
        ca=settings.kafka_tls_ca,
        certificate=settings.kafka_tls_cert,
        key=settings.kafka_tls_key,
        mechanism=settings.kafka_sasl_mechanism,
        username=settings.kafka_username,
        password=_password(settings),
        token_file=settings.kafka_token_file,
    )
    return kafka.KafkaSettings(
        servers=servers,
        security=security,
        client_id=f"relume-{settings.node_name}",
        partitions=settings.kafka_partitions,
        replication=settings.kafka_replication or -1,
        create_topics=settings.kafka_create_topics,
        retention=settings.retention,
        compression=None if settings.kafka_compression == "none" else settings.kafka_compression,
    )


def _password(settings: Settings) -> str:
    path = settings.kafka_password_file
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsRefused([unreadable("kafka_password_file", path, error)]) from error
