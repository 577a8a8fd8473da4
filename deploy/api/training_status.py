"""A training job's status from what was declared, granted and observed. Nothing here reads a clock.

`TABLE` says which state a job is in: the first row whose condition holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from deploy.api.training_facts import YIELDED, JobFacts, leaves_something
from deploy.api.trainingshapes import (
    CheckpointShape,
    Goodput,
    MemberShape,
    NoticeShape,
    TrainingState,
    TrainingStatus,
    UsualTime,
)
from events.types.training import (
    CheckpointStatus,
    Ending,
    NoticeStatus,
    RunState,
    Stop,
    TrainingGranted,
    TrainingObserved,
)
from events.units import format_instant
from preemption.core.reclaim.goodput import Parts, gpu_seconds, share
from preemption.core.reclaim.usual import Usual

Reason = tuple[str, str]
"""One word, and the same for people; both may be empty."""

Row = tuple[Callable[[JobFacts], bool], TrainingState, Callable[[JobFacts], Reason]]


def training_status(facts: JobFacts) -> TrainingStatus:
    """The status, with the numbers behind it."""
    facts = _without_void(facts)
    state, (reason, message) = _verdict(facts)
    observed, granted = facts.observed, facts.granted
    members = facts.declared.spec.get("members")
    return TrainingStatus(
        state=state,
        reason=reason,
        message=message,
        run=observed.run if observed else 0,
        members=members if isinstance(members, int) else 1,
        granted_members=None if granted is None else len(granted.members),
        ready_members=_running(facts),
        processes=_processes(observed),
        step=observed.step if observed else None,
        step_at=_time(observed.step_at if observed else None),
        resumed_step=observed.resumed_step if observed else None,
        reports=bool(observed and observed.reports),
        checkpoint=_checkpoint(observed.checkpoint) if observed and observed.checkpoint else None,
        notice=_notice(facts),
        restarts=max(0, observed.run - max(1, granted.first_run if granted else 0)) if observed else 0,
        failures=facts.failures,
        retry_at=_time(observed.retry_at if observed and observed.failures else None),
        preemptions=facts.costs.preemptions,
        usual_save=_usual(facts.usual[0]),
        usual_restore=_usual(facts.usual[1]),
        gpu_seconds_lost={cause: round(seconds, 3) for cause, seconds in facts.costs.lost.items()},
        goodput=goodput_of(facts.parts),
        started_at=_time(observed.started_at if observed else None),
        ended_at=_time(observed.ended_at if observed else None),
        folder=observed.folder if observed else "",
        empty_at=_time(observed.empty_at if observed else None),
        ending=facts.ending.value if facts.ending else None,
        log_tail=list(observed.log_tail) if observed else [],
    )


def _usual(known: Usual | None) -> UsualTime | None:
    return None if known is None else UsualTime(seconds=round(known.seconds, 3), seen=known.seen, alike=known.alike)


def goodput_of(parts: Parts) -> Goodput:
    """What cards were used for, for people."""
    ratio = share(parts)
    return Goodput(
        ratio=None if ratio is None else round(ratio, 6), held_gpu_seconds=sum(parts.values()) / 1e6,
        gpu_seconds=gpu_seconds(parts),
    )  # fmt: skip


def _verdict(facts: JobFacts) -> tuple[TrainingState, Reason]:
    return next((state, words(facts)) for condition, state, words in TABLE if condition(facts))


def _without_void(facts: JobFacts) -> JobFacts:
    uid, seen = facts.declared.uid, facts.observed
    void = seen is not None and seen.uid != uid
    return replace(
        facts,
        granted=facts.granted if facts.granted and facts.granted.uid == uid else None,
        observed=None if void else seen,
        before=seen if void and seen is not None and leaves_something(seen) else None,
    )


def _deleted(facts: JobFacts) -> Reason:
    return "Deleted", f"deleted; {_left(facts)}"


def _cancelled(facts: JobFacts) -> Reason:
    return ("Ending", f"cancelled; {_left(facts)}") if facts.alive else ("", "")


def _finished(_: JobFacts) -> Reason:
    return "", ""


def _failed(facts: JobFacts) -> Reason:
    assert facts.observed is not None  # else it had no failures
    remedy = f"it is not started again by itself: relume train resume {facts.declared.job}"
    return facts.observed.reason or "Failed", f"{_failure(facts, facts.observed)}; {remedy}"


def _saving(facts: JobFacts) -> Reason:
    granted, notice = facts.granted, facts.notice
    assert granted is not None  # else it was not told
    if granted.stop is not Stop.NOT:
        return (
            ("Killing", "told to end at once") if granted.stop is Stop.KILL else ("Stopping", "told to end (SIGTERM)")
        )
    assert notice is not None  # else it was not told
    why = notice.reason or ("it was paused" if facts.declared.paused else "its GPUs are needed")
    return "Paused" if facts.declared.paused else "Notice", f"{why}; it saves by {format_instant(notice.deadline)}"


def _starting(facts: JobFacts) -> Reason:
    if not facts.alive:
        return "Granted", f"{_members(len(facts.granted.members) if facts.granted else 0)} about to start"
    assert facts.observed is not None  # it is alive
    return "Run", f"run {facts.observed.run}: {_members(_running(facts))} of {len(facts.observed.members)} started"


def _running_well(facts: JobFacts) -> Reason:
    assert facts.observed is not None  # it is alive
    return facts.observed.reason, facts.observed.message


def _paused(_: JobFacts) -> Reason:
    return "Paused", "it goes on when it is resumed"


def _parked(facts: JobFacts) -> Reason:
    said = facts.granted.message if facts.granted else ""
    return _word(facts.granted), said or "it goes on when there are GPUs for it"


def _back_off(facts: JobFacts) -> Reason:
    assert facts.observed is not None  # else it had no failures
    return "BackOff", _failure(facts, facts.observed)


def _pending(facts: JobFacts) -> Reason:
    if facts.before is not None:
        left = "has not ended" if facts.before.state is not RunState.ENDED else "is not seen to be gone from its GPUs"
        return "NameInUse", f"run {facts.before.run} of a deleted job of this name {left}; it is started after that"
    if facts.granted is None:
        return "Declared", "waiting for the allocator"
    return _word(facts.granted), facts.granted.message or "there is nothing that it could run on now"


TABLE: Final[tuple[Row, ...]] = (
    (lambda facts: facts.declared.deleted, TrainingState.CANCELLED, _deleted),
    (lambda facts: facts.ending is Ending.FINISHED, TrainingState.FINISHED, _finished),
    (lambda facts: facts.declared.cancelled, TrainingState.CANCELLED, _cancelled),
    (lambda facts: facts.told, TrainingState.SAVING, _saving),
    (lambda facts: facts.alive and _state(facts) is RunState.STARTING, TrainingState.STARTING, _starting),
    (lambda facts: facts.alive, TrainingState.RUNNING, _running_well),
    (lambda facts: facts.gave_up, TrainingState.FAILED, _failed),
    (lambda facts: facts.starts, TrainingState.STARTING, _starting),
    (lambda facts: facts.declared.paused, TrainingState.PAUSED, _paused),
    (lambda facts: facts.ending in YIELDED, TrainingState.PARKED, _parked),
    (lambda facts: facts.failures > 0, TrainingState.PENDING, _back_off),
    (lambda _: True, TrainingState.PENDING, _pending),
)
"""Condition, state, and what is said about it. The first row that holds is it."""


def _state(facts: JobFacts) -> RunState | None:
    return facts.observed.state if facts.observed else None


def _running(facts: JobFacts) -> int:
    if facts.observed is None or not facts.alive:
        return 0
    return sum(member.pid is not None and member.exit_code is None for member in facts.observed.members)


def _word(granted: TrainingGranted | None) -> str:
    """The allocator's first reason, as reasons are written here: ``lacks_room`` is LacksRoom."""
    first = granted.reasons[0] if granted and granted.reasons else ""
    return "".join(part.capitalize() for part in first.split("_")) or "Waiting"


