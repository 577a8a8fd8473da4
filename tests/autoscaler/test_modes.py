"""Modes, schedules, objectives and one's own policies around the policy that decides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.core import burn
from autoscaler.core.agenda import Agenda
from autoscaler.core.decide import decide
from autoscaler.core.model import Burn, Decision, Memory, Reason, Snapshot
from autoscaler.core.policy import Mode, ScalingPolicy
from autoscaler.deciding import FAILURES_MOST, Decider
from autoscaler.estate import Estate
from autoscaler.own import OwnPolicyFailed, own_policy
from autoscaler.record import replay, wish_of
from autoscaler.settings import AutoscalerSettings
from events.units import Instant, Seconds
from tests.support.autoscaling import POLICY, T0, Run, declared, seen

NOW = Instant(T0)
R = Reason
BUSY = seen(wished=1, ready=1, running=9, demand={"stable": 9.0, "panic": 9.0, "last_active_at": T0})


@pytest.mark.parametrize("name", ["relume", "kpa", "keda", "concurrency"])
def test_recommend_changes_nothing_and_says_what_it_would(name: str) -> None:
    """The wish stands; the recommendation is in the memory, and the policy goes on from it."""
    policy = replace(POLICY, name=name, mode=Mode.RECOMMEND)
    acted = decide(BUSY, replace(policy, mode=Mode.AUTO), NOW)
    first = decide(BUSY, policy, NOW)
    assert (first.replicas, first.memory.recommended) == (1, acted.replicas)
    assert R.RECOMMENDED in first.reasons
    again = decide(replace(BUSY, memory=first.memory), policy, NOW)
    assert again.replicas == 1
    assert (again.memory.recommended or 0) >= acted.replicas


def test_paused_decides_nothing() -> None:
    """Not even for who waits: whoever pauses a model says so by hand."""
    decision = decide(seen(wished=0, waiting=5), replace(POLICY, mode=Mode.PAUSED), NOW)
    assert (decision.replicas, decision.reasons, decision.again_at) == (0, (R.PAUSED,), None)


def test_a_recommendation_is_forgotten_when_it_is_acted_on_again() -> None:
    """Back in the mode auto nothing is left of it."""
    memory = replace(BUSY.memory, recommended=7)
    for name in ("relume", "kpa", "hpa"):
        decision = decide(replace(BUSY, memory=memory), replace(POLICY, name=name), NOW)
        assert decision.memory.recommended is None


def test_recommendations_are_recorded_when_they_change() -> None:
    """Live: a changed recommendation is a record, though the wish is the same."""
    run = Run(declared(mode="recommend"))
    run.serve(waiting=1, seconds=3)
    run.serve(waiting=30, seconds=3)
    assert run.numbers() == [0]
    told = [wish.memory["recommended"] for _, wish in run.wishes]
    assert told[0] == 0
    assert 1 in told
    assert told[-1] == 8
    assert run.restart().fold.models["m"].memory.recommended == 8


@pytest.mark.parametrize("name", ["relume", "kpa", "keda", "hpa", "keepalive", "concurrency", "hybrid-histogram"])
def test_a_schedule_only_adds(name: str) -> None:
    """At least what it wants while it lasts; not above maxReplicas; looked at again when it changes."""
    policy = replace(POLICY, name=name)
    decision = decide(seen(scheduled=3, schedule_changes_at=T0 + 100), policy, NOW)
    assert decision.replicas == 3
    assert R.SCHEDULED in decision.reasons
    assert decision.again_at is not None
    assert decision.again_at <= T0 + 100
    assert decide(seen(scheduled=30, schedule_changes_at=T0 + 100), policy, NOW).replicas == 10
    more = decide(replace(BUSY, scheduled=1, schedule_changes_at=T0 + 100), policy, NOW)
    assert more.replicas >= decide(BUSY, policy, NOW).replicas


def test_a_schedule_live() -> None:
    """It opens and closes by itself, and the record says why."""
    begins = T0 + 14 * 60 - 400  # T0 is 01:46:40; 01:54 is the next whole even minute of the schedule
    run = Run(declared(schedules=[{"cron": "54 1 * * *", "minReplicas": 2, "duration": "10m"}], keepAlive="1m"))
    run.advance(begins - T0 - 1)
    assert run.numbers() == [0]
    run.advance(2)
    assert run.numbers() == [0, 2]
    assert R.SCHEDULED in run.wish().reasons
    run.advance(700)
    assert run.numbers()[-1] == 0


BURNING = Burn(fast=20.0, fast_now=20.0, slow=2.0, slow_now=2.0)


@pytest.mark.parametrize(
    ("seen_now", "burns"),
    [
        (None, False),
        (Burn(), False),
        (BURNING, True),
        (replace(BURNING, fast_now=1.0), False),
        (Burn(slow=6.0, slow_now=6.5), True),
        (Burn(slow=6.0), False),
    ],
)
def test_both_windows_of_a_pair_must_burn(seen_now: Burn | None, burns: bool) -> None:
    """A long window shows that it matters, a short one that it goes on."""
    assert burn.burns(seen_now) is burns


def test_a_burning_objective_adds_a_quarter_for_a_window() -> None:
    """One more of three, held for a stable window; not while what was added starts; not without end."""
    snapshot = seen(
        wished=3, ready=3, running=10, burn=BURNING, demand={"stable": 10.0, "panic": 10.0, "last_active_at": T0}
    )
    added = decide(snapshot, POLICY, NOW)
    assert added.replicas == 4
    assert added.memory.burn_until == T0 + 60
    assert R.SLO_BURN in added.reasons
    held = decide(replace(snapshot, burn=Burn(), memory=added.memory, wished=4), POLICY, Instant(T0 + 30))
    assert held.replicas == 4
    enough = seen(wished=6, ready=6, running=10, burn=BURNING, demand={"stable": 10.0, "panic": 10.0})
    assert burn.floor(enough, POLICY, NOW).replicas == 0  # less than half of what there is is needed on average
    assert decide(seen(burn=BURNING), POLICY, NOW).replicas == 0


MODULE = """
from autoscaler.core.model import Decision, Reason
CALLS = []
def three(snapshot, policy, now):
    return 3
