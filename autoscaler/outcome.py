"""What came of a wish: grant, shortage, override, starts that failed, replicas that are."""

from __future__ import annotations

from pydantic import JsonValue

from autoscaler.words import clock_time, replicas, times
from events.types.decisions import WishDecided
from events.types.grants import GrantDecided
from events.types.models import ModelDeclared
from events.types.replicas import ReplicasObserved, ReplicaState
from events.units import format_instant
from preemption.core.view import Reason


def after_sentences(
    wish: WishDecided,
    grant: GrantDecided | None,
    observed: ReplicasObserved | None,
    declared: ModelDeclared | None,
    *,
    now: bool = True,
) -> tuple[str, ...]:
    """One sentence for each thing that is known to have come of a wish. `now`: these are the newest records."""
    near = _taken_at(wish)
    told = (
        _override(declared, grant, near, now),
        _granted(grant, wish, now),
        _failed(observed, near),
        _are(observed, now),
    )
    return tuple(text for text in told if text)


def outcome_facts(
    grant: GrantDecided | None, observed: ReplicasObserved | None, declared: ModelDeclared | None
) -> dict[str, JsonValue]:
    """The same for programs; null is unknown."""
    shortage = grant.shortage if grant is not None else None
    overrides = _overrides(declared, grant)
    override = declared.override if declared is not None and overrides else None
    retry_at = observed.retry_at if observed is not None and observed.failures else None
    return {
        "granted": None if grant is None else _staying(grant),
        "shortage": None if shortage is None else {"replicas": shortage.replicas, "message": shortage.message},
        "override": None
        if override is None
        else {"replicas": override.replicas, "until": format_instant(override.until)},
        "ready": None if observed is None else _count(observed, ReplicaState.READY),
        "starting": None if observed is None else _count(observed, ReplicaState.STARTING),
        "failures": None if observed is None else observed.failures,
        "failureReason": observed.reason if observed is not None and observed.failures else None,
        "failureMessage": observed.message if observed is not None and observed.failures else None,
        "retryAt": None if retry_at is None else format_instant(retry_at),
    }


def _staying(grant: GrantDecided) -> int:
    return sum(not one.drain for one in grant.replicas)


def _taken_at(wish: WishDecided) -> float | None:
    """When the decision was taken; None: another release wrote it."""
    at = wish.snapshot.get("takenAt")
    return float(at) if isinstance(at, int | float) else None


def _clock(instant: float, near: float | None) -> str:
    return clock_time(instant, instant if near is None else near)


def _overrides(declared: ModelDeclared | None, grant: GrantDecided | None) -> bool:
    """Whether the allocator answered a person's number instead of the wish."""
    if declared is None or declared.override is None or grant is None:
        return False
    return Reason.OVERRIDE in grant.reasons


def _override(declared: ModelDeclared | None, grant: GrantDecided | None, near: float | None, now: bool) -> str:
    if declared is None or declared.override is None or not _overrides(declared, grant):
        return ""
    override = declared.override
    by = f" by {override.by}" if override.by else ""
    stands, until = "stands" if now else "stood", _clock(override.until, near)
    return f"An override{by} of {replicas(override.replicas)} {stands} before it until {until}."


def _granted(grant: GrantDecided | None, wish: WishDecided, now: bool) -> str:
    if grant is None:  # it says nothing where nothing was ever wished; what it said long ago may be compacted away
        return "The allocator has not answered yet." if wish.replicas and now else ""
    text = f"The allocator granted {_staying(grant)} of {grant.wished}"
    given = wish.replicas - grant.wished
    if Reason.GIVES_UP in grant.reasons and given > 0:
        text += f"; {replicas(given)} that nothing needed went to others for which requests wait"
    if grant.shortage is None:
        return text + "."
    return f"{text}; {replicas(grant.shortage.replicas)} short: {grant.shortage.message.rstrip('.')}."


def _failed(observed: ReplicasObserved | None, near: float | None) -> str:
    if observed is None or not observed.failures:
        return ""
    text = f"The start failed {times(observed.failures)}"
    why = observed.message or observed.reason
    if why:
        text += f": {why.rstrip('.')}"
    return text + ("." if observed.retry_at is None else f"; next try at {_clock(observed.retry_at, near)}.")


def _are(observed: ReplicasObserved | None, now: bool) -> str:
    if observed is None:
        return ""
    ready, starting = _count(observed, ReplicaState.READY), _count(observed, ReplicaState.STARTING)
    phases = sorted({one.phase.value for one in observed.replicas if one.phase is not None})
    where = f" (in {', '.join(phases)})" if starting and phases else ""
    when, be = ("Now", "is" if ready == 1 else "are") if now else ("Then", "was" if ready == 1 else "were")
    asleep = _count(observed, ReplicaState.SLEEPING)
    sleeps = f", and {asleep} asleep" if asleep else ""
    return f"{when} {replicas(ready)} {be} ready and {starting} starting{where}{sleeps}."


def _count(observed: ReplicasObserved, state: ReplicaState) -> int:
    return sum(one.state is state for one in observed.replicas)
