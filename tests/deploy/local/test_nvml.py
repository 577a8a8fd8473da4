"""GPUs as the driver's library tells of them: NVIDIA's Python half on a library of the tests' own, in a process of its
own, since it is loaded by its name."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from deploy.local.gpu_readings import EMPTY_BELOW
from tests.support.nvml import FakeCard, FakeNvml

pytestmark = pytest.mark.needs("nvml")

READS: Final = """
import asyncio, dataclasses, json, sys
from deploy.local.inventory import InventoryFailed
from deploy.local.nvml import driver

async def main():
    reader = driver()
    for line in sys.stdin:
        try:
            found = await reader.read()
            told = None if found is None else {one.id: dataclasses.asdict(one) for one in found}
        except InventoryFailed as error:
            told = str(error)
        print(json.dumps(told), flush=True)
    await reader.close()

asyncio.run(main())
"""


class Reader:
    """A process that reads when it is asked."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def read(self) -> Any:
        """What it reads now."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        async with asyncio.timeout(20):
            return json.loads(await self._process.stdout.readline())

    async def end(self) -> int:
        """Its exit status, once it has closed the driver."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with asyncio.timeout(20):
            return await self._process.wait()


async def reader(environment: Mapping[str, str]) -> Reader:
    """One with this library."""
    return Reader(await asyncio.create_subprocess_exec(
        sys.executable, "-c", READS, env={**os.environ, **environment}, stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    ))  # fmt: skip


async def test_cards_tell_of_memory_processes_parts_and_errors(tmp_path: Path) -> None:
    """What the driver keeps for itself is not in use; what a card does not tell is None; a split card's instances are
    told beside it; an error of a program (XID 13) is none of its card, one of the card (79) is, and stays."""
    fake = FakeNvml(tmp_path / "lib", [
        FakeCard("GPU-idle", used=EMPTY_BELOW, busy=0),
        FakeCard("GPU-busy", used=EMPTY_BELOW + 1, busy=97),
        FakeCard("GPU-seen", used=0, processes=[12, 345]),
        FakeCard("GPU-unified", total=None),
        FakeCard("GPU-split", parts=[("MIG-1", "NVIDIA H200 MIG 1g.18gb", 16 << 30, 0),
                                     ("MIG-2", "NVIDIA H200 MIG 1g.18gb", 16 << 30, 9 << 30)]),
        FakeCard("GPU-worn", remap_failed=True),
    ])  # fmt: skip
    reading = await reader(fake.build())
    seen = await reading.read()
    assert {name: one["empty"] for name, one in seen.items()} == {
        "GPU-idle": True, "GPU-busy": False, "GPU-seen": False, "GPU-unified": None, "GPU-split": True, "MIG-1": True,
        "MIG-2": False, "GPU-worn": True,
    }  # fmt: skip
    assert (seen["GPU-busy"]["busy"], seen["GPU-busy"]["used_bytes"]) == (0.97, EMPTY_BELOW + 1)
    assert seen["GPU-seen"]["pids"] == [12, 345]
    assert (seen["GPU-unified"]["memory_bytes"], seen["GPU-unified"]["used_bytes"]) == (None, None)
    assert (seen["GPU-split"]["split"], seen["MIG-2"]["parent"], seen["MIG-2"]["busy"]) == (True, "GPU-split", None)
    assert {name for name, one in seen.items() if one["sick"]} == {"GPU-worn"}
    fake.xids = [(0, 13), (1, 79)]
    fake.say()
    async with asyncio.timeout(20):
        while not (seen := await reading.read())["GPU-busy"]["sick"]:
            pass  # it is heard in a thread of its own
    assert "XID 79" in seen["GPU-busy"]["sick"]
    assert not seen["GPU-idle"]["sick"]
    assert await reading.end() == 0


async def test_a_card_that_is_lost_is_sick_and_nothing_else_of_it_is_known(tmp_path: Path) -> None:
    """Not empty, not in use, and still there under its name; the others go on."""
    fake = FakeNvml(tmp_path / "lib", [FakeCard("GPU-a"), FakeCard("GPU-b", used=8 << 30)])
    reading = await reader(fake.build())
    await reading.read()
    fake.cards[0].lost = True
    fake.say()
    seen = await reading.read()
    assert (seen["GPU-a"]["empty"], seen["GPU-a"]["used_bytes"]) == (None, None)
    assert "fallen off the bus" in seen["GPU-a"]["sick"]
    assert seen["GPU-b"]["empty"] is False
    assert await reading.end() == 0


async def test_without_a_driver_nothing_is_told_until_there_is_one(tmp_path: Path) -> None:
    """Also when the driver goes while it is read: that is a failure, and no GPU is said to be gone."""
    fake = FakeNvml(tmp_path / "lib", [FakeCard("GPU-a")], driver=False)
    reading = await reader(fake.build())
    assert await reading.read() is None
    fake.driver = True
    fake.say()
    assert list(await reading.read()) == ["GPU-a"]
    fake.driver = False
    fake.say()
    assert "the driver's library says" in await reading.read()
    assert await reading.read() is None
    fake.driver = True
    fake.say()
    assert list(await reading.read()) == ["GPU-a"]
    assert await reading.end() == 0


async def test_without_the_library_nothing_is_told(tmp_path: Path) -> None:
    """As on a machine without a GPU."""
    reading = await reader({"LD_LIBRARY_PATH": str(tmp_path)})
    assert await reading.read() is None
    assert await reading.end() == 0
