"""The Kafka log when its broker dies, freezes, stays away."""

from __future__ import annotations

import asyncio
import random
import re
import threading
import time
from collections import Counter

import pytest

from events.adapters.kafka.log import KafkaEventLog
from events.clock import SystemClock
from events.envelope import AnyEnvelope
from events.log import LogUnavailable, Start, Subscription
from events.names import Topic
from events.units import Seconds
from tests.support.events import Teller
from tests.support.kafka_broker import Broker
from tests.support.kafka_logs import LEAKS, Collector, kafka_log, quick_settings
from tests.support.stalls import longest_stall, own

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]

PHASES, GATEWAYS = str(Topic.PHASES), str(Topic.GATEWAYS)

STALL_MOST = 0.1
"""Seconds: nobody who waits for a token would see it."""


TRUNK = Counter({"relume-kafka-trunk": 1, "kafka-io-relume": 1})
"""Begins with the first subscription that has all there was, which may be after a test has counted; its client too."""


async def append_stubbornly(log: KafkaEventLog, events: list[AnyEnvelope]) -> None:
    """As the roles do: the same events again until the log has them."""
    while True:
        try:
            await log.append(events)
        except LogUnavailable:
            await asyncio.sleep(0.1)
        else:
            return


async def test_kill_9_loses_nothing_and_applies_nothing_twice(broker: Broker) -> None:
    """Killed twice while four writers append and a follower and a group read: every acknowledged event is there, and
    the follower has each once, in the order in which its writer wrote it."""
    async with kafka_log(broker, append_timeout=Seconds(5.0)) as log:
        follower = Collector(log.subscribe([GATEWAYS], Start("beginning")))
        group = Collector(log.subscribe([GATEWAYS], Start("beginning"), "workers"))
        acknowledged: set[str] = set()
        done = asyncio.Event()

        async def write(name: str) -> None:
            tell, number = Teller(SystemClock(), f"relume/{name}"), 0
            while not done.is_set():
                events = [tell.beat(name, boot=str(number + n)) for n in range(5)]
                number += 5
                await append_stubbornly(log, events)
                acknowledged.update(f"{event.source}/{event.id}" for event in events)
                await asyncio.sleep(0.01)  # some hundred events a second are enough, and leave the cores to others

        writers = [asyncio.create_task(write(f"w{n}")) for n in range(4)]
        for _ in range(2):
            await asyncio.sleep(random.Random(7).uniform(0.5, 1.0))
            before = len(acknowledged)
            broker.kill()
            await asyncio.sleep(0.5)
            await asyncio.to_thread(broker.start)
            async with asyncio.timeout(60):
                while len(acknowledged) < before + 100:  # noqa: ASYNC110 - it happens in the other tasks
                    await asyncio.sleep(0.05)
        done.set()
        await asyncio.gather(*writers)
        await _until_told(follower, acknowledged)
        await _until_told(group, acknowledged)
        told = [f"{record.envelope.source}/{record.envelope.id}" for record in follower.records]
        assert len(told) == len(set(told)), "delivered twice"
        for name in ("w0", "w1", "w2", "w3"):
            boots = [int(r.envelope.data.boot) for r in follower.records if r.envelope.data.gateway == name]
            assert boots == sorted(boots)
        await follower.close()
        await group.close()


async def _until_told(collector: Collector, wanted: set[str]) -> None:
    async with asyncio.timeout(60):
        while not wanted <= {f"{r.envelope.source}/{r.envelope.id}" for r in collector.records}:  # noqa: ASYNC110 - another task collects
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_the_loop_is_never_blocked(broker: Broker, how: str) -> None:
    """While the broker is gone, or accepts and says nothing, and while it comes back, offers, appends, subscriptions
    and reads stop nothing else. Every stall counts that a thread beside the loop does not have too."""
    async with kafka_log(broker, append_timeout=Seconds(0.5)) as log:
        tell = Teller(SystemClock())
        follower = Collector(log.subscribe([PHASES], Start("end")))
        await append_stubbornly(log, [tell.drained()])
        broker.kill() if how == "killed" else broker.freeze()
        for _ in range(3):
            using = asyncio.create_task(_use(log, tell))
            stall = await longest_stall(2.0)
            await using
            assert stall < STALL_MOST
        back = asyncio.create_task(asyncio.to_thread(broker.revive))
        assert await longest_stall(2.0) < STALL_MOST
        await back
        event = tell.drained()
        await append_stubbornly(log, [event])
        await follower.until({event.id})
        await follower.close()


def test_a_blocked_loop_would_be_seen() -> None:
    """The measurement can fail: a call that blocks is its own; what both miss is not."""

    async def blocked() -> float:
        measuring = asyncio.create_task(longest_stall(0.6))
        await asyncio.sleep(0.1)
        time.sleep(0.3)  # noqa: ASYNC251 - that is the fault
        return await measuring

    assert asyncio.run(blocked()) > STALL_MOST
    assert own((1.0, 3.0), [(0.5, 2.0), (2.5, 2.75)]) == 0.75
    assert own((1.0, 3.0), [(0.5, 2.0), (2.5, 2.75)], waited=0.5) == 0.25


