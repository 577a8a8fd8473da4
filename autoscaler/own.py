"""A model's own policy: `path.to.module:function`, called as all policies are.

    def decide(snapshot: Snapshot, policy: ScalingPolicy, now: Instant) -> int | Decision

It runs with all the rights of relume, so whoever may declare a model may run code, as with a command engine. What it
raises or answers wrongly is `OwnPolicyFailed`. A running autoscaler asks it in another process, with bounds
(`autoscaler.adapters.own_process`); replays and simulations call it in place.
"""

from __future__ import annotations

import importlib
import json
import reprlib
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from autoscaler.codec import decision_json, read_decision
from autoscaler.core.model import Decision, Policy, Reason, Snapshot, in_order
from autoscaler.core.policy import ScalingPolicy
from events.types.replicas import MAX_REPLICAS
from events.units import Instant, Seconds

LOOK_AGAIN = Seconds(5.0)
"""When a model is looked at again whose policy answered with a number only."""

AGAIN_LEAST = Seconds(1.0)
"""A policy that asks to be asked again at once would keep a core busy; what happens has it asked all the same."""

DECISION_MOST = 64 << 10
"""Bytes of a decision that a policy makes itself: it is recorded, with what it was taken from. (Relume's take some.)"""

FOUND_MOST = 64


class OwnPolicyFailed(Exception):
    """It cannot be imported, raised, or answered what is no number of replicas."""


def own_policy(name: str) -> Policy | None:
    """The policy of this import path; None when the name is none. Raises OwnPolicyFailed."""
    if ":" not in name:
        return None
    return _checked(name, _found(name))


@lru_cache(maxsize=FOUND_MOST)
def _found(path: str) -> Callable[[Snapshot, ScalingPolicy, Instant], object]:
    """Modules beside the working folder are found too, as with `python -m`."""
    module, _, name = path.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        function: object = getattr(importlib.import_module(module), name, None)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise OwnPolicyFailed(f"{path} cannot be imported: {words_of(error)}") from error
    if not callable(function):
        raise OwnPolicyFailed(f"{path}: {module} has no function {name!r}")
    return function


def _checked(path: str, function: Callable[[Snapshot, ScalingPolicy, Instant], object]) -> Policy:
    def decide(snapshot: Snapshot, policy: ScalingPolicy, now: Instant) -> Decision:
        try:
            answer = function(snapshot, policy, now)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise OwnPolicyFailed(f"{path} raised {words_of(error)}") from error
        if isinstance(answer, Decision):
            number: object = answer.replicas
        else:
            number, answer = answer, None
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MAX_REPLICAS:
            raise OwnPolicyFailed(
                f"{path} answered {reprlib.repr(number)}; it must be a whole number from 0 to {MAX_REPLICAS}"
            )
        if answer is not None:
            return _whole(path, answer, now)
        memory = replace(snapshot.memory, last_busy_at=snapshot.demand.last_active_at)
        again = now + LOOK_AGAIN
        return Decision(replicas=number, reasons=(Reason.OWN_POLICY,), memory=memory, again_at=again)

    return decide


def words_of(error: BaseException) -> str:
    """What an error of somebody else's says, bounded; it may fail at that too."""
    try:
        said = f": {error}"
    except Exception:  # noqa: BLE001 - as said
        said = ", which has no words"
    return f"{type(error).__name__}{said}"[:1000]


def _whole(path: str, answer: Decision, now: Instant) -> Decision:
    """A decision of its own making, which may hold anything. It is looked at again in a second at the earliest."""
    try:
        raw = decision_json(replace(answer, reasons=in_order(set(answer.reasons))))
        size = len(json.dumps(raw))
        decision = read_decision(raw)
    except Exception as error:
        raise OwnPolicyFailed(f"{path} answered what is no decision: {type(error).__name__}: {error}"[:1000]) from error
    if size > DECISION_MOST:
        raise OwnPolicyFailed(f"{path} answered a decision of {size} bytes; it may have {DECISION_MOST}")
    if decision.again_at is not None and decision.again_at < now + AGAIN_LEAST:
        return replace(decision, again_at=now + AGAIN_LEAST)
    return decision
