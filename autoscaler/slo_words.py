"""Sentences about objectives: how fast they are used up, and what a replica was learned to bear."""

from __future__ import annotations

from autoscaler.core import burn
from autoscaler.core.capacity import AGAIN, bearable
from autoscaler.core.model import Burn, Memory, Snapshot
from autoscaler.core.policy import ScalingPolicy
from autoscaler.words import clock_time, number, requests, span


def slo_sentences(snapshot: Snapshot, policy: ScalingPolicy, memory: Memory) -> tuple[str, ...]:
    """`policy` as it was declared. Nothing where nothing is promised or known."""
    told = (
        _burning("What is late or refused", snapshot.burn),
        _burning("What fails", snapshot.failing),
        _capacity(policy, memory, snapshot.taken_at),
    )
    return tuple(text for text in told if text)


def _burning(what: str, seen: Burn | None) -> str:
    if seen is None:
        return ""
    pairs = (("the last hour", seen.fast), ("five minutes", seen.fast_now), ("six hours", seen.slow),
             ("thirty minutes", seen.slow_now))  # fmt: skip
    known = [f"{number(rate)} over {over}" for over, rate in pairs if rate is not None]
    if not known:
        return ""
    fast, slow = number(burn.FAST), number(burn.SLOW)
    verdict = "within bounds"
    if burn.burns(seen):
        verdict = f"too fast: {fast} over an hour and five minutes is, or {slow} over six hours and thirty minutes"
    return f"{what} uses the error budget up at {', '.join(known)} times the rate that is promised ({verdict})."


def _capacity(policy: ScalingPolicy, memory: Memory, now: float) -> str:
    known = memory.capacity
    if known is None or not policy.learns:
        return ""
    if known.in_vain:
        return (
            "Answers are late also with fewer at a time on a replica, and take as long: the engine is slow by itself, "
            "so more replicas are not asked for on that account."
        )
    if known.limit is None or known.limit >= policy.slots:
        return ""
    text = f"A replica was learned to bear {requests(known.limit)} at a time within what is promised"
    if known.trying:
        text = f"It is tried whether a replica bears {requests(known.limit)} at a time within what is promised"
    if known.tokens is not None:
        text += f", and {number(known.tokens)} tokens a second"
    if known.limited_at is not None:
        text += f" ({'since' if known.trying else 'as of'} {clock_time(known.limited_at, now)})"
    text += f", so the target is {number(bearable(policy, known).target)} instead of {number(policy.target)}"
    if not known.failed:
        return f"{text}."
    wait = span(AGAIN * (1 << known.failed))
    what = "The last trial of more failed" if known.failed == 1 else f"The last {known.failed} trials of more failed"
    return f"{text}. {what}: the next comes after {wait}, or after {span(AGAIN)} while the promise bears it."
