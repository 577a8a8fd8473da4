"""Where any consumer group stands in any topics of a cluster: for whoever measures its lag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafka import KafkaAdminClient

from events.adapters.kafka.places import committed, spans
from events.adapters.store import Place

_NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True)
class Standing:
    """Of one partition: its oldest offset, the one after its newest, and where the group goes on.

    `first` and `end` None: the partition has no leader now, so nobody knows. `committed` None: nothing was committed.
    """

    first: int | None
    end: int | None
    committed: int | None


class NoTopic(LookupError):
    """There is no such topic, or nothing in it to look at; the message says so in a sentence."""


def standing(client: KafkaAdminClient, group: str, topic: str, wanted: tuple[int, ...]) -> dict[Place, Standing]:
    """The group in these partitions of `topic` (none named: all); in all topics it has committed in, without `topic`.

    The group's offsets are asked for first: what is produced between the two answers is lag, and lag is never negative.
    Raises NoTopic and what the client raises.
    """
    offsets = committed(client, group)
    topics = [topic] if topic else sorted({place[0] for place in offsets})
    if not topics:
        raise NoTopic(f"group {group} has committed nothing yet; name the topic, so that its lag is known before")
    leaders = _leaders(client, topics)
    if topic and not leaders:
        raise NoTopic(f"there is no topic {topic}")
    missing = [number for number in wanted if (topic, number) not in leaders]
    if missing:
        raise NoTopic(f"topic {topic} has no partition {missing[0]}")
    places = [place for place in leaders if not wanted or place[1] in wanted]
    led = spans(client, [place for place in places if leaders[place] != _NO_LEADER])
    ends: dict[Place, tuple[int | None, int | None]] = {**dict.fromkeys(places, (None, None)), **led}
    return {place: Standing(first, end, offsets.get(place)) for place, (first, end) in ends.items()}


def _leaders(client: KafkaAdminClient, topics: list[str]) -> dict[Place, int]:
    """The node that leads each partition of those topics that exist."""
    return {
        (found["name"], part["partition_index"]): part["leader_id"]
        for found in client.describe_topics(topics)
        for part in found.get("partitions", ())
    }