def _left(facts: JobFacts) -> str:
    if not facts.alive:
        return "its GPUs are not seen empty yet" if facts.observed else "nothing of it runs"
    return f"{_members(_running(facts))} left to end"


def _failure(facts: JobFacts, observed: TrainingObserved) -> str:
    times = "once" if observed.failures == 1 else f"{observed.failures} times in a row"
    text = f"it failed {times}"
    if observed.message:
        text += f": {observed.message}"
    if observed.retry_at and observed.retry_at > facts.now and not facts.gave_up:
        text += f" (next try at {format_instant(observed.retry_at)})"
    return text


def _members(count: int) -> str:
    return "1 member" if count == 1 else f"{count} members"


def _processes(observed: TrainingObserved | None) -> list[MemberShape]:
    return [
        MemberShape(name=one.member, node=one.node, gpus=list(one.gpus), pid=one.pid, exit_code=one.exit_code)
        for one in (observed.members if observed else ())
    ]


def _checkpoint(checkpoint: CheckpointStatus) -> CheckpointShape:
    return CheckpointShape(
        step=checkpoint.step, at=format_instant(checkpoint.at), path=checkpoint.path, verified=checkpoint.verified,
        size=checkpoint.size, seconds=checkpoint.seconds,
    )  # fmt: skip


def _notice(facts: JobFacts) -> NoticeShape | None:
    notice = facts.notice if facts.alive else None
    if notice is None:
        return None
    said = facts.observed.notice if facts.observed else None
    answer = said if said is not None and said.id == notice.id else NoticeStatus(id=notice.id)
    return NoticeShape(
        id=notice.id, mode=notice.mode.value, reason=notice.reason, deadline=format_instant(notice.deadline),
        heard_at=_time(answer.heard_at), eta=answer.eta, progress=answer.progress or None,
        saved_step=answer.saved_step, failed=answer.failed,
    )  # fmt: skip


def _time(instant: float | None) -> str | None:
    return None if instant is None else format_instant(instant)
