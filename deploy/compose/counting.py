"""Counts of an event log on Kafka, without a running relume."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from deploy.compose.eventlog import MISSING, kafka_settings
from deploy.settings.settings import Settings
from events.log import LogUnavailable
from events.units import Seconds

if TYPE_CHECKING:
    from events.adapters.kafka.counting import Count

PATIENCE = Seconds(10.0)
"""The longest wait for one look."""

Look = Callable[[], "Count"]


@contextmanager
def looking(
    settings: Settings, servers: tuple[str, ...], topics: Sequence[str], groups: Sequence[str]
) -> Iterator[Look]:
    """Looks at these topics and groups (none named: all groups), as often as it is called. Raises LogUnavailable."""
    try:
        from events.adapters.kafka import client, counting  # noqa: PLC0415 - come with an extra
    except ImportError as error:
        raise LogUnavailable(f"{MISSING} ({error})") from error
    client.quieten()
    admin = client.Admin(replace(kafka_settings(settings, servers), open_timeout=PATIENCE))
    try:
        yield lambda: admin.submit(lambda found: counting.count(found, topics, groups), PATIENCE).result()
    finally:
        admin.close()
