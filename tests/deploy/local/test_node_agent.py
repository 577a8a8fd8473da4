"""The node's agent by itself: who is fetched ahead, what is told, what is cleared, what a rotten bit leads to."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from coldstart.cache import inventory
from coldstart.cache.wanting import Wanted
from coldstart.core.cache.errors import NoSpace, Pinned
from coldstart.core.cache.policy import RoomPolicy
from deploy.local.agent import Agent, AgentSettings
from deploy.local.agent_telling import AGAIN_EVERY, Teller
from deploy.local.flight import Why
from deploy.local.keeping import Listen
from deploy.local.node_agent import NodeAgent, NodeSettings
from events.adapters.memory import MemoryEventLog
from events.clock import SystemClock
from events.log import Query
from events.names import Topic
from events.types.caches import CacheObserved, WeightsEvicted, WeightsFailed, WeightsFetched, WeightsFetchStarted
from events.types.models import ModelDeclared
from events.types.requests import RequestWindow
from events.units import Bytes, Instant
from events.writer import EventWriter
from preemption.core.view import Locality
from tests.support.flaky_origin import Origin, served
from tests.support.weights_stage import CHUNK, QUICK, content

PATIENCE = 20.0


class World:
    """An agent on a folder and a log, and a hand that declares and asks."""

    def __init__(self, folder: Path, settings: AgentSettings) -> None:
        self.clock = SystemClock()
        self.log = MemoryEventLog(self.clock)
        self.writer = EventWriter("relume/test", self.clock)
        self.node = NodeAgent(folder, NodeSettings("n1", settings, scrub_rate=0.0), self.log, self.clock)

    async def say(self, data: object) -> None:
        """Append an event."""
        await self.log.append([self.writer.envelope(data)])

    async def declare(self, model: str, uri: str, least: int = 0, **rest: object) -> None:
        """A model with its weights at an address."""
        spec = {
            "engine": {"type": "simulated"}, "weights": {"uri": uri}, "slots": 4, "scaling": {"minReplicas": least},
        }  # fmt: skip
        fields = {"uid": model, "revision": 1, "generation": 1, **rest}
        await self.say(ModelDeclared(model=model, spec=spec, **fields))  # type: ignore[arg-type]  # tests pass what fits

    async def ask(self, model: str, times: int = 10) -> None:
        """So many requests for it."""
        now = self.clock.now()
        await self.say(
            RequestWindow(model=model, uid=model, revision=1, gateway="g", started_at=now, ended_at=now, arrivals=times)
        )

    def here(self) -> dict[str, bool]:
        """What is in the cache by address, and whether it is in use or pinned."""
        there = inventory.cached(self.node.agent.layout)
        return {one.manifests[0].source: one.in_use or one.pinned for one in there}

    async def until(self, holds: Callable[[], bool]) -> None:
        """Until it is so."""
        async with asyncio.timeout(PATIENCE):
            while not holds():  # noqa: ASYNC110 - threads of the agent make it so
                await asyncio.sleep(0.02)

    async def news(self) -> list[object]:
        """What was told of weights on relume.phases."""
        kinds = (WeightsEvicted, WeightsFailed, WeightsFetched, WeightsFetchStarted)
        told = [record.envelope.data async for record in self.log.read(Query(Topic.PHASES))]
        return [one for one in told if isinstance(one, kinds)]

    async def told(self) -> CacheObserved | None:
        """The newest state of relume.caches."""
        async for record in self.log.read(Query(Topic.CACHES, newest_per_key=True)):
            assert record.envelope.key == "node/n1"
            state: CacheObserved = record.envelope.data
            return state
        return None


@asynccontextmanager
async def world(folder: Path, room: RoomPolicy | None = None, rate: float | None = None) -> AsyncIterator[World]:
    """A started agent."""
    settings = AgentSettings(fetching=QUICK, room=RoomPolicy() if room is None else room, prewarm_rate=rate)
    made = World(folder / "weights", settings)
    await made.node.start()
    try:
        await made.until(lambda: made.node.agent.is_open)
        yield made
    finally:
        await made.node.stop()
        await made.log.close()


async def test_who_is_counted_on_is_fetched_ahead_and_told(tmp_path: Path) -> None:
    """A model that never goes to zero has its weights here before any start; state and news say so, with models."""
    with served(Origin(content(4))) as origin:
        async with world(tmp_path) as one:
            await one.declare("always", origin.url, least=1)
            await one.until(lambda: origin.url in one.here())
            told: list[CacheObserved] = []

            async def with_content() -> bool:
                state = await one.told()
                told[:] = [] if state is None else [state]
                return bool(told and told[0].contents and not told[0].fetching)

            async with asyncio.timeout(PATIENCE):
                while not await with_content():  # noqa: ASYNC110 - it is read from the log
                    await asyncio.sleep(0.05)
            assert [(each.source, each.models) for each in told[0].contents] == [(origin.url, ("always",))]
            assert told[0].models[0].model == "always"
            assert told[0].models[0].tier in ("memory", "disk")
            assert told[0].used_bytes >= len(origin.content)
            begun, ended = await one.news()
            assert isinstance(begun, WeightsFetchStarted)
            assert (begun.why, begun.models) == ("prewarm", ("always",))
            assert isinstance(ended, WeightsFetched)
            assert (ended.bytes, ended.transferred) == (len(origin.content), len(origin.content))


async def test_who_is_asked_for_is_fetched_and_who_is_not_is_not(tmp_path: Path) -> None:
    """Recent demand is enough; a declaration alone is not, until somebody asks for it to be prewarmed."""
    with served(Origin(content(2))) as asked, served(Origin(content(2, seed=7))) as quiet:
        async with world(tmp_path) as one:
            await one.declare("asked", asked.url)
            await one.declare("quiet", quiet.url)
            await one.ask("asked")
            await one.until(lambda: asked.url in one.here())
            assert quiet.data_requests == 0
            one.node.prewarm("quiet")
            await one.until(lambda: quiet.url in one.here())


async def test_a_new_revision_is_fetched_while_the_old_one_serves(tmp_path: Path) -> None:
    """When a declaration names other weights they come in the background, and the old ones stay where they are."""
    with served(Origin(content(2))) as old, served(Origin(content(2, seed=7))) as new:
        async with world(tmp_path) as one:
            await one.declare("model", old.url, least=1)
            await one.until(lambda: old.url in one.here())
            await one.declare("model", new.url, least=1, revision=2, generation=2)
            await one.until(lambda: new.url in one.here())
            assert old.url in one.here()


async def test_the_more_wanted_takes_the_place_and_the_pinned_stays(tmp_path: Path) -> None:
    """Below the high watermark: what is asked for more takes the place of what is asked for less, never a pin's."""
    room = RoomPolicy(capacity=Bytes(9 * CHUNK))  # 85 % of it: two of three chunks and a piece
    with (
        served(Origin(content(3))) as little, served(Origin(content(3, seed=7))) as much,
        served(Origin(content(3, seed=8))) as pinned,
    ):  # fmt: skip
        async with world(tmp_path, room) as one:
            await one.declare("pinned", pinned.url)
            await one.ask("pinned", 1)
            await one.until(lambda: pinned.url in one.here())
            await one.node.pin(pinned.url, True)
            await one.declare("little", little.url)
            await one.ask("little", 2)
            await one.until(lambda: little.url in one.here())
            await one.declare("much", much.url)
            await one.ask("much", 60)
            await one.until(lambda: much.url in one.here())
            assert set(one.here()) == {pinned.url, much.url}
            with pytest.raises(Pinned):
                await one.node.evict(pinned.url)