async def _use(log: KafkaEventLog, tell: Teller) -> None:
    async def append() -> None:
        with pytest.raises(LogUnavailable):
            await log.append([tell.drained()])

    async def follow() -> None:
        subscription: Subscription = log.subscribe([GATEWAYS], Start("newest_per_key"))
        await asyncio.sleep(0.5)
        await subscription.close()

    async def offer() -> None:
        for _ in range(200):
            log.offer(tell.drained())
            log.stats()
            await asyncio.sleep(0.005)

    await asyncio.gather(offer(), follow(), *(append() for _ in range(20)))


def _client_threads() -> Counter[str]:
    """Threads by what they do; those of asyncio's own pool are left out: they are kept for the next call, by design."""
    names = (re.sub(r"\d+", "N", thread.name) for thread in threading.enumerate())
    return Counter(name for name in names if not name.startswith("asyncio_"))


async def test_away_for_a_while(broker: Broker) -> None:
    """Offers are kept up to their bound, what is beyond is dropped and counted, and all goes on by itself."""
    async with kafka_log(broker, offer_bound=500, append_timeout=Seconds(1.0)) as log:
        tell = Teller(SystemClock())
        follower = Collector(log.subscribe([PHASES], Start("end")))
        await follower.caught_up.wait()
        threads = _client_threads()
        broker.kill()
        taken = [event.id for event in (tell.drained() for _ in range(800)) if log.offer(event)]
        assert len(taken) == 500
        with pytest.raises(LogUnavailable):
            await log.append([tell.drained()])
        async with asyncio.timeout(20):
            while not log.trouble:  # noqa: ASYNC110 - it is told by other threads
                await asyncio.sleep(0.1)
        assert (log.stats().dropped, log.stats().offered) == (300, 500)
        await asyncio.to_thread(broker.start)
        await follower.until(set(taken))
        event = tell.drained()
        await append_stubbornly(log, [event])
        await follower.until({event.id})
        offered = [ident for ident in follower.ids if ident in set(taken)]
        assert offered == taken, "in order, each once"
        assert (log.stats().queue_depth, log.trouble) == (0, "")
        left = _client_threads() - threads - TRUNK
        assert not left, f"clients that could not connect left threads behind: {left}"
        await follower.close()


async def test_away_for_longer_than_a_delivery_may_take(broker: Broker) -> None:
    """kafka-python's producer is stuck after that; it is made anew, and what was offered arrives, each once."""
    async with kafka_log(
        broker, delivery_timeout=Seconds(2.0), request_timeout=Seconds(1.0), append_timeout=Seconds(1.0)
    ) as log:
        tell = Teller(SystemClock())
        follower = Collector(log.subscribe([PHASES], Start("end")))
        await follower.caught_up.wait()
        await append_stubbornly(log, [tell.drained()])
        broker.freeze()  # requests stand in its socket, and are carried out when it goes on
        taken = {event.id for event in (tell.drained() for _ in range(50)) if log.offer(event)}
        async with asyncio.timeout(60):
            while not log.stats().producers_remade:  # noqa: ASYNC110 - it happens in the producer's thread
                await asyncio.sleep(0.1)
        broker.revive()
        await follower.until(taken)
        event = tell.drained()
        await append_stubbornly(log, [event])
        await follower.until({event.id})
        assert len(follower.ids) == len(set(follower.ids))
        await follower.close()


async def test_opened_without_a_broker(broker: Broker) -> None:
    """Opening says who does not answer, within its bound."""
    broker.stop()
    with pytest.raises(LogUnavailable, match=broker.address):
        async with kafka_log(broker, open_timeout=Seconds(1.0)):
            raise AssertionError("it must not open")


async def test_many_find_no_topics_at_the_same_moment(broker: Broker) -> None:
    """Each would make them with another number of partitions: the first one's stands for all, and each log opens."""
    logs = [
        KafkaEventLog(quick_settings(broker, partitions=count, tend=False), SystemClock()) for count in (2, 3, 5, 7)
    ]
    try:
        await asyncio.gather(*(log.open() for log in logs))
        assert len({tuple(sorted(log._partitions.items())) for log in logs}) == 1
        assert len(set(logs[0]._partitions.values())) == 1
        tell = Teller(SystemClock(), "relume/a")
        follower = Collector(logs[3].subscribe([GATEWAYS], Start("beginning")))
        beats = [tell.beat(f"g{n}") for n in range(20)]
        await logs[0].append(beats)
        await follower.until({beat.id for beat in beats})
        await follower.close()
    finally:
        await asyncio.gather(*(log.close() for log in logs))
