"""The node's agent: the one writer of its weights. Starts ask it for weights and get a path and a use.

However many ask for the same weights, one fetch runs, in threads; who leaves does not stop it. What somebody waits for
goes before what nobody waits for yet. A hit asks no source: of one address the newest version that is here counts,
until somebody fetches a newer one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from coldstart.adapters.sources import source_for
from coldstart.cache import holding, warming
from coldstart.cache.holding import Use
from coldstart.cache.layout import Layout
from coldstart.cache.manifests import read_manifest
from coldstart.cache.wanting import Got, Wanted
from coldstart.cache.weights import WeightCache
from coldstart.core.budget import Bandwidths, Tier, least_for_bytes
from coldstart.core.cache.errors import FolderTaken, NoSpace
from coldstart.core.cache.policy import FetchPolicy, RoomPolicy
from coldstart.core.cache.transfer import Transferred
from coldstart.core.networks import Networks, smooth
from coldstart.ports import Source
from deploy.local.flight import Flight, Pace, Why, Yielded
from deploy.local.keeping import Had, Listen, OtherAgent
from events.clock import Clock
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

TELL_EVERY: Final = 0.5
"""Seconds between two words on how a fetch gets on."""
TOGETHER: Final = 4
"""Fetches side by side, each with its connections and buffers (200 MiB at most). A choice."""
FOLDER_AGAIN: Final = Seconds(0.5)
IN_MEMORY: Final = 0.9
"""Share of a file's pages above which it counts as in memory. A choice: a few are always missing."""
HASHED: Final = 16 << 20
"""Bytes over which the digest's speed is measured once: some 15 ms."""
PREWARM_SHARE: Final = 0.5
"""Of the measured network, for fetches that nobody waits for (field note on cold starts, §4)."""
MEASURED: Final = 64 << 20
"""Bytes that must have been read for the disk's speed to be told from it. A choice: less is over in a blink."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Numbers of a node's agent. `prewarm_rate`: bytes a second of fetches that nobody waits for; None: half of the
    measured network."""

    fetching: FetchPolicy = field(default_factory=FetchPolicy)
    room: RoomPolicy = field(default_factory=RoomPolicy)
    prewarm_rate: float | None = None


@dataclass(frozen=True, slots=True)
class InFlight:
    """A fetch, for people: the address without secrets."""

    source: str
    why: Why
    waiting: int
    seen: Transferred


class Told(Protocol):
    """Hears what becomes of fetches."""

    def began(self, wanted: Wanted, source: str, why: Why) -> None:
        """Bytes will come."""

    def ended(self, wanted: Wanted, got: Got) -> None:
        """The weights are here. `got.hit`: they were."""

    def failed(self, wanted: Wanted, source: str, error: BaseException) -> None:
        """They are not."""


class Elsewhere(Protocol):
    """Agents of other nodes."""

    def first(self, digest: str | None, source: Source, flight: Flight) -> Source:
        """What to read instead of the source: other nodes first. Waits where one of them fetches the same already;
        blocks, in the flight's thread. Yielded: the flight was told to end."""


class _Silent:
    def began(self, wanted: Wanted, source: str, why: Why) -> None:
        """Nobody hears it."""

    def ended(self, wanted: Wanted, got: Got) -> None:
        """As above."""

    def failed(self, wanted: Wanted, source: str, error: BaseException) -> None:
        """As above."""


@contextlib.contextmanager
def _ours(_: Layout) -> Iterator[None]:
    """The agent is the folder's writer as long as it is open."""
    yield


