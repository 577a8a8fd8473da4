"""Where topics begin and end, and where groups stand: what the admin client is asked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kafka import KafkaAdminClient, OffsetAndMetadata, OffsetSpec, TopicPartition
from kafka.errors import GroupIdNotFoundError, NoError

from events.adapters.store import Place
from events.log import Start

_NONE: Final = -1  # no offset: nothing was committed, or nothing was appended so late


def spans(client: KafkaAdminClient, places: Sequence[Place]) -> dict[Place, tuple[int, int]]:
    """The first offset of each place and the one after its last."""
    begins = _offsets(client, dict.fromkeys(places, OffsetSpec.EARLIEST))
    ends = _offsets(client, dict.fromkeys(places, OffsetSpec.LATEST))
    return {place: (begins[place], ends[place]) for place in places}


def offsets_at(client: KafkaAdminClient, places: Sequence[Place], time: float) -> dict[Place, int]:
    """The first offset of each place that was appended at `time` or later; places without one are left out."""
    found = _offsets(client, dict.fromkeys(places, max(0, math.ceil(time * 1000))))
    return {place: offset for place, offset in found.items() if offset != _NONE}


def starts(
    client: KafkaAdminClient, found: Mapping[Place, tuple[int, int]], start: Start
) -> dict[Place, int]:  # fmt: skip
    """Where a reader of these places begins."""
    if start.at == "end":
        return {place: end for place, (_, end) in found.items()}
    if start.at == "time" and start.time is not None:
        late = offsets_at(client, list(found), start.time)
        return {place: late.get(place, end) for place, (_, end) in found.items()}
    return {place: begin for place, (begin, _) in found.items()}


def committed(client: KafkaAdminClient, group: str) -> dict[Place, int]:
    """Where the group goes on, by place it has committed in."""
    try:
        told = client.list_group_offsets(group).get(group, {})
    except GroupIdNotFoundError:
        return {}
    return {(tp.topic, tp.partition): one.offset for tp, one in told.items() if one.offset != _NONE}


def lags(client: KafkaAdminClient, group: str) -> dict[Place, int]:
    """Records from the committed offsets on. What retention has taken meanwhile is no longer there to be read."""
    offsets = committed(client, group)
    found = spans(client, list(offsets))
    return {place: max(0, found[place][1] - max(offset, found[place][0])) for place, offset in offsets.items()}


def begin_group(client: KafkaAdminClient, group: str, wanted: Mapping[Place, int]) -> None:
    """Let a group that has not begun go on at `wanted`, also for a member that takes over before anything else was
    committed. In a group that has members they did so already; Kafka refuses it then, rightly."""
    known = committed(client, group)
    new = {TopicPartition(*place): OffsetAndMetadata(at, "", -1) for place, at in wanted.items() if place not in known}
    for error in client.alter_group_offsets(group, new).values() if new else ():
        if error is not NoError and error.retriable:
            raise error


def topic_places(topics: Iterable[str], partitions: Mapping[str, int]) -> list[Place]:
    """All places of those topics that exist."""
    return [(topic, partition) for topic in topics for partition in range(partitions.get(topic, 0))]


def _offsets(client: KafkaAdminClient, wanted: Mapping[Place, int]) -> dict[Place, int]:
    if not wanted:
        return {}
    told = client.list_partition_offsets({TopicPartition(*place): spec for place, spec in wanted.items()})
    return {(tp.topic, tp.partition): one.offset for tp, one in told.items()}
