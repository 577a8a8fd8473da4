"""What one event, model or wish does to the others when it is broken: nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from autoscaler.core.model import Snapshot
from autoscaler.core.view import ModelView
from events.clock import settle
from events.envelope import AnyEnvelope
from events.log import Position
from events.payload import Unencodable
from events.types.metrics import SignalMeasured
from events.units import Instant
from tests.autoscaler.test_loop import Brittle, World
from tests.support.autoscaling import declared


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A world whose log is closed at the end."""
    made = World()
    async with made.log:
        yield made


async def test_a_wish_that_no_event_can_say_is_no_others_trouble(world: World) -> None:
    """It is too large for the log, for instance: the wish before stands, others are recorded, it is decided again."""

    class Strict(Brittle):
        """A log that takes no wish of `bad` above one replica, nor what comes with it."""

        strict = True

        async def append(self, events: Sequence[AnyEnvelope]) -> tuple[Position, ...]:
            for one in events:
                if self.strict and one.key == "model/bad" and one.data.replicas > 1:
                    raise Unencodable("the event has 2097152 bytes")
            return await super().append(events)

    world.log = log = Strict(world.clock)
    world.tell(declared("bad"))
    world.tell(declared("good"))
    async with world.autoscaler() as autoscaler:
        for model in ("bad", "good"):
            world.waits(9, model=model)
        await settle()
        assert await world.numbers("good") == [0, 3]
        assert await world.numbers("bad") == [0]
        assert autoscaler.statistics().policy_failures
        log.strict = False
        world.waits(10, model="bad")
        await settle()
        assert (await world.numbers("bad"))[-1] == 3


async def test_a_record_that_cannot_be_folded_is_passed_over(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays in the log, so whoever ended by it would end by it again. What else there is counts; so does it."""

    def breaks(view: ModelView, *_: object) -> bool:
        raise ZeroDivisionError(view.model)

    monkeypatch.setattr(ModelView, "signal", breaks)
    world.tell(declared())
    async with world.autoscaler() as autoscaler:
        world.tell(SignalMeasured(model="m", name="s", value=3.0), "relume/somebody")
        world.waits(9)
        await settle()
        assert await world.numbers() == [0, 3]
        assert autoscaler.statistics().unreadable_declarations == 1


async def test_a_model_of_which_nonsense_is_known_is_no_others_trouble(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it is decided by cannot be gathered: its last wish stands, and it is looked at again."""
    gather, broken = ModelView.snapshot, [False]

    def snapshot(view: ModelView, now: Instant, seen: Any) -> Snapshot | None:
        if broken[0] and view.model == "bad":
            raise OverflowError("in what is known of it")
        return gather(view, now, seen)

    monkeypatch.setattr(ModelView, "snapshot", snapshot)
    world.tell(declared("bad"))
    world.tell(declared("good"))
    async with world.autoscaler():
        broken[0] = True
        for model in ("bad", "good"):
            world.waits(9, model=model)
        await settle()
        assert (await world.numbers("good"), await world.numbers("bad")) == ([0, 3], [0])
        broken[0] = False
        world.waits(10, model="bad")
        await settle()
        assert (await world.numbers("bad"))[-1] == 3
