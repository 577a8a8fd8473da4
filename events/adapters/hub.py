"""The hub of a log in this process: hands committed records to subscriptions and shares partitions among groups.

Everything here runs on the loop's thread and never waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from events.adapters.store import Place, Store
from events.adapters.subscription import LocalSubscription
from events.log import Record, Start

BUFFER = 4096
"""Records that wait in memory for one subscriber; one that falls further behind reads them from the store instead."""


class Hub:
    """Subscriptions by topic, groups, and how far the log has been told (`end`)."""

    def __init__(self, store: Store, partitions: int, buffer: int = BUFFER) -> None:
        self._store = store
        self._partitions = partitions
        self._buffer = buffer
        self._end = 0
        self._ends: dict[Place, int] = {}
        self._by_topic: dict[str, list[LocalSubscription]] = {}
        self._groups: dict[str, list[LocalSubscription]] = {}

    def start_at(self, end: int) -> None:
        """All offsets below `end` stood in the log when it was opened."""
        self._end = end

    def end(self, place: Place) -> int:
        """The offset after the last record of `place` that subscriptions were told of."""
        return self._ends.get(place, self._end)

    def publish(self, records: Sequence[Record]) -> None:
        """Tell of committed records, in the order of the log."""
        woken: dict[LocalSubscription, None] = {}  # in order, so that a simulation runs the same way each time
        for record in records:
            place = (record.position.topic, record.position.partition)
            self._ends[place] = record.position.offset + 1
            for subscription in self._by_topic.get(place[0], ()):
                if subscription.push(place, record):
                    woken[subscription] = None
        for subscription in woken:
            subscription.wake()

    def subscribe(self, topics: Sequence[str], start: Start, group: str | None) -> LocalSubscription:
        """Add a subscription; in a group, the members' shares are dealt anew."""
        subscription = LocalSubscription(self, self._store, tuple(dict.fromkeys(map(str, topics))), start, group)
        subscription.limit_buffer(self._buffer)
        for topic in subscription.topics:
            self._by_topic.setdefault(topic, []).append(subscription)
        if group is None:
            subscription.assign(self._places(subscription))
        else:
            self._groups.setdefault(group, []).append(subscription)
            self._deal(group)
        return subscription

    def leave(self, subscription: LocalSubscription) -> None:
        """Take a subscription out; its group shares what it had."""
        for topic in subscription.topics:
            members = self._by_topic.get(topic, [])
            if subscription in members:
                members.remove(subscription)
            if not members:
                self._by_topic.pop(topic, None)
        group = subscription.group
        if group is None or subscription not in self._groups.get(group, []):
            return
        self._groups[group].remove(subscription)
        if self._groups[group]:
            self._deal(group)
        else:
            del self._groups[group]

    def close(self) -> None:
        """End every subscription."""
        for subscription in {found for members in self._by_topic.values() for found in members}:
            subscription.end()
        self._by_topic.clear()
        self._groups.clear()

    def _places(self, subscription: LocalSubscription) -> list[Place]:
        return [
            (topic, partition)
            for topic in subscription.topics
            for partition in range(self._partitions)
            if subscription.follows(topic, partition)
        ]

    def _deal(self, group: str) -> None:
        """Each place goes to one member that follows its topic, in turn, in the order in which they joined."""
        members = self._groups[group]
        shares: dict[LocalSubscription, list[Place]] = {member: [] for member in members}
        for topic in sorted({topic for member in members for topic in member.topics}):
            for partition in range(self._partitions):
                followers = [member for member in members if member.follows(topic, partition)]
                if followers:
                    shares[followers[partition % len(followers)]].append((topic, partition))
        for member in members:  # first all give, then all take: no place has two owners
            member.revoke_all_but(shares[member])
        for member in members:
            member.assign(shares[member])
