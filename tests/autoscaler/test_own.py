"""What a model's own policy may answer, wherever it is called: a number, or a decision that can be recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from autoscaler import own
from autoscaler.core.decide import decide
from autoscaler.core.model import Decision, Memory, Reason, Snapshot
from autoscaler.core.policy import ScalingPolicy
from autoscaler.own import AGAIN_LEAST, DECISION_MOST, OwnPolicyFailed, own_policy
from events.units import Instant
from tests.support.autoscaling import POLICY, T0, seen

NOW = Instant(T0)
PLAIN = Decision(replicas=3, reasons=(Reason.OWN_POLICY,), memory=Memory())


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], Decision]:
    """Decide by a policy that answers so."""

    def decided(told: object) -> Decision:
        def function(_: Snapshot, _policy: ScalingPolicy, _now: Instant) -> object:
            return told

        monkeypatch.setattr(own, "_found", lambda _: function)
        return decide(seen(), replace(POLICY, name="mine:policy"), NOW, own_policy("mine:policy"))

    return decided


class Odd:
    """Has no words."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")


def made(**fields: Any) -> Decision:
    """A decision that says something else there."""
    return replace(PLAIN, **fields)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (nan, "answered nan; it must be a whole number from 0 to 500"),
        (-1, "answered -1"), (501, "answered 501"), (10**400, "answered 1000"), (None, "answered None"),
        (True, "answered True"), (2.0, "answered 2.0"), ("3", "answered '3'"), (Odd(), "answered <Odd"),
        (made(replicas=-1), "answered -1"), (made(replicas=nan), "answered nan"),
        (made(again_at=nan), "no decision"), (made(again_at=inf), "no decision"),
        (made(again_at="soon"), "no decision"),
        (made(marginal_gain=nan), "no decision"), (made(marginal_gain=-1.0), "no decision"),
        (made(memory={"a": object()}), "no decision"), (made(memory=None), "no decision"),
        (made(reasons=("because",)), "no decision"), (made(reasons=None), "no decision"),
        (made(kept=-1), "no decision"), (made(deadline=nan), "no decision"),
        (made(memory=Memory(panic_floor=-5)), "no decision"),
        (made(memory=Memory(patience=10**70_000)), f"it may have {DECISION_MOST}|no decision"),
    ],
)  # fmt: skip
def test_what_is_no_answer(answer: Callable[[object], Decision], told: object, words: str) -> None:
    """Whatever cannot be recorded is refused, with what is wrong with it."""
    with pytest.raises(OwnPolicyFailed, match=words):
        answer(told)


def test_reasons_are_said_once(answer: Callable[[object], Decision]) -> None:
    """However often it says them: a record has a bound."""
    told = answer(made(reasons=(Reason.OWN_POLICY, Reason.LOAD) * 100_000))
    assert set(told.reasons) >= {Reason.OWN_POLICY, Reason.LOAD}
    assert len(told.reasons) == len(set(told.reasons))


@pytest.mark.parametrize("again_at", [1.0, T0 - 5.0, T0, T0 + 0.001])
def test_it_is_not_asked_again_at_once(answer: Callable[[object], Decision], again_at: float) -> None:
    """A policy that always wants to be asked at once would keep a core busy."""
    assert answer(made(again_at=again_at)).again_at == NOW + AGAIN_LEAST
    assert answer(made(again_at=T0 + 7.0)).again_at == NOW + 7.0
