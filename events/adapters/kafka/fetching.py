"""Fetching without waits that nothing calls for: what kafka-python 3.0.12 leaves to chance.

A poll takes what has come, sends for more where nothing is under way, and waits. What comes after the taking and before
the sending is overlooked twice. The poll waits, for its whole time, for the fetch that it has just sent, though records
lie there. And a partition with records that nobody took is left out of that fetch, which a broker holds back for half a
second (`fetch_max_wait_ms`) if the others are quiet: so long the partition's next records wait too. The same befalls a
partition that has more records than one poll may give.

So nothing is sent for before all that came was taken, and what came ends the poll.
"""

from __future__ import annotations

from kafka import KafkaConsumer
from kafka.consumer.fetcher import Fetcher
from kafka.future import Future


class PromptFetcher(Fetcher):  # type: ignore[misc]  # kafka-python has no types
    """See the module."""

    async def _send_fetches_async(self) -> list[Future]:
        """Runs in the client's IO thread, as what puts answers there does: nothing comes meanwhile."""
        if not self._completed_fetches and not self._next_partition_records:
            sent: list[Future] = await super()._send_fetches_async()
            return sent
        await self._clean_done_fetch_futures()
        self._fetch_futures.append(Future().success(None))  # who waits for one of these looks at once
        return []


def prompt(consumer: KafkaConsumer) -> KafkaConsumer:
    """The consumer, with such a fetcher."""
    consumer._fetcher.__class__ = PromptFetcher  # noqa: SLF001 - kafka-python takes no fetcher from outside
    return consumer
