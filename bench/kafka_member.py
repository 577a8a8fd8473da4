"""`python -m bench.kafka_member SERVER IDENTITY`: be a member of the group `bench`, say so, and stay until killed."""

from __future__ import annotations

import asyncio
import sys

from events.adapters.kafka.log import KafkaEventLog
from events.adapters.kafka.settings import KafkaSettings
from events.clock import SystemClock
from events.log import Start
from events.names import Topic
from events.units import Seconds

GROUP = "bench"


def settings_of(server: str, identity: str = "") -> KafkaSettings:
    """As they come, for topics that are there."""
    return KafkaSettings(
        (server,), create_topics=False, tend=False, open_timeout=Seconds(60.0), identity=lambda: identity
    )


async def main(server: str, identity: str) -> None:
    """Print how many partitions are held, each time that changes."""
    async with KafkaEventLog(settings_of(server, identity), SystemClock()) as log:
        held: set[int] = set()
        async for batch in log.subscribe((Topic.MODELS,), Start("end"), GROUP):
            held = held - {place for _, place in batch.revoked} | {place for _, place in batch.assigned}
            if batch.assigned or batch.revoked:
                print(len(held), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
