"""What the node's GPUs say, from answers that nvidia-smi gives."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

from deploy.local.gpu_readings import ASK_EVERY, NONE_EVERY, QUERY, GpuReadings, GpuSeen, NoDriver, parse
from deploy.local.inventory import InventoryFailed
from events.clock import SimulatedClock

ANSWER = """\
0, GPU-5a1c, NVIDIA H200, 143771, 70123, 97, 580.95.05
1, GPU-77de, NVIDIA H200, 143771, 4, 0, 580.95.05
2, GPU-99aa, NVIDIA GB10, [N/A], [N/A], [N/A], 580.95.05
3, GPU-0ld0, Tesla V100, 32510, 4, 0, 470.82.01
"""


def test_an_answer_is_read_and_what_it_does_not_say_is_not_known() -> None:
    """Mebibytes and per cent; ``[N/A]`` is None, which is not zero; anything else is no GPU. Of drivers that count what
    they reserve as used nobody knows whether a card is empty."""
    assert parse(ANSWER) == (
        GpuSeen("GPU-5a1c", "NVIDIA H200", 143771 << 20, 70123 << 20, 0.97, empty=False),
        GpuSeen("GPU-77de", "NVIDIA H200", 143771 << 20, 4 << 20, 0.0, empty=True),
        GpuSeen("GPU-99aa", "NVIDIA GB10", None, None, None),
        GpuSeen("GPU-0ld0", "Tesla V100", 32510 << 20, 4 << 20, 0.0),
    )
    assert parse("") == parse("No devices were found\n") == ()


async def test_they_are_asked_again_and_a_failure_tells_nothing() -> None:
    """Not the last answer for ever; seldom where there are none."""
    answers: list[str | InventoryFailed] = [ANSWER, InventoryFailed("it hangs"), "", ANSWER]
    asked: list[float] = []
    clock = SimulatedClock()

    async def ask(query: Sequence[str]) -> str:
        assert query == QUERY
        asked.append(clock.now())
        answer = answers.pop(0)
        if isinstance(answer, InventoryFailed):
            raise answer
        return answer

    readings = GpuReadings(clock, NoDriver(), ask)
    running = asyncio.create_task(readings.run())
    seen: list[tuple[int, bool]] = []
    for pause in (0.0, ASK_EVERY, ASK_EVERY, NONE_EVERY):
        await clock.advance(pause)
        seen.append((len(readings.seen), readings.known))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (seen, answers) == ([(4, True), (0, True), (0, False), (4, True)], [])
    assert [round(later - before) for before, later in itertools.pairwise(asked)] == [15, 15, 600]
