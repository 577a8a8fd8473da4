"""A program that appends to a log until it is killed, and says of each event once it is acknowledged.

``python -m tests.support.append_forever PATH NAME``: one line an event on standard output.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from events.adapters.sqlite import SqliteEventLog
from events.clock import SystemClock
from events.types.phases import ReplicaDrained
from events.writer import EventWriter


async def append_forever(path: Path, name: str) -> None:
    """Appends from several tasks, one to three events at a time, so that transactions hold several appends."""
    clock = SystemClock()
    log = SqliteEventLog(path, clock)
    await log.open()
    writer = EventWriter(f"relume/{name}", clock)

    async def one(task: int) -> None:
        number = 0
        while True:
            batch = [
                writer.envelope(ReplicaDrained(model=f"m{task}", replica=f"{name}.{task}.{number + step}"))
                for step in range(1 + number % 3)
            ]
            number += len(batch)
            await log.append(batch)
            acknowledged = "".join(f"{event.data.replica}\n" for event in batch)
            os.write(sys.stdout.fileno(), acknowledged.encode())

    await asyncio.gather(*(one(task) for task in range(4)))


if __name__ == "__main__":
    asyncio.run(append_forever(Path(sys.argv[1]), sys.argv[2]))
