"""The agent of this node that is another process: asked to fetch, through its admin port."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import aiohttp

from coldstart.cache.wanting import Wanted
from coldstart.core.cache.errors import CacheError
from coldstart.core.cache.transfer import Transferred
from deploy.local.keeping import Listen
from events.clock import Clock
from events.units import Bytes

PLACES: Final = ("agent/endpoints.json", "endpoints.json")
"""Where it says where it listens, in the data folder."""
BOUND: Final = 30.0
"""Seconds for one answer, which takes five while a fetch goes on."""


class AgentSays(CacheError):
    """What the other agent says of a fetch that failed."""

    def __init__(self, words: str, remedy: str) -> None:
        super().__init__(words)
        self.remedy = remedy


class AgentElsewhere:
    """Fulfils `deploy.local.keeping.OtherAgent`. `token`: of its admin port, where one is set."""

    def __init__(self, data_dir: Path, token: str | None, clock: Clock) -> None:
        self._data_dir = data_dir
        self._token = token
        self._clock = clock

    async def fetch(self, wanted: Wanted, listen: Listen) -> bool:
        """See the port."""
        url = await asyncio.to_thread(self._url)
        if url is None:
            return False
        access = wanted.access
        body = {
            "uri": wanted.address, "digest": wanted.digest, "include": wanted.include, "exclude": wanted.exclude,
            "credentials": access.credentials, "headers": dict(access.headers), "endpoint": access.endpoint,
            "region": access.region,
        }  # fmt: skip
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        timeout = aiohttp.ClientTimeout(total=BOUND)
        try:
            async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
                while True:
                    async with session.post(f"{url}/v1alpha1/cache/fetch", json=body) as answer:
                        told = await answer.json(content_type=None)
                    if self._heard(answer.status, told, listen):
                        return True
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return False

    def _heard(self, status: int, told: dict[str, Any], listen: Listen) -> bool:
        """Whether the weights are here."""
        if status >= 300:
            raise AgentSays(f"the node's agent: {told.get('detail', status)}", str(told.get("remedy", "")))
        if told["path"]:
            return True
        listen(Transferred(Bytes(told["bytes"]), Bytes(told["done"]), told["rate"], self._clock.now()))
        return False

    def _url(self) -> str | None:
        for place in PLACES:
            try:
                told = json.loads((self._data_dir / place).read_text(encoding="utf-8"))
                return str(told["admin"])
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return None
