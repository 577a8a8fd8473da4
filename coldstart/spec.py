"""The cold start's slice of the declaration: the promise, the hold queue, heartbeats, where the weights are."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from coldstart.core.cache.content import check_address, check_digest
from coldstart.core.cache.wanted import Access, DeclaredWeights, Wanted
from coldstart.core.policy import ColdStartPolicy, HoldPolicy, SleepPolicy
from events.spec import Duration, Quantity, Spec
from events.units import Bytes, Seconds


class HoldSpec(Spec):
    """Bounds of the hold queue: requests that wait for a slot."""

    max_requests: Annotated[int, Field(ge=0, le=1_000_000)] = 1000
    """Most requests that wait; one more gets 429."""
    max_bytes: Annotated[Quantity, Field(ge=0)] = 64 << 20
    """Most bytes of their bodies together."""
    max_wait: Duration = 300.0
    """Longest wait for a slot, from arrival; after it the request gets 504."""


class SleepSpec(Spec):
    """Replicas that are not wanted any more sleep before they end, where the engine can and the node has memory for it
    (`--sleep-memory`)."""

    level: Literal[1, 2] = 1
    """1: the weights stay in host memory. 2: they are read again when it wakes, and little memory is kept."""
    keep_alive: Annotated[Duration, Field(gt=0)] = 1800.0
    """How long one sleeps before it ends."""

    def resolve(self) -> SleepPolicy:
        """Plain numbers."""
        return SleepPolicy(self.level, Seconds(self.keep_alive))


class ColdStartSpec(Spec):
    """What a request that finds no replica may expect."""

    sla: Annotated[Duration, Field(gt=0)] = 3.0
    """The promise: arrival to first byte when the model has to start."""
    hold: HoldSpec = HoldSpec()
    """Bounds of the hold queue."""
    heartbeat: Annotated[Duration, Field(gt=0)] | None = None
    """Send held streams an SSE comment this often (phase and ETA); commits the status 200. Absent: never."""

    sleep: SleepSpec | None = None
    """How replicas sleep between ready and gone. Absent: they end at once."""

    def resolve(self) -> ColdStartPolicy:
        """Plain numbers."""
        return ColdStartPolicy(
            sla=Seconds(self.sla),
            hold=HoldPolicy(
                max_requests=self.hold.max_requests,
                max_bytes=Bytes(self.hold.max_bytes),
                max_wait=Seconds(self.hold.max_wait),
            ),
            heartbeat=None if self.heartbeat is None else Seconds(self.heartbeat),
            sleep=None if self.sleep is None else self.sleep.resolve(),
        )


Reference = Annotated[str, Field(pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:/.+)$", max_length=1024)]
"""Where a secret is, never the secret itself: `env:NAME` or `file:/path`."""

Patterns = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=1024)], ...], Field(max_length=64)]


class FetchedSpec(Spec):
    """Weights at an address, and how they are come by."""

    uri: Annotated[str, Field(min_length=1), AfterValidator(check_address)]
    """What the engine loads: a local path or `file://` URI, used where it lies, or a remote address (`https://`, `s3://`,
    `gs://`, `az://`, `hf://ORG/NAME@REVISION`, `oci://REGISTRY/NAME:TAG`), which the node's weight cache fetches and
    verifies first. A folder, a prefix, a repository or an artifact is fetched with all its files."""
    digest: Annotated[str, AfterValidator(check_digest)] | None = None
    """`sha256:` and 64 hexadecimal digits that the content must have. With it, a hit asks nobody."""
    include: Patterns = ()
    """Which of several files, by patterns such as `*.safetensors`; absent: all. `*` crosses `/`, case counts."""
    exclude: Patterns = ()
    """Which of them not."""
    credentials: Annotated[str, Field(pattern=r"^(none|env:[A-Za-z_][A-Za-z0-9_]*|file:/.+)$")] | None = None
    """Where the node finds the secret: `env:NAME` or `file:/path`; `none`: a public bucket. Absent: the usual
    environment variables of the store or hub. HTTP: the value of the Authorization header; S3: `KEY:SECRET[:TOKEN]`;
    Azure: `ACCOUNT:KEY`; GCS: the JSON of a service account; Hugging Face: the token; OCI: `USER:PASSWORD`."""
    headers: Annotated[dict[str, Reference], Field(max_length=16, default_factory=dict)]
    """Of HTTP requests: name, and where its value is (`env:NAME`, `file:/path`)."""
    endpoint: Annotated[str, Field(pattern=r"^https?://[^@]+$")] | None = None
    """Where the store or hub is, if not where it usually is."""
    region: Annotated[str, Field(min_length=1)] | None = None
    """Of an S3 bucket."""

    def resolve(self) -> Wanted:
        """What the cache is asked for."""
        access = Access(self.credentials, tuple(sorted(self.headers.items())), self.endpoint, self.region)
        return Wanted(self.uri, self.digest, self.include, self.exclude, access)


class AdapterSpec(FetchedSpec):
    """A LoRA adapter of the model: fetched beside it, with a snapshot of its own."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$")]
    """How requests and the engine call it."""


class WeightsSpec(FetchedSpec):
    """Where the model's weights are."""

    cache: bool | None = None
    """Whether they go through the node's weight cache. Absent: remote addresses do, local files do not."""
    adapters: Annotated[tuple[AdapterSpec, ...], Field(max_length=256)] = ()
    """LoRA adapters; each name once."""

    @field_validator("adapters")
    @classmethod
    def _names_once(cls, adapters: tuple[AdapterSpec, ...]) -> tuple[AdapterSpec, ...]:
        twice = sorted(name for name, times in Counter(adapter.name for adapter in adapters).items() if times > 1)
        if twice:
            raise ValueError(f"the name {twice[0]} is there twice; give each adapter a name of its own")
        return adapters

    def resolve_all(self) -> DeclaredWeights:
        """All that is fetched for the model."""
        named = tuple((adapter.name, adapter.resolve()) for adapter in self.adapters)
        return DeclaredWeights(self.resolve(), self.cache, named)