class Agent:
    """The weights of one node. Used on one event loop; `open` it before anything is fetched."""

    def __init__(self, root: Path, settings: AgentSettings, clock: Clock) -> None:
        self.settings = settings
        self.cache = WeightCache(root, settings.fetching, settings.room, clock, _ours)
        self.told: Told = _Silent()
        self.elsewhere: OtherAgent | None = None
        """Who is asked while another process writes to the folder."""
        self.nodes: Elsewhere | None = None
        """Other nodes; None: none are known."""
        self.speeds = Bandwidths()
        self.networks = Networks()
        self._clock = clock
        self._flights: dict[Wanted, Flight] = {}
        self._alone: dict[str, threading.Lock] = {}
        """By what is fetched: asked for with and without a digest it is the same partial file."""
        self._turns = threading.BoundedSemaphore(TOGETHER)
        self._opened = threading.Event()
        self._open = contextlib.ExitStack()

    @property
    def layout(self) -> Layout:
        """Where everything lies."""
        return self.cache.layout

    @property
    def is_open(self) -> bool:
        """Whether the folder is this agent's."""
        return self._opened.is_set()

    async def open(self) -> None:
        """Become the folder's writer; waits while another process is (a `relume cache fetch`, another agent)."""
        told = False
        while True:
            try:
                self._open.enter_context(holding.writing(self.layout))
                break
            except FolderTaken as error:
                if not told:
                    logger.info("%s: weights are fetched once it has ended", error)
                told = True
            await self._clock.sleep_until(Instant(self._clock.now() + FOLDER_AGAIN))
        self._opened.set()
        self.speeds = replace(self.speeds, digest=await asyncio.to_thread(self._digest_speed))

    async def close(self) -> None:
        """Fetches end at their next chunk; what they verified is kept."""
        for flight in self._flights.values():
            flight.pace.end()
        running = [flight.done for flight in self._flights.values()]
        if running:
            await asyncio.wait(running, timeout=2 * self.settings.fetching.stall)
        self._opened.clear()
        self._open.close()

    # What starts ask.

    async def have(self, wanted: Wanted, listen: Listen) -> Had:
        """Weights for a start. `listen` hears twice a second how the fetch gets on.

        What is on the disk only is read into the page cache from now on, ahead of the engine. Raises a CacheError or an
        OSError.
        """
        looking = asyncio.ensure_future(asyncio.to_thread(self._there, wanted))
        try:
            there = await asyncio.shield(looking)
        except asyncio.CancelledError:
            looking.add_done_callback(_end_unasked)
            raise
        while there is None:
            if not self.is_open and self.elsewhere is not None and await self.elsewhere.fetch(wanted, listen):
                there = await asyncio.to_thread(self._there, wanted)
                continue
            with contextlib.suppress(Yielded):  # it was not for us that it ended
                there = await self._fetched(wanted, listen)
        return self._read_ahead(there) if there.tier is Tier.DISK else there

    def _there(self, wanted: Wanted) -> Had | None:
        got = self.hit(wanted)
        if got is None:
            return None
        share = warming.resident(got.path)
        return self._had(wanted, got, got.use, Tier.MEMORY if share is not None and share >= IN_MEMORY else Tier.DISK)

    def _had(self, wanted: Wanted, got: Got, use: Use, tier: Tier) -> Had:
        size = got.manifest.bytes
        return Had(got.path, use, size, tier, least_for_bytes(size, tier, self.speeds_of(wanted)))

    def _read_ahead(self, had: Had) -> Had:
        """It goes on in a thread of its own, as long as the disk takes. What is too small to measure a disk by takes no
        time that is worth a phase."""
        loop, read = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

        def work() -> None:
            try:
                self._warm(had)
            finally:
                with contextlib.suppress(RuntimeError):  # the loop has ended before
                    loop.call_soon_threadsafe(_set, read)

        threading.Thread(target=work, name="weights-warm", daemon=True).start()
        return replace(had, read=read) if had.bytes >= MEASURED else had

    def _warm(self, had: Had) -> None:
        began = self._clock.now()
        read = warming.warm(had.path, had.loaded)
        if read >= MEASURED:
            self._read_at(read / max(1e-6, self._clock.now() - began))

    def hit(self, wanted: Wanted) -> Got | None:
        """The weights if they are here, without asking their source. Blocking: it may read them anew after a reboot."""
        manifest = read_manifest(self.layout.manifest(wanted.identity))
        if manifest is None:
            return None
        known = wanted if wanted.digest is not None else replace(wanted, digest=manifest.digest)
        return self.cache.hit(known, self._source(wanted))

    async def _fetched(self, wanted: Wanted, listen: Listen) -> Had:
        flight = self.fly(wanted, Why.DEMAND)
        flight.waiting += 1
        try:
            listen(self._seen(flight))
            while not (await asyncio.wait({flight.done}, timeout=TELL_EVERY))[0]:
                listen(self._seen(flight))
            got = flight.done.result()
            use = holding.take_use(self.layout, got.manifest.snapshot)
            assert use is not None, "the flight holds a use until all who wait have theirs"
            return self._had(wanted, got, use, Tier.REMOTE)
        finally:
            flight.waiting -= 1
            self.land(flight)

    @staticmethod
    def _seen(flight: Flight) -> Transferred | None:
        seen = flight.pace.seen()
        return seen if flight.began else None

    # Fetches.

    def fly(self, wanted: Wanted, why: Why) -> Flight:
        """Begin a fetch, or join the one that runs. Raises UnsupportedSource."""
        flight = self._flights.get(wanted)
        if flight is None:
            source = self._source(wanted)
            pace = Pace(self._clock, self._prewarm_rate(wanted) if why is Why.PREWARM else None)
            flight = Flight(why, pace, self._alone.setdefault(wanted.identity, threading.Lock()))
            self._flights[wanted] = flight
            flight.done.add_done_callback(lambda _: self._ended(wanted, source, flight))
            if why is Why.DEMAND:
                self._hurry(flight)
            flight.run(lambda: self._fetch(wanted, source, flight), lambda: self._settle(wanted))
        elif why is Why.DEMAND:
            self._hurry(flight)
        return flight

    def _hurry(self, flight: Flight) -> None:
        flight.why = Why.DEMAND
        flight.pace.hurry()
        self._make_way(flight)

    def _prewarm_rate(self, wanted: Wanted) -> float | None:
        """Bytes a second; without a setting half of what the network was measured to give, and all until it was."""
        if self.settings.prewarm_rate is not None:
            return self.settings.prewarm_rate
        known = self.networks.of(wanted)
        return PREWARM_SHARE * known if known else None

    def stop(self, wanted: Wanted) -> None:
        """End a fetch that nobody waits for."""
        flight = self._flights.get(wanted)
        if flight is not None and not flight.waiting:
            flight.pace.end()

    def awaited(self, wanted: Wanted) -> bool:
        """Whether a start waits for their fetch."""
        flight = self._flights.get(wanted)
        return flight is not None and flight.waiting > 0

    def busy(self) -> bool:
        """Whether any start waits for a fetch."""
        return any(flight.waiting for flight in self._flights.values())

    def in_flight(self) -> tuple[InFlight, ...]:
        """All fetches that run or wait for their turn."""
        return tuple(
            InFlight(self._source(wanted).shown(), flight.why, flight.waiting, flight.pace.seen())
            for wanted, flight in self._flights.items()
        )

    def shown(self, wanted: Wanted) -> str:
        """The address without secrets."""
        return self._source(wanted).shown()

    def flying(self) -> frozenset[Wanted]:
        """What is being fetched."""
        return frozenset(self._flights)

    def seen(self, wanted: Wanted) -> Transferred | None:
        """How far a fetch is; None: it is not being fetched."""
        flight = self._flights.get(wanted)
        return None if flight is None else flight.pace.seen()

    def _make_way(self, urgent: Flight) -> None:
        """The others end within the time that it takes to hear it, and keep their room until then."""
        for flight in self._flights.values():
            if flight is not urgent and flight.why is Why.PREWARM and not flight.waiting and not flight.over.is_set():
                flight.pace.end()
                urgent.made_way = (*(one for one in urgent.made_way if one is not flight), flight)

    def _fetch(self, wanted: Wanted, source: Source, flight: Flight) -> Got:
        """In the flight's thread."""
        self._opened.wait()
        with flight.alone, self._turns:
            flight.pace.check()
            flight.began = True
            flight.told(lambda: self.told.began(wanted, source.shown(), flight.why))
            read = source if self.nodes is None else self.nodes.first(wanted.digest, source, flight)
            waited_for: set[Flight] = set()
            while True:
                try:
                    return self.cache.fetch(wanted, read, flight.pace)
                except NoSpace:
                    held = [one for one in flight.made_way if one.began and one not in waited_for]
                    if not held:
                        raise
                for one in held:
                    one.over.wait()  # then nobody holds its room
                    waited_for.add(one)

    def _settle(self, wanted: Wanted) -> None:
        try:
            self.cache.settle(wanted)
        except OSError as error:
            logger.warning("what was fetched could not be synced; it is read anew after a reboot: %s", error)

    def _ended(self, wanted: Wanted, source: Source, flight: Flight) -> None:
        if self._flights.get(wanted) is flight:
            del self._flights[wanted]
        if all(other.identity != wanted.identity for other in self._flights):
            self._alone.pop(wanted.identity, None)
        error = flight.done.exception()
        if error is not None:
            self.told.failed(wanted, source.shown(), error)
            return
        got = flight.done.result()
        self._came(wanted, got, flight)
        self.told.ended(wanted, got)
        self.land(flight)

    def land(self, flight: Flight) -> None:
        """The last of those who wait, or the flight itself where nobody does, ends its use."""
        if not flight.waiting and flight.done.done() and flight.done.exception() is None:
            flight.done.result().use.end()

    def _source(self, wanted: Wanted) -> Source:
        return source_for(wanted, self.settings.fetching, self._clock)

    # What it measures.

    def _came(self, wanted: Wanted, got: Got, flight: Flight) -> None:
        """What a fetch says of the network: nothing where it was held back, or is over in one answer."""
        if got.transferred >= self.settings.fetching.chunk_bytes and got.seconds > 0 and not flight.pace.held_back:
            self.networks.measured(wanted, got.transferred / got.seconds)
            self.speeds = replace(self.speeds, network=self.networks.all_together)

    def speeds_of(self, wanted: Wanted) -> Bandwidths:
        """The same with the network to where these weights come from."""
        return replace(self.speeds, network=self.networks.of(wanted))

    def _read_at(self, speed: float) -> None:
        self.speeds = replace(self.speeds, disk=smooth(self.speeds.disk, speed))

    def _digest_speed(self) -> float:
        content = bytes(HASHED)
        began = self._clock.now()
        hashlib.sha256(content).digest()
        return HASHED / max(1e-6, self._clock.now() - began)


def _set(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def _end_unasked(looking: asyncio.Future[Had | None]) -> None:
    """Who asked has left; what was found is nobody's."""
    had = None if looking.cancelled() or looking.exception() is not None else looking.result()
    if had is not None:
        had.end()