async def test_a_start_goes_before_prewarming(tmp_path: Path) -> None:
    """A fetch that a start waits for ends one that nobody waits for, which then goes on with what it has."""
    with served(Origin(content(60))) as slow, served(Origin(content(2, seed=7))) as urgent:
        async with world(tmp_path, rate=1 << 20) as one:
            await one.declare("slow", slow.url, least=1)
            await one.until(lambda: slow.sent > 4 * CHUNK)
            had = await one.node.agent.have(Wanted(urgent.url), lambda _: None)
            assert had.bytes == len(urgent.content)
            assert slow.url not in one.here()
            had.end()
            one.node.agent.settings = replace(one.node.agent.settings, prewarm_rate=None)
            await one.until(lambda: slow.url in one.here())
            assert slow.sent <= len(slow.content) + 20 * CHUNK
            failed = [each for each in await one.news() if isinstance(each, WeightsFailed)]
            assert [each.reason for each in failed] == ["Yielded"]


async def test_a_demand_that_joins_hurries(tmp_path: Path) -> None:
    """A start that needs what is being prewarmed joins that fetch, which is not slowed down any more."""
    with served(Origin(content(60))) as origin:
        async with world(tmp_path, rate=float(CHUNK)) as one:  # a minute at this rate
            await one.declare("model", origin.url, least=1)
            await one.until(lambda: origin.sent > 0)
            async with asyncio.timeout(PATIENCE):
                had = await one.node.agent.have(Wanted(origin.url), lambda _: None)
            had.end()
            assert origin.sent <= len(origin.content) + 20 * CHUNK


