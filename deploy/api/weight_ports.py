"""What the admin API needs of who looks after a node's weights."""

from __future__ import annotations

from typing import Protocol

from deploy.api.weightshapes import Collected, FetchBody, Fetching, HaveBody, Having, Held


class NodeWeights(Protocol):
    """The weights of the node that this process looks after. All raise ProblemError for what cannot be done."""

    async def fetch(self, wanted: FetchBody) -> Fetching:
        """Begin to fetch weights, or join; how far it has come, after some seconds at the latest."""

    async def have(self, wanted: HaveBody) -> Having:
        """Have weights here for a holder, fetched if need be; a hit asks no source. Answers after some seconds."""

    async def hold(self, holder: str, *, held: bool) -> Held:
        """Keep what a holder has for another hour, or no longer."""

    async def prewarm(self, model: str) -> str:
        """Have a model's weights here ahead of demand; their address without secrets, empty: they are not fetched."""

    async def pin(self, name: str, *, pinned: bool) -> str:
        """Keep weights, or keep them no longer; their digest."""

    async def evict(self, name: str) -> str:
        """Take weights out; their digest."""

    async def verify(self, digest: str) -> bool:
        """Read a blob anew, and put it aside where it is not what it should be; whether it was right."""

    async def collect(self) -> Collected:
        """Clear leftovers, and go below the low watermark."""
