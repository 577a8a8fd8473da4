"""A copy of a collection that follows the API server: list, watch, and list again when the past was forgotten.

Level-based: `changed` is told that an object is now so, or is gone; what happened in between does not matter. A
connection that breaks, an API server that restarts, bookmarks, throttling and 410 Gone end here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from deploy.kubernetes.api import ApiError, ApiUnavailable, KubeApi, VersionGone, pause
from deploy.kubernetes.resources import Json

logger = logging.getLogger(__name__)

PAGE: Final = 500
"""Objects of one answer to a list."""

Changed = Callable[[str, Json | None], None]
"""Takes an object's key (``NAMESPACE/NAME``, or its name) and what it is now; None: it is gone."""


@dataclass(slots=True)
class ReflectorStats:
    """Counts since the start."""

    lists: int = 0
    watches: int = 0
    broken: int = 0
    gone: int = 0


Keep = Callable[[Json], Json]
"""Gives what is kept of an object; its ``metadata.resourceVersion`` must be in it."""


class Reflector:
    """Follows one collection until cancelled. `selector` is a query such as ``labelSelector``. Who wrote which field
    (``managedFields``) is dropped: it is half of most objects, and nobody here asks."""

    def __init__(
        self, api: KubeApi, path: str, changed: Changed, selector: Mapping[str, str] | None = None,
        keep: Keep | None = None,
    ) -> None:  # fmt: skip
        self._api = api
        self._path = path
        self._changed = changed
        self._selector = dict(selector or {})
        self._version = ""
        self._keep = keep
        self.objects: dict[str, Json] = {}
        """What is there, by key; of each what is kept."""
        self.synced = asyncio.Event()
        """Set once it has been listed."""
        self.settled = asyncio.Event()
        """Set once it has been listed, or the API server has said that it is not there, or not for us (`refusal`)."""
        self.refusal = ""
        """Why it is not listed: the API server's own words; empty when it is, or when the server is away."""
        self.stats = ReflectorStats()

    async def run(self) -> None:
        """Follow. ApiError (forbidden, no such kind) is tried again too: permissions come and go."""
        tries = 0
        while True:
            try:
                if not self._version:
                    await self._list()
                tries = 0
                await self._watch()
            except VersionGone:
                self.stats.gone += 1
                self._version = ""
            except (ApiUnavailable, ApiError) as error:
                self.stats.broken += 1
                if isinstance(error, ApiError):
                    self.refusal = str(error)
                    self.settled.set()
                level = logging.INFO if tries == 0 else logging.WARNING
                logger.log(level, "%s cannot be followed now: %s", self._path, error)
                await pause(tries, error.after if isinstance(error, ApiUnavailable) else None)
                tries += 1

    async def _list(self) -> None:
        self.stats.lists += 1
        known = set(self.objects)  # what is made while we list may be missing in the answer, and is not gone
        asked = self._selector | {"limit": str(PAGE)}
        while True:
            page = await self._api.get(self._path, asked)
            kind = {"apiVersion": page["apiVersion"], "kind": str(page["kind"]).removesuffix("List")}
            for item in page["items"]:
                key = key_of(item)
                known.discard(key)
                if key not in self.objects or _version(self.objects[key]) != _version(item):
                    self._take(key, {**kind, **item})
            more = page["metadata"].get("continue", "")
            if not more:
                break
            asked = self._selector | {"limit": str(PAGE), "continue": more}
        for key in known:
            self._take(key, None)
        self._version = page["metadata"]["resourceVersion"]
        self.refusal = ""
        self.synced.set()
        self.settled.set()

    async def _watch(self) -> None:
        self.stats.watches += 1
        async for event in self._api.watch(self._path, self._selector | {"resourceVersion": self._version}):
            item = event["object"]
            self._version = _version(item)
            if event["type"] != "BOOKMARK":
                self._take(key_of(item), None if event["type"] == "DELETED" else item)

    def _take(self, key: str, item: Json | None) -> None:
        if item is None:
            self.objects.pop(key, None)
        else:
            item["metadata"].pop("managedFields", None)
            self.objects[key] = item if self._keep is None else self._keep(item)
        self._changed(key, item)


def key_of(item: Json) -> str:
    """``NAMESPACE/NAME``, or the name of what is in none."""
    metadata = item["metadata"]
    namespace = metadata.get("namespace", "")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def version_only(item: Json) -> Json:
    """Keeps nothing of an object: who follows has made of it what is needed."""
    return {"metadata": {"resourceVersion": _version(item)}}


def _version(item: Json) -> str:
    return str(item["metadata"].get("resourceVersion", ""))
