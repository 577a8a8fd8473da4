"""Sentences about objectives: how fast they are used up, and what a replica was learned to bear."""

from __future__ import annotations

from autoscaler.core import burn
from autoscaler.core.capacity import bearable
from autoscaler.core.model import Burn, Memory, Snapshot
from autoscaler.core.policy import ScalingPolicy
from autoscaler.words import clock_time, number, requests


def slo_sentences(snapshot: Snapshot, policy: ScalingPolicy, memory: Memory) -> tuple[str, ...]:
    """`policy` as it was declared. Nothing where nothing is promised or known."""
    told = (
        _burning("What is late or refused", snapshot.burn),
        _burning("What fails", snapshot.failing),
        _capacity(policy, memory),
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
    verdict = f"too fast: {number(burn.FAST)} or {number(burn.SLOW)} is" if burn.burns(seen) else "within bounds"
    return f"{what} uses the error budget up at {', '.join(known)} times the rate that is promised ({verdict})."


def _capacity(policy: ScalingPolicy, memory: Memory) -> str:
    known = memory.capacity
    if known is None or not policy.learns:
        return ""
    if known.in_vain:
        return (
            "Answers are late also with fewer at a time on a replica, and take as long: the engine is slow by itself, "
            "so more replicas are not asked for on that account."
        )
    if known.limit is None:
        return ""
    text = f"A replica was learned to bear {requests(known.limit)} at a time within what is promised"
    if known.tokens is not None:
        text += f", and {number(known.tokens)} tokens a second"
    if known.limited_at is not None:
        text += f" (as of {clock_time(known.limited_at)})"
    return f"{text}, so the target is {number(bearable(policy, known).target)} instead of {number(policy.target)}."
