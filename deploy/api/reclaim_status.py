"""A reclaim as the API shows it, and as it is explained: who needed what, why this job, each stage, what it cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from deploy.api.trainingshapes import (
    ReclaimItem,
    ReclaimLedgerShape,
    ReclaimMetadata,
    ReclaimSpec,
    ReclaimStatus,
    ReclaimStepShape,
    ReclaimVerdictShape,
)
from events.types.reclaims import ReclaimChanged, ReclaimVerdict
from events.units import Instant, format_duration, format_instant
from preemption.core.attempts.states import State
from preemption.core.inventory import need_of
from preemption.core.lending.case import Cause, cause_of

OF_JOB: Final = "training/"
"""What a shortage's name begins with that a training job of higher priority has."""

TAKEN: Final = frozenset({"taken", "shrunk"})

_WHY: Final[Mapping[str, str]] = {
    "taken": "it was the cheapest that freed enough",
    "shrunk": "it could give up some of its members and go on; all of them save and are started again",
    "not_needed": "the others free enough without it",
    "dearer": "others cost less for what they free",
    "frees_nothing_of_use": "none of its places could hold what was wanted",
    "priority_not_lower": "its priority is not lower",
    "protected": "it is protected",
    "minimum_run_time": "it had not run for its minimum time",
    "cool_down": "it had to yield a short time before",
    "budget_spent": "it had to yield as often as it may within an hour",
    "already_yielding": "it was yielding already",
    "no_victim_needed": "no one had to yield",
}
"""What `preemption.core.reclaim` calls its reasons, for people."""

_STATES: Final[Mapping[str, str]] = {
    State.SELECTED: "chosen, nothing sent yet",
    State.NOTIFIED: "the notice went out",
    State.SAVING: "its trainer heard it and saves",
    State.SAVED: "a checkpoint of after the notice was verified",
    State.CANCELLING: "not needed any more: it was told to go on",
    State.STOPPING: "told to end (SIGTERM)",
    State.KILLING: "told to end at once (SIGKILL)",
    State.DRAINING: "its processes have ended; the GPUs are looked at until they are empty",
    State.DRAINING_DONE: "it finished by itself; the GPUs are looked at until they are empty",
    State.QUARANTINE: "something still uses a GPU, which is set apart",
    State.CLAIMED: "the GPUs are empty and set aside for the shortage",
    State.LOST: "the node is gone, or its GPUs cannot be freed",
    State.PARKED: "the GPUs were handed over or given back; the job waits for capacity",
    State.PARKED_AGED: "the job has waited long and goes before others of its priority",
    State.RESUMING: "the job was started again from its checkpoint",
    State.RESUMING_OLDER: "that checkpoint could not be loaded; it was started from the one before",
    State.CONTINUED: "the job went on without having to end",
    State.FINISHED: "the job has finished",
    State.RESUMED: "the job made a step beyond its checkpoint: it is back",
    State.SKIPPED: "given up before anything was sent",
    State.FAILED: "the job did not come back before it had to yield again, or not at all",
}
"""What is so in each state, for people."""

_STATES_WITHOUT_CHECKPOINT: Final[Mapping[str, str]] = {
    State.RESUMING: "the job was started again",
    State.RESUMED: "the job is back at work",
}
"""Where it is not known that it goes on from one."""

_STATES_FOR_PEOPLE: Final[Mapping[str, str]] = {State.CLAIMED: "the GPUs are empty"}
"""Where nothing is short: a person took them back."""

_CAUSES: Final[Mapping[str, str]] = {
    "since_commit": "work to be done again", "save": "saving", "stop": "ending", "drain": "waiting for empty GPUs",
    "claim": "set aside and unused", "restore": "coming back",
    "cards_gone": "work to be done again, for its GPUs vanished",
}  # fmt: skip


def reclaim_item(data: ReclaimChanged) -> ReclaimItem:
    """A reclaim as the API shows it."""
    return ReclaimItem(
        metadata=ReclaimMetadata(name=data.id),
        spec=ReclaimSpec(
            job=data.job, run=data.run, members=list(data.members), shortage=data.shortage, cards=list(data.cards)
        ),
        status=_status(data),
    )


def explain(data: ReclaimChanged, now: Instant) -> list[str]:
    """The whole story in sentences, oldest first."""
    sentences = [*_need(data), *_choice(data), *_stages(data), _checkpoint(data), *_cost(data)]
    if not data.ended:
        until = "" if data.deadline is None else f", at the longest until {_moment(data.deadline)}"
        sentences.append(f"It has been so for {_span(now - data.since)}{until}.")
    if data.message:
        sentences.append(f"The allocator says: {data.message}")
    return sentences


