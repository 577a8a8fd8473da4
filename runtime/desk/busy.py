"""Asks engines how many requests they run, but only while a slot settles.

Two forms of answer are understood: llama.cpp's ``/slots``, a JSON list with ``is_processing`` in each entry, and a JSON
object with ``running``, such as the simulated engine's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import aiohttp
import orjson

from events.clock import Clock
from events.units import Instant, Seconds
from runtime.core.ledger import Poll

logger = logging.getLogger(__name__)

ANSWER_WITHIN = Seconds(1.0)
"""An engine that takes longer to tell its count is asked anew."""

OFTEN = Seconds(0.1)
RARELY = Seconds(0.5)
ROUNDS_OFTEN = 30
"""Asked ten times a second for three seconds (a cancelled stream is done in 0.1 s), then twice a second."""

AT_ONCE = 32
"""Engines asked at the same time."""

LONGEST_ANSWER = 1 << 20
"""Bytes: llama.cpp tells much about each slot, its prompt too."""

Tell = Callable[[Poll, int, Instant], None]
"""Called with whom was asked, its count, and when it was asked."""


def parse_running(answer: bytes) -> int | None:
    """How many requests the engine runs, or None when the answer does not say."""
    try:
        parsed = orjson.loads(answer)
    except orjson.JSONDecodeError:
        return None
    if isinstance(parsed, list) and all(isinstance(slot, dict) and "is_processing" in slot for slot in parsed):
        return sum(bool(slot["is_processing"]) for slot in parsed)
    running = parsed.get("running") if isinstance(parsed, dict) else None
    return running if isinstance(running, int) and not isinstance(running, bool) and running >= 0 else None


class BusyPoller:
    """Asks all of `polls()` in rounds until there are none, then sleeps until it is woken."""

    def __init__(self, clock: Clock, polls: Callable[[], Sequence[Poll]], tell: Tell) -> None:
        self._clock = clock
        self._polls = polls
        self._tell = tell
        self._woken = asyncio.Event()
        self._places = asyncio.Semaphore(AT_ONCE)
        self.asked = 0
        self.unanswered = 0
        """Questions without a usable answer."""

    def wake(self) -> None:
        """There may be somebody to ask."""
        self._woken.set()

    async def run(self) -> None:
        """Until cancelled."""
        timeout = aiohttp.ClientTimeout(total=ANSWER_WITHIN)
        while True:
            await self._woken.wait()
            self._woken.clear()
            if self._polls():
                async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
                    await self._rounds(session)

    async def _rounds(self, session: aiohttp.ClientSession) -> None:
        rounds = 0
        while polls := self._polls():
            rounds += 1
            next_at = Instant(self._clock.now() + (OFTEN if rounds <= ROUNDS_OFTEN else RARELY))
            await asyncio.gather(*(self._ask(session, poll) for poll in polls))
            await self._clock.sleep_until(next_at)
            if self._woken.is_set():  # another slot settles: often again
                self._woken.clear()
                rounds = 0

    async def _ask(self, session: aiohttp.ClientSession, poll: Poll) -> None:
        async with self._places:
            asked_at = self._clock.now()
            self.asked += 1
            count = await self._count(session, poll)
        if count is None:
            self.unanswered += 1
        else:
            self._tell(poll, count, asked_at)

    async def _count(self, session: aiohttp.ClientSession, poll: Poll) -> int | None:
        host = f"[{poll.host}]" if ":" in poll.host else poll.host
        try:
            async with session.get(f"http://{host}:{poll.port}{poll.path}", allow_redirects=False) as response:
                if response.status != 200:
                    return None
                return parse_running(await response.content.read(LONGEST_ANSWER))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            logger.debug("%s does not tell how many requests it runs: %s", poll.replica, error)
            return None
