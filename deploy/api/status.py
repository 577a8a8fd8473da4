"""A model's status from what was declared, wished, granted, observed and counted. Nothing here reads a clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from autoscaler.core.model import Reason as Why
from autoscaler.core.policy import Mode
from deploy.api.node_calls import call_condition, call_status, short_reason
from deploy.api.shapes import (
    Condition,
    LastStart,
    ModelState,
    ModelStatus,
    ObjectiveStatus,
    OverrideShape,
    PhaseTime,
)
from events.types.decisions import WishDecided
from events.types.grants import GrantDecided
from events.types.models import ModelDeclared
from events.types.replicas import FAILED_STARTS, PhaseSpan, ReplicasObserved, ReplicaState, ReplicaStatus
from events.types.requests import Levels
from events.units import Instant, format_instant, format_quantity
from preemption.core.view import Reason

_STANDING = {Why.RECOMMENDED: Mode.RECOMMEND, Why.PAUSED: Mode.PAUSED}
"""Modes in which the wish stands, whoever waits."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one model. Wish, grant and observation of another uid are void and count as None."""

    declared: ModelDeclared
    now: Instant
    wish: WishDecided | None = None
    grant: GrantDecided | None = None
    observed: ReplicasObserved | None = None
    levels: Levels | None = None
    last_start: ReplicaStatus | None = None
    start_seconds: float | None = None
    """How long the last start that became ready took."""
    objectives: Sequence[ObjectiveStatus] = ()
    lost_aliases: Mapping[str, str] = field(default_factory=dict)
    """Of its aliases those that mean another model, and which."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    state: ModelState
    reason: str = ""
    message: str = ""


def model_status(facts: Facts) -> ModelStatus:
    """The status of design §12, with the numbers behind it."""
    facts = _without_void(facts)
    replicas = facts.observed.replicas if facts.observed else ()
    verdict = _verdict(facts, replicas)
    observed, grant, levels = facts.observed, facts.grant, facts.levels
    retry_at = observed.retry_at if observed and observed.failures else None
    return ModelStatus(
        state=verdict.state,
        reason=verdict.reason,
        message=verdict.message,
        replicas=sum(replica.state not in (ReplicaState.FAILED, ReplicaState.SLEEPING) for replica in replicas),
        ready_replicas=_count(replicas, ReplicaState.READY),
        starting_replicas=_count(replicas, ReplicaState.STARTING),
        draining_replicas=_count(replicas, ReplicaState.DRAINING) + _count(replicas, ReplicaState.STOPPING),
        sleeping_replicas=_count(replicas, ReplicaState.SLEEPING),
        held_requests=levels.waiting if levels else None,
        running_requests=levels.running if levels else None,
        wish=facts.wish.replicas if facts.wish else None,
        granted=_granted(grant),
        shortage=None if grant is None else grant.shortage.replicas if grant.shortage else 0,
        node_call=call_status(grant, observed),
        failures=observed.failures if observed else 0,
        retry_at=format_instant(retry_at) if retry_at else None,
        override=_override(facts),
        last_start=start_of(facts.last_start) if facts.last_start else None,
        expected_start_seconds=facts.start_seconds,
        objectives=list(facts.objectives),
        conditions=_conditions(facts, verdict),
    )


def start_of(replica: ReplicaStatus) -> LastStart | None:
    """A replica's start, phase by phase; None when no phase was recorded."""
    if not replica.phases:
        return None
    ready_at = replica.ready_at
    return LastStart(
        replica=replica.replica,
        ready_at=format_instant(ready_at) if ready_at else None,
        seconds=round(ready_at - replica.phases[0].started_at, 6) if ready_at else None,
        phases=phase_times(replica.phases),
    )


def phase_times(spans: Sequence[PhaseSpan]) -> list[PhaseTime]:
    """Phases as they are shown."""
    return [
        PhaseTime(
            phase=span.phase.value,
            started_at=format_instant(span.started_at),
            seconds=None if span.ended_at is None else round(span.ended_at - span.started_at, 6),
        )
        for span in spans
    ]