def whole(snapshot, policy, now):
    return Decision(replicas=2, reasons=(Reason.OWN_POLICY,), memory=snapshot.memory)
def raises(snapshot, policy, now):
    CALLS.append(now)
    raise RuntimeError("no")
def lies(snapshot, policy, now):
    return 2.5
def leaves(snapshot, policy, now):
    raise SystemExit(3)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user's module that can be imported."""
    (tmp_path / "users_policies.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return "users_policies"


def by(name: str) -> ScalingPolicy:
    """The policy of this name."""
    return replace(POLICY, name=name)


def test_ones_own_policy_decides(module: str) -> None:
    """A number or a whole decision; held to the bounds; taken again from its record."""
    for function, replicas in (("three", 3), ("whole", 2)):
        policy = by(f"{module}:{function}")
        decision = decide(BUSY, policy, NOW, own_policy(policy.name))
        assert (decision.replicas, decision.reasons) == (replicas, (R.OWN_POLICY,))
        assert replay(wish_of(BUSY, policy, decision)) == decision
    small = replace(by(f"{module}:three"), max_replicas=2)
    assert decide(BUSY, small, NOW, own_policy(small.name)).replicas == 2


@pytest.mark.parametrize("function", ["raises", "lies", "leaves", "absent"])
def test_a_broken_one_says_who(module: str, function: str) -> None:
    """What it raised, answered or lacks, with its path."""
    with pytest.raises(OwnPolicyFailed, match=f"{module}:{function}|no function"):
        _asked(f"{module}:{function}")


def _asked(path: str) -> Decision:
    """What the policy of this path answers."""
    chosen = own_policy(path)
    assert chosen is not None
    return chosen(BUSY, POLICY, NOW)


class _Decides(Decider):
    """Decides a snapshot by itself."""

    def __init__(self) -> None:
        super().__init__(Estate(Agenda(), Seconds(2.0)), Agenda(), AutoscalerSettings())

    def one(self, snapshot: Snapshot, policy: ScalingPolicy) -> Decision:
        return self._decision(snapshot, policy, NOW)


def test_a_broken_one_is_replaced_in_the_end(module: str) -> None:
    """The last wish stands; after so many failures relume decides, and says so, until it is declared anew."""
    decides, policy = _Decides(), by(f"{module}:raises")
    for _ in range(FAILURES_MOST):
        held = decides.one(BUSY, policy)
        assert (held.replicas, held.reasons) == (1, (R.POLICY_FAILED,))
    after = decides.one(BUSY, policy)
    assert after.replicas == 3
    assert R.POLICY_REPLACED in after.reasons
    assert decides.one(BUSY, replace(policy, max_replicas=9)).reasons == (R.POLICY_FAILED,)
    assert decides.one(replace(BUSY, uid="another"), policy).reasons == (R.POLICY_FAILED,)


def test_while_it_fails_who_waits_is_served(module: str) -> None:
    """A model at zero wakes, whatever is broken."""
    decision = _Decides().one(seen(wished=0, waiting=1, memory=Memory()), by(f"{module}:raises"))
    assert decision.replicas == 1