def _status(data: ReclaimChanged) -> ReclaimStatus:
    ledger = data.ledger
    return ReclaimStatus(
        state=data.state, message=data.message or _STATES.get(data.state, ""), job=data.job, shortage=data.shortage,
        cause=data.cause or cause_of(data),
        shortage_since=format_instant(data.shortage_since), cards=list(data.cards), since=format_instant(data.since),
        due=format_instant(data.due), deadline=None if data.deadline is None else format_instant(data.deadline),
        ended=data.ended, checkpoint_step=data.step if data.step >= 0 else None, manifest=data.manifest,
        cost=data.cost,
        ledger=ReclaimLedgerShape(
            gpus=ledger.gpus, lost=dict(ledger.lost), stages=dict(ledger.stages), steps_lost=ledger.steps_lost
        ),
        history=[
            ReclaimStepShape(at=format_instant(one.at), happened=one.happened, state=one.state) for one in data.history
        ],
        verdicts=[
            ReclaimVerdictShape(job=one.job, why=one.why, numbers=dict(one.numbers)) for one in data.verdicts
        ],
    )  # fmt: skip


def who(shortage: str) -> str:
    """For whom the cards are taken."""
    if not shortage:
        return "a person"
    return f"training job {shortage.removeprefix(OF_JOB)}" if shortage.startswith(OF_JOB) else f"model {shortage}"


def _need(data: ReclaimChanged) -> Iterator[str]:
    gpus = _gpus(data)
    listed = f"{gpus} ({', '.join(data.cards)})" if data.cards else "its GPUs"
    since = _moment(data.shortage_since)
    match data.cause:
        case Cause.GROWS:
            yield f"There was room for more members of training job {data.job} (run {data.run}) for some time."
            yield f"So it had to save by {_moment(data.due)}, to be started again with them."
            return
        case Cause.CARDS_GONE:
            yield f"{gpus[0].upper()}{gpus[1:]} of training job {data.job} (run {data.run}) were gone at {since}."
            yield f"So it had to save and end by {_moment(data.due)}, if anything of it still ran."
            return
    if not data.shortage:
        yield f"A person paused, cancelled or deleted training job {data.job} at {since}."
        yield f"So it had to give back {listed} by {_moment(data.due)}."
        return
    subject = who(data.shortage)
    yield f"{subject[0].upper()}{subject[1:]} lacked GPUs since {since}."
    held = f" of its {data.ledger.gpus:g}" if data.cards and data.ledger.gpus > len(data.cards) else ""
    yield f"So training job {data.job} (run {data.run}) had to give {listed}{held} by {_moment(data.due)}."


def _gpus(data: ReclaimChanged) -> str:
    """What it held, in a few words: GPUs, parts of them, MIG instances."""
    needs, count = [need_of(one.resources) for one in data.held], len(data.cards)
    if needs and all(need.mig_profile for need in needs):
        return "1 MIG instance" if count == 1 else f"{count} MIG instances"
    gpus = "1 GPU" if count == 1 else f"{count} GPUs"
    parts = "a part of" if count == 1 else "parts of"
    return f"{parts} {gpus}" if needs and all(need.shares for need in needs) else gpus


def _choice(data: ReclaimChanged) -> Iterator[str]:
    mine = next((one for one in data.verdicts if one.job == data.job and one.why in TAKEN), None)
    if mine is not None:
        yield f"{data.job} was chosen because {_because(mine)}; its cost was put at {data.cost:.0f} A100-seconds."
    elif data.cost:
        yield f"Its cost was put at {data.cost:.0f} A100-seconds."
    for one in data.verdicts:
        if one is not mine:
            taken = "was chosen too" if one.why in TAKEN else "was not chosen"
            yield f"{one.job} {taken}: {_because(one)}."


def _because(verdict: ReclaimVerdict) -> str:
    numbers = ", ".join(f"{name} {round(value, 1):g}" for name, value in verdict.numbers.items())
    words = _WHY.get(verdict.why, verdict.why)
    return f"{words} ({numbers})" if numbers else words


def _stages(data: ReclaimChanged) -> Iterator[str]:
    """Each change of state, with how long after the one before it came."""
    before = data.shortage_since
    states = {**_STATES, **(_STATES_WITHOUT_CHECKPOINT if data.step < 0 else {})}
    states |= {} if data.shortage else _STATES_FOR_PEOPLE
    for one in data.history:
        words = states.get(one.state, one.state)
        yield f"{_moment(one.at)} (+{_span(one.at - before)}) {one.state}: {words}."
        before = one.at


def _checkpoint(data: ReclaimChanged) -> str:
    if data.step >= 0:
        return f"The checkpoint of step {data.step} was committed and verified."
    return "No checkpoint was proven." if data.ended else "No checkpoint is proven yet."


def _cost(data: ReclaimChanged) -> Iterator[str]:
    lost, stages = data.ledger.lost, data.ledger.stages
    if total := sum(lost.values()):
        parts = ", ".join(f"{value:.1f} {_CAUSES.get(cause, cause)}" for cause, value in lost.items() if value)
        yield f"It cost {total:.1f} GPU-seconds: {parts}."
    if steps := data.ledger.steps_lost:
        yield f"{steps} {'step was' if steps == 1 else 'steps were'} to be done again."
    elif steps == 0:
        yield "No step was lost."
    if total := sum(stages.values()):
        parts = ", ".join(f"{name} {_span(value)}" for name, value in stages.items())
        yield f"From the demand to usable GPUs it took {_span(total)}: {parts}."


def _span(seconds: float) -> str:
    return format_duration(round(max(0.0, seconds), 3))


def _moment(instant: float) -> str:
    """A time to the millisecond: what people compare."""
    return format_instant(instant)[:-4] + "Z"
