"""Clients of parts that run as processes of their own, and a model that stays warm under them."""

from __future__ import annotations

import asyncio

import aiohttp

from tests.support.parts import PartProcess, Parts
from tests.support.running import simulated

WARM = "startTime: 200ms, timeToFirstToken: 20ms, interTokenLatency: 2ms"


class Traffic:
    """Clients that ask one after the other as long as they are told to. `failed`: what was not answered with 200."""

    def __init__(self, parts: Parts, gateway: PartProcess, clients: int = 2, model: str = "echo") -> None:
        self.answered = 0
        self.failed: list[str] = []
        self._stop = asyncio.Event()
        self._parts, self._gateway, self._model = parts, gateway, model
        self._clients = [asyncio.create_task(self._client()) for _ in range(clients)]

    async def _client(self) -> None:
        while not self._stop.is_set():
            try:
                answer = await self._parts.chat(self._gateway, self._model)
            except aiohttp.ClientError as error:
                self.failed.append(repr(error))
                await asyncio.sleep(0.05)
                continue
            self.answered += answer.status == 200
            if answer.status != 200:
                self.failed.append(f"{answer.status}: {(await answer.text())[:200]}")
                await asyncio.sleep(0.05)

    async def some(self, more: int = 40) -> None:
        """Return when so many more were answered."""
        wanted = self.answered + more
        async with asyncio.timeout(40):
            while self.answered < wanted:  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._clients)


async def warm(parts: Parts, declaring: PartProcess, gateway: PartProcess) -> None:
    """A warm model that stays warm, and grows with more than two requests a replica at a time."""
    document = simulated(keepAlive="120s", maxReplicas=2, options=WARM, extra="  slots: 2")
    assert (await parts.apply(declaring, document))[0] == 200
    await parts.listed(gateway)
    assert (await parts.chat(gateway)).status == 200


async def pids(parts: Parts, part: PartProcess) -> set[int]:
    """The engines that serve, as the log says."""
    items = (await parts.ask(part, "/v1alpha1/replicas"))["items"]
    return {one["status"]["pid"] for one in items if one["status"]["state"] == "Ready"}