def _without_void(facts: Facts) -> Facts:
    uid = facts.declared.uid
    return replace(
        facts,
        wish=facts.wish if facts.wish and facts.wish.uid == uid else None,
        grant=facts.grant if facts.grant and facts.grant.uid == uid else None,
        observed=facts.observed if facts.observed and facts.observed.uid == uid else None,
        last_start=facts.last_start if facts.last_start and facts.last_start.uid == uid else None,
    )


def _verdict(facts: Facts, replicas: Sequence[ReplicaStatus]) -> _Verdict:
    """The first of these that is so."""
    if facts.declared.deleted:
        left = sum(replica.state is not ReplicaState.FAILED for replica in replicas)
        return _Verdict(ModelState.DRAINING, "Deleted", f"deleted; {_replicas(left)} left to drain")
    if _count(replicas, ReplicaState.READY):
        return _ready(facts)
    if facts.observed and facts.observed.failures >= FAILED_STARTS:
        return _failed(ModelState.FAILED, facts, facts.observed)
    if _count(replicas, ReplicaState.STARTING):
        return _starting(facts, replicas)
    if _wanted(facts):
        return _waiting(facts)
    mode = _hands_off(facts)
    return _idle(replicas, given=_given(facts)) if mode is None else mode


def _idle(replicas: Sequence[ReplicaStatus], *, given: bool) -> _Verdict:
    if _count(replicas, ReplicaState.DRAINING) or _count(replicas, ReplicaState.STOPPING):
        return _Verdict(ModelState.DRAINING, "ScaleIn", "the last replica finishes its requests and stops")
    asleep = [replica for replica in replicas if replica.state is ReplicaState.SLEEPING]
    if asleep:
        kept = format_quantity(sum(replica.resources.memory_bytes for replica in asleep))
        words = f"{_replicas(len(asleep))} asleep at level {asleep[0].sleep_level}, in {kept} of memory"
        return _Verdict(ModelState.ZERO, "Asleep", words)
    if given:
        words = "nothing needed it, so its place went to a model for which requests wait; the next request starts it"
        return _Verdict(ModelState.ZERO, "Given", words)
    return _Verdict(ModelState.ZERO)


def _hands_off(facts: Facts) -> _Verdict | None:
    """Requests wait in vain: by the mode nothing is changed, or a person said so."""
    waiting = 0 if facts.levels is None else facts.levels.waiting
    if not waiting:
        return None
    held = "1 request waits" if waiting == 1 else f"{waiting} requests wait"
    reasons = () if facts.wish is None else facts.wish.reasons
    override = facts.declared.override
    if override is not None and override.until > facts.now:
        return _Verdict(
            ModelState.ZERO, "Override", f"{held}; by hand none is to run until {format_instant(override.until)}"
        )
    reason, mode = next((reason, mode) for reason, mode in _STANDING.items() if reason in reasons)
    return _Verdict(ModelState.ZERO, reason.value, f"{held}; the mode is {mode}, so nothing is started")


def _given(facts: Facts) -> bool:
    """Whether all that it had was only kept, and went to others."""
    grant = facts.grant
    return grant is not None and not grant.wished and Reason.GIVES_UP in grant.reasons


def _failed(state: ModelState, facts: Facts, observed: ReplicasObserved) -> _Verdict:
    return _Verdict(state, observed.reason or "StartFailed", _failure_message(facts, observed))


def _ready(facts: Facts) -> _Verdict:
    if facts.grant and facts.grant.shortage:
        return _Verdict(ModelState.READY, short_reason(facts.grant), facts.grant.shortage.message)
    if facts.observed and facts.observed.failures:
        return _failed(ModelState.READY, facts, facts.observed)
    return _Verdict(ModelState.READY)


