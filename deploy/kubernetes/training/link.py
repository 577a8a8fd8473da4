"""What passes between relume and a trainer in a pod: notices to it, reports from it, over its SDK's own HTTP port.

So nobody in a pod needs rights in the cluster, and relume needs none to hear it. What a trainer said last also stands
in its container's termination message, for the end comes faster than the next question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import aiohttp

from deploy.local.training.notifying import ONE_POST, Address, HttpPoster
from deploy.local.training.report import LONGEST_LINE
from deploy.local.training.story import Saved
from events.types.training import CheckpointStatus
from preemption.trainer.channels.http import SAID

Words = tuple[bytes, int]
"""Reports, and how many there were so far."""


class TrainerLink:
    """One client for all runs. Close it."""

    def __init__(self) -> None:
        self.poster = HttpPoster()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=ONE_POST),
            trust_env=False,
        )

    async def reports(self, at: Address, after: int) -> Words | None:
        """The reports after so many; None when it does not answer (yet, or any more)."""
        url = f"http://{_host(at.host)}:{at.port}/reports?after={after}"
        headers = {"Authorization": f"Bearer {at.token}"} if at.token else {}
        try:
            async with self._session.get(url, headers=headers) as answer:
                said = answer.headers.get(SAID, "")
                if answer.status != 200 or not said.isdigit():
                    return None
                return await answer.read(), int(said)
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None

    async def close(self) -> None:
        """Close its connections."""
        await self._session.close()
        await self.poster.close()


class PodLines:
    """The reports of one run. `address` is where its rank 0 is asked, once known; `left` is its termination message."""

    def __init__(self, link: TrainerLink, address: Callable[[], Address | None], left: Callable[[], str]) -> None:
        self._link = link
        self._address = address
        self._left = left
        self._heard = 0

    async def read(self) -> Sequence[bytes]:
        """See `deploy.local.training.hearing.Lines`."""
        address = self._address()
        words = None if address is None else await self._link.reports(address, self._heard)
        if words is None:
            return ()
        text, self._heard = words
        return _lines(text)

    async def read_last(self) -> Sequence[bytes]:
        """See there. Repeats what was heard before, which changes nothing."""
        return _lines(self._left().encode())


async def believed(saved: Saved) -> CheckpointStatus:
    """A checkpoint as its trainer tells it. relume does not see the volume: that it is whole says the SDK, which tells
    of one only when its files are durable, listed with their digests, and marked. Without a manifest it is a bare
    word."""
    return CheckpointStatus(
        step=saved.step, at=saved.at, path=saved.path, manifest=saved.manifest, size=saved.size, seconds=saved.seconds,
        verified=bool(saved.manifest),
    )  # fmt: skip


def _lines(text: bytes) -> list[bytes]:
    return [line for line in text.split(b"\n") if line.strip() and len(line) <= LONGEST_LINE]


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
