"""The operations on weights: what nodes tell of theirs, and what people ask of this one."""

from __future__ import annotations

from http import HTTPStatus
from typing import TypeVar

from aiohttp import web
from pydantic import ValidationError

from deploy.api import queries
from deploy.api.board import Board
from deploy.api.problem import ProblemError, refuse, unknown
from deploy.api.shapes import FieldProblem, Shape
from deploy.api.weight_ports import NodeWeights
from deploy.api.weightshapes import (
    BlobBody,
    CacheContent,
    CacheFetch,
    CacheItem,
    CacheList,
    CacheMetadata,
    CacheStatus,
    CacheWarmth,
    Collected,
    FetchBody,
    Fetching,
    HaveBody,
    Having,
    Held,
    HolderBody,
    NameBody,
    Named,
    PinBody,
    Prewarmed,
    Verified,
)
from events.envelope import AnyEnvelope
from events.types.caches import CacheObserved
from events.units import format_instant

B = TypeVar("B", bound=Shape)


class Caches:
    """The newest state of each node's weights."""

    def __init__(self) -> None:
        self._nodes: dict[str, CacheObserved] = {}

    def apply(self, envelope: AnyEnvelope) -> None:
        """Take in what happened."""
        if isinstance(envelope.data, CacheObserved):
            self._nodes[envelope.data.node] = envelope.data

    def all(self) -> list[CacheObserved]:
        """By node."""
        return [self._nodes[name] for name in sorted(self._nodes)]


class NoWeights:
    """For a process that looks after no node's weights."""

    async def fetch(self, wanted: FetchBody) -> Fetching:  # noqa: ARG002 - the port's shape
        """See `NodeWeights`."""
        raise _elsewhere()

    async def have(self, wanted: HaveBody) -> Having:  # noqa: ARG002 - as above
        """See `NodeWeights`."""
        raise _elsewhere()

    async def hold(self, holder: str, *, held: bool) -> Held:  # noqa: ARG002 - as above
        """See `NodeWeights`."""
        raise _elsewhere()

    async def prewarm(self, model: str) -> str:  # noqa: ARG002 - as above
        """See `NodeWeights`."""
        raise _elsewhere()

    async def pin(self, name: str, *, pinned: bool) -> str:  # noqa: ARG002 - as above
        """See `NodeWeights`."""
        raise _elsewhere()

    async def evict(self, name: str) -> str:  # noqa: ARG002 - as above
        """See `NodeWeights`."""
        raise _elsewhere()

    async def verify(self, digest: str) -> bool:  # noqa: ARG002 - as above
        """See `NodeWeights`."""
        raise _elsewhere()

    async def collect(self) -> Collected:
        """See `NodeWeights`."""
        raise _elsewhere()


def _elsewhere() -> ProblemError:
    return refuse(
        HTTPStatus.MISDIRECTED_REQUEST, "not-here", "this process looks after no weights",
        remedy="ask the relume agent or cluster of the node: give --admin its admin port",
    )  # fmt: skip


class Weights:
    """List, fetch, prewarm, pin, evict."""

    def __init__(self, caches: Caches, weights: NodeWeights, board: Board) -> None:
        self._caches = caches
        self._weights = weights
        self._board = board

    async def list_caches(self, request: web.Request) -> CacheList:
        """What all nodes tell."""
        queries.check_known(request, ())
        return CacheList(items=[_item(one) for one in self._caches.all()])

    async def prewarm_model(self, request: web.Request) -> Prewarmed:
        """Count on a model's weights."""
        queries.check_known(request, ())
        name = request.match_info["name"]
        model = self._board.owner(name)
        if model is None:
            raise unknown("model", name, self._board.names())
        return Prewarmed(model=model, source=await self._weights.prewarm(model))

    async def fetch_weights(self, request: web.Request) -> Fetching:
        """Begin or join a fetch."""
        return await self._weights.fetch(await _body(request, FetchBody))

    async def have_weights(self, request: web.Request) -> Having:
        """Have them for a holder."""
        return await self._weights.have(await _body(request, HaveBody))

    async def hold_weights(self, request: web.Request) -> Held:
        """Keep a holder's, or no longer."""
        body = await _body(request, HolderBody)
        return await self._weights.hold(body.holder, held=body.held)

    async def pin_weights(self, request: web.Request) -> Named:
        """Pin or unpin."""
        body = await _body(request, PinBody)
        return Named(digest=await self._weights.pin(body.name, pinned=body.pinned))

    async def evict_weights(self, request: web.Request) -> Named:
        """Take out."""
        return Named(digest=await self._weights.evict((await _body(request, NameBody)).name))

    async def verify_blob(self, request: web.Request) -> Verified:
        """Read it anew."""
        body = await _body(request, BlobBody)
        return Verified(digest=body.digest, right=await self._weights.verify(body.digest))

    async def collect_weights(self, request: web.Request) -> Collected:
        """Clear leftovers."""
        queries.check_known(request, ())
        return await self._weights.collect()


async def _body(request: web.Request, shape: type[B]) -> B:
    queries.check_known(request, ())
    try:
        return shape.model_validate_json(await request.read())
    except ValidationError as error:
        fields = [
            FieldProblem(path=".".join(map(str, one["loc"])), rule=one["msg"], remedy="see /openapi.json")
            for one in error.errors(include_url=False, include_input=False)
        ]
        raise refuse(
            HTTPStatus.UNPROCESSABLE_ENTITY, "refused", "the body does not say which weights", fields=fields
        ) from error


def _item(told: CacheObserved) -> CacheItem:
    return CacheItem(
        metadata=CacheMetadata(name=told.node),
        status=CacheStatus(
            used_bytes=told.used_bytes, capacity_bytes=told.capacity_bytes, network=told.network, disk=told.disk,
            digest=told.digest, untold=told.untold,
            contents=[
                CacheContent(
                    source=one.source, digest=one.digest, bytes=one.bytes, models=list(one.models), pinned=one.pinned,
                    in_use=one.in_use, fetched_at=None if one.fetched_at is None else format_instant(one.fetched_at),
                )
                for one in told.contents
            ],
            fetching=[
                CacheFetch(
                    source=one.source, bytes=one.bytes, done=one.done, rate=one.rate, why=one.why, waiting=one.waiting
                )
                for one in told.fetching
            ],
            models=[
                CacheWarmth(model=one.model, tier=one.tier, bytes=one.bytes, seconds=one.seconds)
                for one in told.models
            ],
        ),
    )  # fmt: skip
