"""Who may wait for a slot, and what whoever may not is told. Pure answers about one model; nothing is changed here."""

from __future__ import annotations

from coldstart.core.hold import Held, HoldRefusal
from events.types.replicas import FAILED_STARTS
from events.units import Instant, Seconds, format_duration
from runtime.core.model_slots import ModelSlots
from runtime.ports import Refusal, RefusalCode

SHUTDOWN_RETRY = Seconds(5.0)
"""When to come back to a process that shuts down: a restart takes about as long. Chosen by reasoning, not measured."""

SOONEST_RETRY = Seconds(1.0)
LATEST_RETRY = Seconds(600.0)
"""Bounds of what a client is told to wait: the header counts whole seconds; ten minutes is as good as "much later"."""


def unknown_model(name: str) -> Refusal:
    """Nobody declared it."""
    return Refusal(RefusalCode.UNKNOWN_MODEL, f"the model {name!r} does not exist")


def deleted_model(name: str) -> Refusal:
    """It was deleted while the request waited."""
    return Refusal(RefusalCode.DELETED, f"the model {name!r} was deleted while this request waited for it")


def shutting_down() -> Refusal:
    """This gateway takes no more requests."""
    return Refusal(RefusalCode.SHUTTING_DOWN, "this gateway is shutting down", SHUTDOWN_RETRY)


def too_late(model: ModelSlots, waited: float) -> Refusal:
    """The deadline passed while the request waited."""
    what = "a free slot" if model.ready else "the model to start"
    message = f"no slot of {model.name!r} within the time this request may wait ({_words(waited)}): waited for {what}"
    return Refusal(RefusalCode.DEADLINE, message)


def impossible(model: ModelSlots, deadline: Instant, now: Instant) -> Refusal | None:
    """Why a request with this deadline need not wait, or None. Only for models without a ready replica.

    Unknown is not impossible: before a start of this model was seen, whoever comes may wait.
    """
    retry_at = model.retry_at
    if model.failures >= FAILED_STARTS and retry_at is not None and retry_at > now:
        return start_failed(model, now)
    if retry_at is not None and retry_at >= deadline:
        return start_failed(model, now)
    no_node_until = model.no_node_until
    if no_node_until is not None and no_node_until >= deadline:
        return no_node(model, no_node_until, now)
    ready_by = model.ready_by(now)
    if ready_by is None or ready_by <= deadline:
        return None
    if model.failures:
        return start_failed(model, now)
    needed, left = _words(ready_by - now), _words(deadline - now)
    message = f"the model {model.name!r} needs about {needed} to start; this request may wait only {left}"
    return Refusal(RefusalCode.IMPOSSIBLE, message, retry_after(model, now))


def start_failed(model: ModelSlots, now: Instant) -> Refusal:
    """The model does not start, and why."""
    seen = model.observed
    why = ": ".join(part for part in (seen.reason, seen.message) if part) or "no reason was given"
    times = "once" if model.failures == 1 else f"{model.failures} times in a row"
    message = f"the model {model.name!r} failed to start {times}: {why}"
    return Refusal(RefusalCode.START_FAILED, message, retry_after(model, now))


def no_node(model: ModelSlots, until: Instant, now: Instant) -> Refusal:
    """There is no room for the model, and no node that was called for came."""
    stand_ins = model.observed.stand_ins
    why = "" if stand_ins is None else stand_ins.message
    retry = Seconds(min(max(until - now, SOONEST_RETRY), LATEST_RETRY))
    return Refusal(RefusalCode.IMPOSSIBLE, f"there is no room for the model {model.name!r}: {why}", retry)


def told_hopeless(model: ModelSlots, now: Instant) -> Refusal:
    """What those are told that need not wait any more."""
    until = model.no_node_until
    return start_failed(model, now) if model.failures or until is None else no_node(model, until, now)


def hopeless(model: ModelSlots, failures_before: int, now: Instant) -> Instant | None:
    """Requests with deadlines up to this instant need not wait any more, after a failed start or a call for nodes that
    was taken back. None: all may go on.

    All fail at the third failure and at each one after it; before, those whose deadline is before the earliest success.
    """
    if model.ready or not model.failures:
        return model.no_node_until
    retry_at = model.retry_at
    if model.failures >= FAILED_STARTS and (model.failures > failures_before or (retry_at or now) > now):
        return Instant(float("inf"))
    if retry_at is None:
        return None
    return Instant(retry_at + (model.estimate.eta(now) or 0.0))


def cannot_hold(model: ModelSlots, held: Held, why: HoldRefusal, now: Instant) -> Refusal:
    """The hold queue did not take the request."""
    if why is HoldRefusal.TOO_OLD:
        return too_late(model, now - held.arrived_at)
    return Refusal(RefusalCode.QUEUE_FULL, f"no slot of {model.name!r} is free: {why.value}", retry_after(model, now))


def retry_after(model: ModelSlots, now: Instant) -> Seconds:
    """When a request that is refused now would fare better.

    With replicas: when the queue will have drained, at the measured rate. Without: when one is surely ready, as far as
    is known; for a model that never started the declaration's promise (`coldStart.sla`) stands in.
    """
    if model.ready:
        rate = model.drain_rate.rate(now)
        wait = len(model.queue) / rate if rate else float(SOONEST_RETRY)
    else:
        sure = model.ready_in(now, surely=True)
        promise = 0.0 if model.declared is None else float(model.declared.cold_start.sla)
        back_off = 0.0 if model.retry_at is None else model.retry_at - now
        wait = sure if sure is not None else max(promise, back_off)
    return Seconds(min(max(wait, SOONEST_RETRY), LATEST_RETRY))


def _words(seconds: float) -> str:
    return format_duration(round(max(0.0, seconds), 1))
