"""A rebalance takes partitions away in the client's IO thread, also between a look at them and what follows."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import IllegalStateError

from events.adapters.kafka.joining import if_still_ours
from events.adapters.kafka.settings import KafkaSettings
from events.adapters.kafka.work_member import Held, WorkMember

PLACE = ("relume.requests", 0)


class TakenAway:
    """A client that was told of another assignment a moment after it said which it has."""

    def __init__(self, paused: bool) -> None:
        self._paused = {TopicPartition(*PLACE)} if paused else set()

    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition(*PLACE)}

    def paused(self) -> set[TopicPartition]:
        return self._paused

    def gone(self, *_: object, **__: object) -> Any:
        raise IllegalStateError("Partition is not assigned")

    pause = resume = highwater = position = gone


def member() -> WorkMember:
    return WorkMember(KafkaSettings(servers=("nowhere:9092",)), ("group", "name"), {PLACE[0]: 1}, print, Future())


@pytest.mark.parametrize("held_back", [True, False])
def test_what_went_is_not_paused_and_does_no_harm(held_back: bool) -> None:
    """Neither where it is to be paused nor where it is to go on: the next turn looks anew, and the work goes on."""
    one = member()
    one.hold(frozenset({PLACE} if held_back else ()))
    one._pause(cast("KafkaConsumer", TakenAway(paused=not held_back)))


def test_nothing_is_behind_of_what_went() -> None:
    """How far it is behind is the next one's to say."""
    one = member()
    one.held = Held({PLACE: 1})
    one._hand_over(cast("KafkaConsumer", TakenAway(paused=False)), {})
    assert one.behind == {PLACE: 0}


@pytest.mark.parametrize("error", [IllegalStateError("not assigned"), KeyError(PLACE)])
def test_only_what_went_is_forgiven(error: Exception) -> None:
    """The client checks, and then looks: it may fail at either. Anything else is told."""

    def fail(with_: Exception) -> Callable[[], None]:
        def raised() -> None:
            raise with_

        return raised

    with if_still_ours():
        fail(error)()
    with pytest.raises(ValueError, match="else"), if_still_ours():
        fail(ValueError("else"))()
