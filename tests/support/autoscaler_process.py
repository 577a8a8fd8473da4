"""An autoscaler on Kafka as a process: ``python -m tests.support.autoscaler_process HOST:PORT OWNER PARTITIONS``.

It says ``ready`` once it has started. SIGTERM lets it leave in order.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from autoscaler.loop import Autoscaler
from autoscaler.settings import AutoscalerSettings
from events.adapters.kafka.log import KafkaEventLog
from events.adapters.kafka.settings import KafkaSettings
from events.clock import SystemClock
from events.units import Seconds
from events.writer import EventWriter

SESSION = 2.0
"""Seconds after which a process that is silent is dead to its group: shorter than the default, for tests."""


async def main(address: str, owner: str, partitions: int) -> None:
    """Decide until SIGTERM."""
    clock, stop = SystemClock(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = KafkaSettings(
        (address,), partitions=partitions, session_timeout=Seconds(SESSION), heartbeat=Seconds(0.3),
        request_timeout=Seconds(5.0), tend=False,
    )  # fmt: skip
    async with KafkaEventLog(settings, clock) as log:
        writer = EventWriter(f"relume/autoscaler/{owner}", clock)
        autoscaler = Autoscaler(log, clock, writer, AutoscalerSettings(owner=owner))
        await autoscaler.start()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        waiting = {asyncio.create_task(stop.wait()), asyncio.create_task(autoscaler.wait())}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        await autoscaler.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