def _starting(facts: Facts, replicas: Sequence[ReplicaStatus]) -> _Verdict:
    newest = next(replica for replica in reversed(replicas) if replica.state is ReplicaState.STARTING)
    phase = newest.phase.value if newest.phase else "start"
    message = f"{newest.replica} is in phase {phase}"
    if facts.observed and facts.observed.failures:
        message += "; " + _failure_message(facts, facts.observed)
    return _Verdict(ModelState.STARTING, phase.capitalize(), message)


def _waiting(facts: Facts) -> _Verdict:
    """Replicas are wanted and none starts yet: because of back-off, a shortage, or only because it was decided now."""
    if facts.observed and facts.observed.failures:
        return _Verdict(ModelState.STARTING, "BackOff", _failure_message(facts, facts.observed))
    if facts.grant and facts.grant.shortage and not _granted(facts.grant):
        return _Verdict(ModelState.STARTING, short_reason(facts.grant), facts.grant.shortage.message)
    if _granted(facts.grant):
        return _Verdict(ModelState.STARTING, "Granted", f"{_replicas(_granted(facts.grant) or 0)} about to start")
    return _Verdict(ModelState.STARTING, "Wished", "waiting for the allocator")


def _wanted(facts: Facts) -> bool:
    override = facts.declared.override
    if override is not None and override.until > facts.now:
        return override.replicas > 0
    wished = facts.wish.replicas if facts.wish and not _given(facts) else 0
    stands = facts.wish is not None and any(reason in facts.wish.reasons for reason in _STANDING)
    waits = facts.levels is not None and facts.levels.waiting > 0 and not stands
    return bool(wished or _granted(facts.grant) or waits)


def _failure_message(facts: Facts, observed: ReplicasObserved) -> str:
    times = "once" if observed.failures == 1 else f"{observed.failures} times"
    text = f"the start failed {times}"
    if observed.message:
        text += f": {observed.message}"
    if observed.retry_at and observed.retry_at > facts.now:
        text += f" (next try at {format_instant(observed.retry_at)})"
    return text


def _conditions(facts: Facts, verdict: _Verdict) -> list[Condition]:
    observed, grant = facts.observed, facts.grant
    ready = verdict.state is ModelState.READY
    failed = observed is not None and observed.failures > 0
    short = grant is not None and grant.shortage is not None
    return [
        Condition(
            type="Ready",
            status=_truth(None if observed is None else ready),
            reason="" if ready else verdict.reason or "Zero",
            message="" if ready else verdict.message,
        ),
        Condition(
            type="Granted",
            status=_truth(None if grant is None else not short),
            reason="Shortage" if short else "",
            message=grant.shortage.message if grant and grant.shortage else "",
        ),
        Condition(
            type="Starts",
            status=_truth(None if observed is None else not failed),
            reason=observed.reason if observed and failed else "",
            message=observed.message if observed and failed else "",
        ),
        *call_condition(grant, observed),
        *_aliases(facts.lost_aliases),
    ]


def _aliases(lost: Mapping[str, str]) -> list[Condition]:
    """Nothing where all of them mean this model, as they should."""
    if not lost:
        return []
    taken = "; ".join(f"{alias} means model {owner}" for alias, owner in sorted(lost.items()))
    message = f"{taken} (both claim it, and the first by name has it); remove the alias here or there"
    return [Condition(type="Aliases", status="False", reason="AliasTaken", message=message)]


def _override(facts: Facts) -> OverrideShape | None:
    override = facts.declared.override
    if override is None or override.until <= facts.now:
        return None
    return OverrideShape(replicas=override.replicas, until=format_instant(override.until), by=override.by)


def _granted(grant: GrantDecided | None) -> int | None:
    return None if grant is None else sum(not replica.drain for replica in grant.replicas)


def _count(replicas: Sequence[ReplicaStatus], state: ReplicaState) -> int:
    return sum(replica.state is state for replica in replicas)


def _truth(value: bool | None) -> str:
    return "Unknown" if value is None else str(value)


def _replicas(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"
