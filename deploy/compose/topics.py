"""The topics of an event log on Kafka, checked and created without a running relume."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from deploy.compose.eventlog import MISSING, kafka_settings
from deploy.settings.settings import Settings
from events.log import LogUnavailable


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic. `partitions` None: it is missing."""

    name: str
    kind: str
    partitions: int | None
    replication: int | None
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicsState:
    """All topics, what is wrong with them (a sentence each), and which were created just now."""

    topics: tuple[TopicState, ...]
    problems: tuple[str, ...]
    created: tuple[str, ...] = ()


def check(settings: Settings, servers: tuple[str, ...]) -> TopicsState:
    """As they are. Raises LogUnavailable, SettingsRefused."""
    return _look(settings, servers, create=False)


def create(settings: Settings, servers: tuple[str, ...]) -> TopicsState:
    """As they are once the missing ones are created; others are left as they are. Raises as `check`."""
    return _look(settings, servers, create=True)


def _look(settings: Settings, servers: tuple[str, ...], *, create: bool) -> TopicsState:
    try:
        from events.adapters.kafka import client, topics  # noqa: PLC0415 - come with an extra
    except ImportError as error:
        raise LogUnavailable(f"{MISSING} ({error})") from error
    wanted = kafka_settings(settings, servers)
    client.quieten()
    admin = client.Admin(wanted)
    looking = functools.partial(topics.check_topics, settings=wanted)

    try:
        created: list[str] = []
        reports = admin.submit(looking, wanted.open_timeout).result()
        if create and any(report.partitions is None for report in reports):
            making = admin.submit(lambda found: topics.create_topics(found, wanted, reports), wanted.open_timeout)
            created = making.result()
            again = functools.partial(topics.check_created, settings=wanted)
            reports = admin.submit(again, wanted.open_timeout).result()
    finally:
        admin.close()
    states = tuple(
        TopicState(one.name, str(one.kind), one.partitions, one.replication, one.problems) for one in reports
    )  # fmt: skip
    return TopicsState(states, tuple(topics.problems_of(reports)), tuple(created))