async def test_with_and_without_a_digest_it_is_one_fetch(tmp_path: Path) -> None:
    """The same address, asked for with a digest and without one at once: one after the other; the second is a hit."""
    with served(Origin(content(40))) as origin:
        digest = f"sha256:{hashlib.sha256(origin.content).hexdigest()}"
        async with world(tmp_path) as one:
            agent = one.node.agent
            both = [agent.have(Wanted(origin.url, known), lambda _: None) for known in (None, digest)]
            for had in await asyncio.gather(*both):
                assert had.path.read_bytes() == origin.content
                had.end()
            assert origin.sent == len(origin.content)


async def test_failures_are_told_and_not_repeated_at_once(tmp_path: Path) -> None:
    """What cannot be fetched ahead is told once, and tried again a minute later at the earliest."""
    with served(Origin(content(20))) as origin:
        async with world(tmp_path, RoomPolicy(capacity=Bytes(5 * CHUNK))) as one:
            flight = one.node.agent.fly(Wanted(origin.url), Why.PREWARM)
            await asyncio.wait({flight.done})
            assert type(flight.done.exception()).__name__ == "TooLarge"
            await one.declare("large", origin.url, least=1)
            await one.node.prewarmer.once()
            await one.node.prewarmer.once()
            assert one.node.prewarmer.decided.fetch == ()
            assert origin.data_requests == 0
            told = [each for each in await one.news() if isinstance(each, WeightsFailed)]
            assert [each.reason for each in told] == ["TooLarge"]


async def test_a_rotten_bit_is_found_and_only_that_blob_is_fetched_anew(tmp_path: Path) -> None:
    """Scrubbing finds one flipped bit, puts that blob aside, tells, and has it anew; the other is not touched."""
    with served(Origin(content(3))) as rotten, served(Origin(content(3, seed=7))) as sound:
        async with world(tmp_path) as one:
            for model, origin in (("rotten", rotten), ("sound", sound)):
                await one.declare(model, origin.url, least=1)
            await one.until(lambda: {rotten.url, sound.url} <= set(one.here()))
            layout = one.node.agent.layout
            blob = layout.blob(inventory.named(layout, rotten.url).digest)
            _flip(blob)
            requests = sound.data_requests
            one.node.tender._rate = 1e9
            await one.node.tender.scrub_once()
            assert one.node.tender.quarantined == 1
            assert len(list(layout.quarantine.iterdir())) == 1
            await one.until(lambda: blob.exists() and blob.read_bytes() == rotten.content)
            assert sound.data_requests == requests


