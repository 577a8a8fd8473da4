"""Carries a notice to one run, by the channels that its job declares.

File and HTTP are told again without harm, so they are told again whenever it is not sure that they were. A signal is
not: it is sent once a notice, after that was recorded, only to a trainer that catches it (for any other it would be the
end), and, where there is a better channel, only to one from which nothing was ever heard, so that has no SDK.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import aiohttp

from deploy.local.training.standing import Notices
from events.units import Instant, Seconds
from preemption.core.training import Channel, CheckpointPolicy
from preemption.trainer.notice import Mode, Notice

logger = logging.getLogger(__name__)

ONE_POST: Final = 2.0
"""Seconds for an answer of the SDK, which has a thread for that."""
POST_AGAIN: Final = Seconds(1.0)
TAKEN: Final = frozenset({200, 409})
"""Answers after which telling again means nothing: heard, and of an older epoch than it knows."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a trainer takes notices over HTTP."""

    host: str
    port: int
    token: str


class Poster(Protocol):
    """Speaks HTTP to trainers."""

    async def post(self, to: Address, body: str) -> int | None:
        """The status of the answer; None when there was none."""


class HttpPoster:
    """One client for all runs. Close it."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=ONE_POST),
            trust_env=False,
        )

    async def post(self, to: Address, body: str) -> int | None:
        """See `Poster`."""
        headers = {"Authorization": f"Bearer {to.token}", "Content-Type": "application/json"}
        try:
            async with self._session.post(f"http://{to.host}:{to.port}/notice", data=body, headers=headers) as answer:
                return answer.status
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None  # it does not listen (yet)

    async def close(self) -> None:
        """Close its connections."""
        await self._session.close()


class Notifier(Notices):
    """The notices of one run. `give` and `withdraw` say what stands; `deliver` does what is still to be done."""

    def __init__(self, how: CheckpointPolicy, file: Path, address: Address | None, poster: Poster) -> None:
        super().__init__()
        self.address = address
        """Where it takes notices over HTTP, once that is known."""
        self._how = how
        self._file = file
        self._poster = poster
        self._written = ""
        self._posted = ""
        self._post_at = Instant(0.0)
        self._signalled = ""
        self.sent: set[int] = set()
        """Signals that it has sent."""

    def remember(self, notice: str) -> None:
        """An earlier relume has told of this one: no signal is sent for it again."""
        self._signalled = notice

    def resume(self, notice: str) -> None:
        """It holds, as far as is known."""
        super().resume(notice)
        self.remember(notice)
        assert self._stands is not None  # it was just told
        self._written = self._posted = self._stands.encode()

    async def deliver(self, pids: Collection[int], now: Instant, *, silent: bool) -> None:
        """Tell what has not been told. `silent`: nothing was ever heard from this run."""
        notice = self._stands
        if notice is None:
            return
        wire = notice.encode()
        channels = self._how.channels
        if Channel.FILE in channels and self._written != wire and await asyncio.to_thread(_write, self._file, wire):
            self._written = wire
        if Channel.HTTP in channels and self._posted != wire and now >= self._post_at and self.address is not None:
            self._post_at = Instant(now + POST_AGAIN)
            if await self._poster.post(self.address, wire) in TAKEN:
                self._posted = wire
        if Channel.SIGNAL in channels and (silent or set(channels) == {Channel.SIGNAL}):
            self._signal(notice, pids)

    def _signal(self, notice: Notice, pids: Collection[int]) -> None:
        """To the members' own processes: what they have started (workers that load data) did not ask for it."""
        if notice.mode is Mode.WITHDRAWN or self._signalled == notice.id:
            return
        number = signal.Signals[self._how.signal]
        caught = [pid for pid in pids if catches(pid, number)]
        if not caught:
            return  # it may not have come so far yet
        self._signalled = notice.id
        self.sent.add(number)
        for pid in caught:
            try:
                os.kill(pid, number)
            except OSError as error:  # it ended meanwhile
                logger.debug("pid %d was not sent %s: %s", pid, number.name, error)


def catches(pid: int, number: int) -> bool:
    """Whether a process handles or ignores a signal (proc_pid_status(5)); elsewhere than on Linux nobody can tell."""
    if sys.platform != "linux":
        return True
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    masks = (line.split()[1] for line in text.splitlines() if line.startswith(("SigCgt:", "SigIgn:")))
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


def _write(path: Path, text: str) -> bool:
    """Whole, by rename. False: not now (the disk is full, say)."""
    partial = path.with_suffix(".partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        logger.warning("the notice %s cannot be written: %s", path, error)
        return False
    return True
