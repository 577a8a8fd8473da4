"""When others hear of what a trainer says: at once of all that is decided on, of mere steps at times."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from deploy.local.training.hearing import STEP_EVERY, Ear, Hearing
from deploy.local.training.starting import Counts, Shape
from deploy.local.training.story import Saved, Story
from events.clock import SimulatedClock
from events.types.training import CheckpointStatus
from events.units import Seconds
from preemption.training_spec import TrainingSpec

SHAPE = Shape(TrainingSpec(command=("train",)).resolve("tune"), "u1", 1, 1, ())


class Said:
    """Lines that a test says."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def say(self, kind: str, **values: object) -> None:
        self.lines.append(json.dumps({"kind": kind, **values}).encode())

    async def read(self) -> Sequence[bytes]:
        lines, self.lines = self.lines, []
        return lines

    async def read_last(self) -> Sequence[bytes]:
        return ()


async def unseen(saved: Saved) -> CheckpointStatus:
    return CheckpointStatus(step=saved.step, at=saved.at)


@pytest.mark.parametrize("checkpoint", [0, 7])
async def test_the_first_step_is_told_at_once_and_others_at_times(checkpoint: int) -> None:
    """It is back when it has made a step beyond its checkpoint, and what coming back costs is counted by that."""
    clock, said, told = SimulatedClock(), Said(), list[int | None]()
    hearing = Hearing(clock, Counts(), lambda _: None, said, unseen)
    ear = Ear(hearing, SHAPE, Story(began_at=clock.now()), lambda: told.append(ear.story.step))
    if checkpoint:
        said.say("resumed", step=checkpoint)
        await ear.listen()
        assert told.pop() == checkpoint
    for step in range(1, 4):
        await clock.advance(Seconds(0.5))
        said.say("step", step=checkpoint + step)
        await ear.listen()
    assert told == [checkpoint + 1]
    await clock.advance(STEP_EVERY)
    said.say("step", step=checkpoint + 4)
    await ear.listen()
    assert told == [checkpoint + 1, checkpoint + 4]
