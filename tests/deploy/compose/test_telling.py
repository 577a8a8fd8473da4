"""What a whole relume tells the admin port about its roles."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from deploy.compose.roles import Role, make
from deploy.compose.telling import PartsReadings
from deploy.local.folder import open_folder
from deploy.settings.settings import load_settings
from events.adapters.memory import MemoryEventLog
from events.clock import SystemClock


async def test_the_numbers_can_be_read_before_anything_has_started(tmp_path: Path) -> None:
    """The admin port answers first: a scrape while the rest still starts gets zeros, not an error."""
    settings = load_settings({"events": "memory:", "data_dir": str(tmp_path)})
    clock = SystemClock()
    async with MemoryEventLog(clock) as log:
        with closing(open_folder(tmp_path)) as folder:
            made = make(Role.ALL, settings, log, clock, folder)
            readings = list(PartsReadings(log, made.parts).read())
    assert {reading.name.split("_")[0] for reading in readings} == {
        "log", "desk", "gateway", "inference", "autoscaler", "allocator", "cluster", "signals",
        "training", "weights",
    }  # fmt: skip
    assert not any(reading.value for reading in readings)