async def test_scrubbing_goes_on_where_it_was(tmp_path: Path) -> None:
    """The next round begins behind the blob that was read last, also after a restart."""
    with served(Origin(content(1))) as first, served(Origin(content(1, seed=7))) as second:
        async with world(tmp_path) as one:
            for origin in (first, second):
                (await one.node.agent.have(Wanted(origin.url), lambda _: None)).end()
            one.node.tender._rate = 1e9
            await one.node.tender.scrub_once()
            digests = sorted(each.digest for each in inventory.cached(one.node.agent.layout))
            assert (one.node.agent.layout.root / "scrubbed").read_text() == digests[-1]
            assert one.node.stats().scrubbed_bytes == len(first.content) + len(second.content)


async def test_a_person_has_a_blob_read_anew_and_leftovers_cleared(tmp_path: Path) -> None:
    """What `relume cache verify` and `gc` ask while the agent is the folder's writer: only what is wrong is put aside,
    and fetched anew for who counts on it; room is made down to the low watermark."""
    with served(Origin(content(2))) as origin, served(Origin(content(4, seed=7))) as other:
        async with world(tmp_path, RoomPolicy(capacity=Bytes(6 * CHUNK + 30_000), high=0.5, low=0.1)) as one:
            await one.node.agent.fly(Wanted(other.url), Why.DEMAND).done
            (there,) = inventory.cached(one.node.agent.layout)
            assert await one.node.verify(there.digest)
            _flip(one.node.agent.layout.blob(there.digest))
            assert not await one.node.verify(there.digest)
            assert one.here() == {}
            assert one.node.stats().quarantined == 1
            assert await one.node.verify(there.digest), "what is gone is nobody's fault"
            (one.node.agent.layout.quarantine / there.digest.removeprefix("sha256:")).unlink()
            await one.node.agent.fly(Wanted(origin.url), Why.DEMAND).done
            await one.until(lambda: one.here() == {origin.url: False})
            assert (await one.node.collect()).evicted == ()
            await one.node.agent.fly(Wanted(other.url), Why.DEMAND).done
            await one.until(lambda: set(one.here().values()) == {False})
            assert len((await one.node.collect()).evicted) == 2


async def test_leftovers_are_cleared(tmp_path: Path) -> None:
    """Half-written small files go after an hour; those that may still be written stay."""
    async with world(tmp_path) as one:
        layout = one.node.agent.layout
        old, new = layout.manifests / ".x.json.1", layout.heat / ".y.2"
        for path in (old, new):
            path.write_bytes(b"half")
        os.utime(old, (1_000_000, 1_000_000))
        one.node.tender.clear_once()
        assert (old.exists(), new.exists()) == (False, True)


async def test_full_disk_is_an_answer(tmp_path: Path) -> None:
    """Two fetches side by side are promised different room: the second is refused with the numbers, not half done."""
    with served(Origin(content(6))) as first, served(Origin(content(6, seed=7))) as second:
        first.open_gate.clear()
        async with world(tmp_path, RoomPolicy(capacity=Bytes(10 * CHUNK))) as one:
            running = one.node.agent.fly(Wanted(first.url), Why.DEMAND)
            await one.until(lambda: first.data_requests > 0)
            with pytest.raises(NoSpace):
                await one.node.agent.have(Wanted(second.url), lambda _: None)
            first.open_gate.set()
            assert (await running.done).manifest.bytes == len(first.content)


class _Asked:
    """Plays the way to the agent that is another process."""

    def __init__(self, other: Agent) -> None:
        self.other = other

    async def fetch(self, wanted: Wanted, listen: Listen) -> bool:
        (await self.other.have(wanted, listen)).end()
        return True


