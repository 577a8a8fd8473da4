"""What stands in topics, and how far groups are behind, by partition: for people who look after a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kafka import KafkaAdminClient, OffsetSpec, TopicPartition
from kafka.errors import KafkaError

from events.adapters.kafka.places import committed, spans
from events.adapters.store import Place
from events.units import Instant


@dataclass(frozen=True, slots=True)
class PartitionCount:
    """One partition: its offsets, the time of its newest record, its bytes on one broker (None: not told)."""

    topic: str
    partition: int
    first: int
    end: int
    newest_at: Instant | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How many records a group has still to do in one partition."""

    group: str
    topic: str
    partition: int
    lag: int


@dataclass(frozen=True, slots=True)
class Count:
    """One look at a cluster."""

    partitions: tuple[PartitionCount, ...]
    groups: tuple[GroupLag, ...]


def count(client: KafkaAdminClient, topics: Iterable[str], groups: Iterable[str]) -> Count:
    """These topics, as far as they are there, and these groups (none named: all) in them. Raises KafkaError."""
    wanted = set(topics)
    places = sorted(
        (found["name"], part["partition_index"])
        for found in client.describe_topics(sorted(wanted))
        for part in found.get("partitions", ())
    )
    ends = spans(client, places)
    newest = _newest(client, places)
    sizes = _sizes(client)
    partitions = tuple(
        PartitionCount(*place, first, end, newest.get(place), sizes.get(place))
        for place, (first, end) in sorted(ends.items())
    )
    return Count(partitions, tuple(_groups(client, set(groups), ends)))


def _groups(client: KafkaAdminClient, wanted: set[str], ends: dict[Place, tuple[int, int]]) -> Iterable[GroupLag]:
    for group in sorted(wanted or {one["group_id"] for one in client.list_groups()}):
        for place, offset in sorted(committed(client, group).items()):
            if place in ends:
                first, end = ends[place]
                yield GroupLag(group, *place, max(0, end - max(offset, first)))


def _newest(client: KafkaAdminClient, places: Iterable[Place]) -> dict[Place, Instant]:
    """Brokers older than 3.0 do not tell it."""
    wanted = {TopicPartition(*place): OffsetSpec.MAX_TIMESTAMP for place in places}
    try:
        told = client.list_partition_offsets(wanted) if wanted else {}
    except KafkaError as error:
        if error.retriable:
            raise
        return {}
    return {(tp.topic, tp.partition): Instant(one.timestamp / 1000) for tp, one in told.items() if one.timestamp >= 0}


def _sizes(client: KafkaAdminClient) -> dict[Place, int]:
    """The largest copy of each partition. Who may not ask (it needs Describe on the cluster) is told none."""
    try:
        brokers = client.describe_log_dirs()
    except KafkaError as error:
        if error.retriable:
            raise
        return {}
    sizes: dict[Place, int] = {}
    for broker in brokers:
        for folder in broker["log_dirs"]:
            for topic in folder["topics"]:
                for part in topic["partitions"]:
                    place = (topic["name"], part["partition_index"])
                    sizes[place] = max(sizes.get(place, 0), part["partition_size"])
    return sizes
