"""The JSON shapes of the answers about weights and cold starts."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from deploy.api.shapes import Shape

HOLDER_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._/:-]{0,511}$"


class FetchBody(Shape):
    """Weights to have on this node."""

    uri: Annotated[str, Field(min_length=1, max_length=4096)]
    """Where they are."""
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")] | None = None
    """What they must be."""
    include: tuple[str, ...] = ()
    """Which of several files; empty: all."""
    exclude: tuple[str, ...] = ()
    """Which not."""
    credentials: str | None = None
    """Where this node finds the secret: env:NAME or file:/path."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Of HTTP requests: name, and where its value is."""
    endpoint: str | None = None
    """Where the store or hub is, if not where it usually is."""
    region: str | None = None
    """Of the store."""


class Fetching(Shape):
    """How far a fetch has come. With a `path` it is over."""

    source: str
    """The address without secrets."""
    bytes: int
    done: int
    rate: float | None
    """Bytes a second; null: not yet known."""
    path: str = ""
    digest: str = ""
    hit: bool = False
    """They were here before."""
    seconds: float | None = None


class HaveBody(FetchBody):
    """Weights that somebody is to be given who cannot hold them himself, such as a pod."""

    holder: Annotated[str, Field(pattern=HOLDER_PATTERN)]
    """Who holds them: a name of the asker's own choice."""


class HolderBody(Shape):
    """One who holds weights."""

    holder: Annotated[str, Field(pattern=HOLDER_PATTERN)]
    held: bool = True
    """For another hour, or not any more."""


class Having(Shape):
    """Weights for a holder. Without a `snapshot` they are on their way: ask again."""

    source: str
    """The address without secrets."""
    bytes: int = 0
    done: int = 0
    rate: float | None = None
    """Bytes a second; null: not yet known."""
    snapshot: str = ""
    """The folder with the files, within the cache's folder."""
    file: str = ""
    """The file in it that an engine is given; empty: the folder."""
    tier: str = ""
    """Where they were when they were asked for: memory, disk or remote."""
    least_seconds: float | None = None
    """What bringing them takes at least, by what this node has measured; null: unknown."""


class Held(Shape):
    """A holder, and until when its weights are held; null: not any more."""

    holder: str
    until: str | None


class NameBody(Shape):
    """Weights that are here, by address, digest or the beginning of one."""

    name: Annotated[str, Field(min_length=1, max_length=4096)]


class PinBody(NameBody):
    """Keep them, or not any more."""

    pinned: bool = True


class Named(Shape):
    """What was meant."""

    digest: str


class BlobBody(Shape):
    """A file's content."""

    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class Verified(Shape):
    """Whether a blob is what it should be. One that is not was put aside. One that is gone is right."""

    digest: str
    right: bool


class Collected(Shape):
    """What was cleared. `evicted`: digests; `partials`, `orphans`: how many; `bytes`: that the cache takes less."""

    evicted: list[str]
    partials: int
    orphans: int
    bytes: int


class Prewarmed(Shape):
    """A model whose weights this node now counts on. `source` empty: its weights do not go through the cache."""

    model: str
    source: str


class CacheMetadata(Shape):
    """Whose cache it is."""

    name: str
    """The node."""


class CacheContent(Shape):
    """Weights that are there."""

    source: str
    digest: str
    bytes: int
    models: list[str]
    pinned: bool
    in_use: bool
    fetched_at: str | None


class CacheFetch(Shape):
    """Weights on their way. `why`: demand or prewarm."""

    source: str
    bytes: int
    done: int
    rate: float | None
    why: str
    waiting: int


class CacheWarmth(Shape):
    """How far a model is from its first token there. `seconds` null: a part of it was never seen."""

    model: str
    tier: str
    bytes: int | None
    seconds: float | None


class CacheStatus(Shape):
    """The weights of a node."""

    used_bytes: int
    capacity_bytes: int
    network: float | None
    """Bytes a second as measured; null: not yet."""
    disk: float | None
    digest: float | None
    contents: list[CacheContent]
    fetching: list[CacheFetch]
    models: list[CacheWarmth]
    untold: int
    """Contents beyond the most that are told."""


class CacheItem(Shape):
    """A node with its weights."""

    metadata: CacheMetadata
    status: CacheStatus


class CacheList(Shape):
    """All nodes that tell of weights."""

    items: list[CacheItem]


class PhaseQuantiles(Shape):
    """Seconds of one phase, half and 95 of 100 of the starts."""

    phase: str
    p50: float
    p95: float


class ColdStartItem(Shape):
    """The cold starts of one model. `possible`: those that could have kept the promise; null-judged ones count as
    `unjudged`. `missed_by`: how often which phase cost most of a missed promise."""

    model: str
    sla_seconds: float
    starts: int
    met: int
    missed: int
    impossible: int
    unjudged: int
    missed_by: dict[str, int]
    tiers: dict[str, int]
    """Where the weights were; empty name: they do not go through the cache."""
    p50: float
    p95: float
    least_seconds: float | None
    """The least that the newest start could have taken."""
    phases: list[PhaseQuantiles]


class ColdStartReport(Shape):
    """Cold starts that the log still tells of."""

    since: str | None
    items: list[ColdStartItem]
