"""Declarations, replicas and tickets for tests of slots."""

from __future__ import annotations

from coldstart.core.hold import HoldBudget
from coldstart.core.policy import ColdStartPolicy, HoldPolicy
from events.names import ModelName, ReplicaName
from events.types.replicas import Phase, PhaseSpan, ReplicasObserved, ReplicaState, ReplicaStatus
from events.units import Bytes, Instant, Seconds
from runtime.core.authority import Authority
from runtime.core.commands import Command, Grant, Refuse, SendWindow
from runtime.core.model_slots import Declared
from runtime.core.policy import Timeouts
from runtime.ports import Ending, Lease, Outcome, Refusal, TicketRequest

MODEL = ModelName("llama")
START = Instant(1_000.0)
DONE = Outcome(ending=Ending.FINISHED, status=200)


def budget(requests: int = 100_000, size: int = 1 << 40) -> HoldBudget:
    """A budget over all models that is never reached unless the test says so."""
    return HoldBudget(requests, Bytes(size))


def hold(requests: int = 1000, size: int = 1 << 30, wait: float = 300.0) -> HoldPolicy:
    """Bounds of one model's queue."""
    return HoldPolicy(max_requests=requests, max_bytes=Bytes(size), max_wait=Seconds(wait))


HOLD = hold()


def declared(
    *,
    uid: str = "u1",
    revision: int = 1,
    hold: HoldPolicy = HOLD,
    aliases: tuple[str, ...] = (),
    total: float = 600.0,
) -> Declared:
    """The declaration of MODEL."""
    return Declared(
        model=MODEL,
        uid=uid,
        revision=revision,
        timeouts=Timeouts(first_byte=Seconds(60.0), idle=Seconds(120.0), total=Seconds(total)),
        cold_start=ColdStartPolicy(sla=Seconds(3.0), hold=hold, heartbeat=None),
        aliases=aliases,
    )


def replica(
    index: int = 0,
    *,
    state: ReplicaState = ReplicaState.READY,
    slots: int = 2,
    revision: int = 1,
    uid: str = "u1",
    life: int = 1,
    cancels: str = "streams",
    busy_path: str = "",
    phases: tuple[PhaseSpan, ...] = (),
) -> ReplicaStatus:
    """A replica of MODEL; another `life` is another process under the same name."""
    ready = state in (ReplicaState.READY, ReplicaState.DRAINING)
    return ReplicaStatus(
        replica=f"{MODEL}-r{revision}-{index}",
        uid=uid,
        revision=revision,
        state=state,
        address=f"127.0.0.1:{9000 + index}" if ready else "",
        slots=slots,
        pid=100 * life + index,
        created_at=START + life,
        ready_at=START + life + 0.5 if ready else None,
        cancels=cancels,
        busy_path=busy_path,
        phases=phases,
    )


def observed(*replicas: ReplicaStatus, uid: str = "u1", failures: int = 0, **why: object) -> ReplicasObserved:
    """All replicas of MODEL."""
    return ReplicasObserved(model=MODEL, uid=uid, replicas=replicas, failures=failures, **why)  # type: ignore[arg-type]  # keyword arguments of the event


def spans(*seconds: float, at: float = START) -> tuple[PhaseSpan, ...]:
    """Ended spans of spawn, load, warm-up, one after the other."""
    made = []
    for phase, length in zip((Phase.SPAWN, Phase.LOAD, Phase.WARMUP), seconds, strict=False):
        made.append(PhaseSpan(phase=phase, started_at=at, ended_at=at + length))
        at += length
    return tuple(made)


def ticket(
    request: str,
    at: float = START,
    *,
    caller: str = "anonymous",
    wait: float = 300.0,
    size: int = 100,
    stream: bool = False,
    attempt: int = 0,
    model: str = MODEL,
) -> TicketRequest:
    """A request that arrived at `at`."""
    return TicketRequest(
        request=request,
        model=ModelName(model),
        caller=caller,
        arrived_at=Instant(at),
        deadline=Instant(at + wait),
        body_bytes=size,
        stream=stream,
        attempt=attempt,
    )


def authority(**declaration: object) -> Authority:
    """An authority that knows MODEL, without replicas."""
    made = Authority("gateway-1", budget())
    made.declare(declared(**declaration), START)  # type: ignore[arg-type]  # keyword arguments of `declared`
    return made


def leases(commands: list[Command]) -> list[Lease]:
    """The leases that were granted."""
    return [command.lease for command in commands if isinstance(command, Grant)]


def granted(commands: list[Command]) -> list[str]:
    """The requests that got a lease, in order."""
    return [lease.request for lease in leases(commands)]


def refusals(commands: list[Command]) -> dict[str, Refusal]:
    """The requests that were refused, and why."""
    return {command.request: command.refusal for command in commands if isinstance(command, Refuse)}


def others(commands: list[Command]) -> list[Command]:
    """All commands but grants, refusals and windows."""
    return [command for command in commands if not isinstance(command, Grant | Refuse | SendWindow)]


def name(index: int, revision: int = 1) -> ReplicaName:
    """The name of `replica(index)`."""
    return ReplicaName(f"{MODEL}-r{revision}-{index}")
