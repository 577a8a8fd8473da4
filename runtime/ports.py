"""What the runtime's parts need of each other and of the world.

The data port (`runtime.gateway`) relays bytes and asks `Slots` who may run where. The desk (`runtime.desk`) is the
`Slots` of one process: it holds the slot authority and speaks events. Engines (`runtime.adapters`) say how to start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from events.names import ModelName, ReplicaName
from events.units import Instant, Seconds
from runtime.core.policy import Cancels, Heartbeat, Timeouts
from runtime.core.records import Record


class RefusalCode(StrEnum):
    """Why a request got no slot; `runtime.gateway.errors` maps each to a status and an OpenAI error object."""

    UNKNOWN_MODEL = "model_not_found"  # 404
    QUEUE_FULL = "hold_queue_full"  # 429 + Retry-After
    IMPOSSIBLE = "cannot_start_in_time"  # 503 + Retry-After: known before its deadline that it cannot be met
    START_FAILED = "model_start_failed"  # 503: three failed starts, with the engine's reason
    DEADLINE = "deadline_exceeded"  # 504: waited until its deadline
    SHUTTING_DOWN = "gateway_shutting_down"  # 503 + Retry-After
    DELETED = "model_deleted"  # 404


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request will not run. `message` is for the client; `retry_after` is None when a retry is pointless."""

    code: RefusalCode
    message: str
    retry_after: Seconds | None = None


@dataclass(frozen=True, slots=True)
class ModelRoute:
    """A declared model as the data port needs it. Its existence comes from the declaration, never from what runs."""

    model: ModelName
    uid: str
    revision: int
    timeouts: Timeouts
    max_wait: Seconds
    heartbeat: Heartbeat | None = None
    """SSE comments while a streamed request is held; None: the model does not allow it."""


class TicketRequest(Record):
    """A request that wants a slot. `arrived_at` and `deadline` never change, also when it comes back to try again."""

    FIELDS = ("request", "model", "caller", "arrived_at", "deadline", "body_bytes", "stream", "attempt")
    __slots__ = FIELDS

    def __init__(
        self,
        request: str,
        model: ModelName,
        caller: str,
        arrived_at: Instant,
        deadline: Instant,
        body_bytes: int,
        stream: bool,
        attempt: int = 0,
    ) -> None:
        self.request = request
        self.model = model
        self.caller = caller
        self.arrived_at = arrived_at
        self.deadline = deadline
        self.body_bytes = body_bytes
        self.stream = stream
        self.attempt = attempt
        """0 at first; counted up by the gateway when an unreachable replica sends the request back for another try."""

    def again(self, attempt: int) -> TicketRequest:
        """The same for another try."""
        return TicketRequest(
            self.request,
            self.model,
            self.caller,
            self.arrived_at,
            self.deadline,
            self.body_bytes,
            self.stream,
            attempt,
        )


class Lease(Record):
    """A slot in use by one request; given back exactly once."""

    FIELDS = ("id", "request", "model", "replica", "revision", "host", "port", "cancels", "held_seconds", "cold")
    __slots__ = FIELDS

    def __init__(
        self,
        id: int,  # noqa: A002 - its name
        request: str,
        model: ModelName,
        replica: ReplicaName,
        revision: int,
        host: str,
        port: int,
        cancels: Cancels,
        held_seconds: Seconds,
        cold: bool,
    ) -> None:
        self.id = id
        self.request = request
        self.model = model
        self.replica = replica
        self.revision = revision
        self.host = host
        self.port = port
        self.cancels = cancels
        self.held_seconds = held_seconds
        self.cold = cold
        """The request waited for a replica to start."""


class Ending(StrEnum):
    """How a leased request ended, seen from the gateway."""

    FINISHED = "finished"  # whole answer relayed, whatever its status
    CLIENT_LEFT = "client_left"  # the client went; the engine is done or was told (see `Outcome.engine_done`)
    UNREACHABLE = "unreachable"  # no byte came: refused, reset, or broken before the first byte
    BROKEN = "broken"  # the replica failed after bytes were relayed
    TIMED_OUT = "timed_out"  # first-byte, idle or total budget ran out


class Outcome(Record):
    """What the gateway knows when it gives a lease back.

    `engine_done` False: the connection was closed while the engine may still be at it (a cancelled stream, a timeout);
    the desk keeps the slot until the engine's running count clears it.
    """

    FIELDS = ("ending", "engine_done", "status", "first_byte_at", "tokens_in", "tokens_out", "bytes_in", "bytes_out")
    __slots__ = FIELDS

    def __init__(
        self,
        ending: Ending,
        engine_done: bool = True,
        status: int = 0,
        first_byte_at: Instant | None = None,
        tokens_in: int = 0,
        tokens_out: int = 0,
        bytes_in: int = 0,
        bytes_out: int = 0,
    ) -> None:
        self.ending = ending
        self.engine_done = engine_done
        self.status = status
        self.first_byte_at = first_byte_at
        self.tokens_in = tokens_in
        self.tokens_out = tokens_out
        self.bytes_in = bytes_in
        self.bytes_out = bytes_out