async def test_who_is_not_the_writer_has_the_writer_fetch(tmp_path: Path) -> None:
    """While another process writes to the folder it is asked; once it has ended this one takes over and fetches."""
    with served(Origin(content(3))) as first, served(Origin(content(3, seed=7))) as second:
        standby = Agent(tmp_path / "weights", AgentSettings(fetching=QUICK), SystemClock())
        async with world(tmp_path) as one:
            standby.elsewhere = _Asked(one.node.agent)
            opening = asyncio.create_task(standby.open())
            (await standby.have(Wanted(first.url), lambda _: None)).end()
            assert first.sent == len(first.content)
            assert not standby.is_open
        await asyncio.wait_for(opening, PATIENCE)
        (await standby.have(Wanted(second.url), lambda _: None)).end()
        await standby.close()
        assert second.sent == len(second.content)


def _flip(path: Path) -> None:
    """One bit in the middle; the time of change stays what it was, as when a disk rots."""
    told = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(told.st_size // 2)
        byte = file.read(1)[0]
        file.seek(told.st_size // 2)
        file.write(bytes([byte ^ 1]))
    path.chmod(0o444)
    os.utime(path, ns=(told.st_atime_ns, told.st_mtime_ns))


async def test_a_new_revision_is_fetched_and_told_while_the_old_one_serves(tmp_path: Path) -> None:
    """What places replicas sees whose weights are meant, and when they are here: a rollout that must drain waits."""
    with served(Origin(content(2))) as old, served(Origin(content(2, seed=7))) as new:
        async with world(tmp_path) as one:
            await one.declare("m", old.url, least=1)
            await one.until(lambda: old.url in one.here())
            await one.declare("m", new.url, least=1, revision=2, generation=2)
            await one.until(lambda: new.url in one.here())
            assert old.url in one.here()
            told: list[tuple[int, str]] = []
            async with asyncio.timeout(PATIENCE):
                while not told or told[-1][0] != 2 or told[-1][1] == "remote":
                    told = [
                        (record.envelope.data.models[0].revision, record.envelope.data.models[0].tier)
                        async for record in one.log.read(Query(Topic.CACHES))
                        if record.envelope.data.models
                    ]
                    await asyncio.sleep(0.05)
            assert [revision for revision, _ in told] == sorted(revision for revision, _ in told)


async def test_what_a_start_would_have_to_fetch_is_told(tmp_path: Path) -> None:
    """Nothing while the weights are here; all of them once they are gone, though nobody asks the source again."""
    with served(Origin(content(2))) as origin:
        async with world(tmp_path) as one:
            await one.declare("m", origin.url, least=1)
            await one.until(lambda: origin.url in one.here())
            await one.declare("m", origin.url, generation=2)
            missing: dict[str, int | None] = {}
            async with asyncio.timeout(PATIENCE):
                while missing.get("remote") != len(content(2)) or ("disk" not in missing and "memory" not in missing):
                    state = await one.told()
                    if state is not None and state.models:
                        missing[state.models[0].tier] = state.models[0].missing
                        if state.models[0].tier != "remote" and origin.url in one.here():
                            await one.node.evict(origin.url)
                    await asyncio.sleep(0.05)
            assert {value for tier, value in missing.items() if tier != "remote"} == {0}


class Still(Teller):
    """A node on which nothing happens, not even to the space that others leave on its disk."""

    async def _state(self) -> CacheObserved:
        return CacheObserved(node="n1", used_bytes=1, capacity_bytes=2)


async def test_a_state_that_stays_is_told_again_each_minute(tmp_path: Path) -> None:
    """So that who reads it can tell an agent with nothing new from one that is gone."""
    one = World(tmp_path / "weights", AgentSettings())
    teller = Still(one.node.agent, one.node.view, one.log, one.writer, "n1")

    async def told(after: float) -> int:
        await teller.tell(Instant(1000.0 + after))
        return len([record async for record in one.log.read(Query(Topic.CACHES))])

    assert [await told(after) for after in (0.0, 1.0, AGAIN_EVERY - 1, AGAIN_EVERY, AGAIN_EVERY + 1)] == [1, 1, 1, 2, 2]
    assert Locality().stale >= 3 * AGAIN_EVERY
    await one.log.close()
