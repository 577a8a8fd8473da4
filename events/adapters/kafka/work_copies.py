"""Copies for topics of others, within a transaction of ours: one that cannot be written must not stop what can be."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Final, Protocol

from kafka import KafkaAdminClient
from kafka.errors import MessageSizeTooLargeError, RecordListTooLargeError, TopicAuthorizationFailedError

from events.adapters.kafka.client import Admin
from events.units import Seconds

logger = logging.getLogger(__name__)

_SPOILS: Final = (MessageSizeTooLargeError, RecordListTooLargeError, TopicAuthorizationFailedError)
"""What a topic's own configuration or rights say no to, and trying again does not help."""


class Sent(Protocol):
    """What kafka-python gives for a record."""

    @property
    def exception(self) -> BaseException | None:
        """Why it was not written, once that is known."""


class Copies:
    """Which topics take a copy; they are looked up once, and again after a failure. Used by one thread."""

    def __init__(self, admin: Admin, within: Seconds) -> None:
        self._admin = admin
        self._within = within
        self._fit: set[str] = set()
        self._told: set[str] = set()  # both are bounded by the topics that the settings allow
        self._sent: list[tuple[str, Sent]] = []

    def away(self, topics: Iterable[str]) -> frozenset[str]:
        """Those of `topics` that do not exist, or that we may not write to. Raises LogUnavailable."""
        unknown = sorted(set(topics) - self._fit)
        if not unknown:
            return frozenset()
        looking: Future[set[str]] = self._admin.submit(lambda client: _fit(client, unknown), self._within)
        found = looking.result()
        self._fit |= found
        self._told -= found
        self._leave_out(set(unknown) - found, "it does not exist, or we may not write to it")
        return frozenset(unknown) - found

    def begin(self) -> None:
        """A transaction begins."""
        self._sent.clear()

    def sent(self, topic: str, record: Sent) -> None:
        """A copy is on its way."""
        self._sent.append((topic, record))

    def failed(self) -> frozenset[str]:
        """A transaction failed: the topics whose copies were why. All are looked up again."""
        self._fit.clear()
        spoiled = {topic: record.exception for topic, record in self._sent if isinstance(record.exception, _SPOILS)}
        self._sent.clear()
        for topic, error in spoiled.items():
            self._leave_out({topic}, str(error))
        return frozenset(spoiled)

    def _leave_out(self, topics: set[str], why: str) -> None:
        for topic in sorted(topics - self._told):
            logger.warning("copies of outcomes for the topic %s are left out: %s", topic, why)
        self._told |= topics


def _fit(client: KafkaAdminClient, topics: list[str]) -> set[str]:
    """Those that are there and may be written to. Brokers without an authorizer allow everything."""
    return {
        topic["name"]
        for topic in client.describe_topics(topics)
        if topic["error_code"] == 0 and "WRITE" in (topic.get("authorized_operations") or ("WRITE",))
    }