class Waiter(Protocol):
    """The request's side of a ticket: exactly one of these is called, once, unless it left before."""

    def leased(self, lease: Lease) -> None:
        """A slot is yours: dispatch now."""

    def refused(self, refusal: Refusal) -> None:
        """There will be none."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a held request stands: for heartbeats. `eta` None: not known yet."""

    phase: str
    ahead: int
    eta: Seconds | None


class Slots(Protocol):
    """Who may run where. All calls answer at once; none blocks. Called on the event loop only."""

    def route(self, name: str) -> ModelRoute | None:
        """The declared model behind a name or an alias."""

    def take(self, wanted: TicketRequest, waiter: Waiter) -> Lease | None:
        """A lease now, or None: then the waiter is called later (or was called already, with a refusal)."""

    def leave(self, request: str) -> None:
        """The client of a waiting request is gone. Its waiter will not be called any more."""

    def give_back(self, lease: Lease, outcome: Outcome) -> None:
        """The lease ends. A second call for the same lease is a bug and raises."""

    def progress(self, request: str) -> Progress | None:
        """How a waiting request stands."""


class Front(Protocol):
    """The data port, as the desk sees it: told what comes, so that it can be ahead. All calls answer at once."""

    def make_way(self) -> None:
        """A request has woken a model: what leads to its start goes before other requests."""

    def end_way(self) -> None:
        """The model's replica is starting."""

    def expect(self, host: str, port: int, requests: int) -> None:
        """A replica listens there; once it is ready it is sent so many requests at once."""


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A line of ``/v1/models``."""

    name: str
    state: str
    created: int
    aliases: Sequence[str] = ()


class Catalog(Protocol):
    """What is declared."""

    def entries(self) -> Sequence[CatalogEntry]:
        """All declared models, by name."""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """What an engine is asked to run. `weights` is a local path, or empty; `adapters` are LoRA adapters by name and
    local path; `options` is `spec.engine.options`. `weights_from`: the number of a descriptor over which it will hear
    both, as soon as they are there (`runtime.engines.awaiting`); only for an engine that awaits weights."""

    model: ModelName
    replica: ReplicaName
    host: str
    port: int
    slots: int
    weights: str = ""
    cpu: float = 0.0
    gpus: Sequence[str] = ()
    options: Mapping[str, object] = field(default_factory=dict)
    adapters: Sequence[tuple[str, str]] = ()
    weights_from: int | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """A command to start. Its environment is added to the adapter's."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Probe:
    """How to see that a replica is ready: `health_path` answers 200, then `warmup_body` sent to `warmup_path` does."""

    health_path: str
    warmup_path: str
    warmup_body: bytes


@dataclass(frozen=True, slots=True)
class Call:
    """A POST to an engine: the path with its query, and a JSON body or none."""

    path: str
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Sleep:
    """How an engine sleeps: its process stays, what it had on GPUs and in slots does not.

    Level 1 keeps its weights in host memory, level 2 reads them again when it wakes. `sleep` and `wake` are sent in
    order; without any it sleeps by being asked nothing. `asleep_path` answers ``{"is_sleeping": true}`` or false;
    empty: it does not tell.
    """

    level: int
    sleep: tuple[Call, ...] = ()
    wake: tuple[Call, ...] = ()
    asleep_path: str = ""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What an engine can do. `busy_path` tells how many requests it runs (empty: it does not say); an engine that does
    not read its weights starts without them. One that awaits its weights can be started before they are there."""

    cancels: Cancels
    busy_path: str = ""
    metrics_path: str = ""
    reads_weights: bool = True
    awaits_weights: bool = False
    sleeps: tuple[Sleep, ...] = ()
    """The levels at which it can sleep as it was launched; none: it cannot."""


class Engine(Protocol):
    """An engine: pure answers about commands, probes and abilities; the cluster adapter acts on them."""

    def launch(self, wanted: LaunchRequest) -> Launch:
        """The command that serves this replica. Raises ValueError naming the option that is wrong."""

    def probe(self, wanted: LaunchRequest) -> Probe:
        """How to see that it is ready."""

    def abilities(self, wanted: LaunchRequest) -> Abilities:
        """What it can do."""

    def check_slots(self, health: Mapping[str, object], slots: int) -> str:
        """Why the running engine's parallelism is not `slots`, or empty. `health`: its parsed answers, by path."""
