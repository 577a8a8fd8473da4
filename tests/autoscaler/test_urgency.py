"""Whose promise burns comes first among models of equal priority: its requests weigh more in the marginal gain."""

from __future__ import annotations

import pytest

from autoscaler.core.burn import FAST, SLOW
from autoscaler.core.decide import decide
from autoscaler.core.model import Burn
from events.units import Instant
from tests.support.autoscaling import POLICY, T0, seen

QUICKLY = Burn(fast=20.0, fast_now=15.0, slow=7.0, slow_now=7.0)
SLOWLY = Burn(fast=8.0, fast_now=8.0, slow=7.0, slow_now=7.0)
OVER = Burn(fast=20.0, fast_now=0.0, slow=7.0, slow_now=0.0)


@pytest.mark.parametrize(
    ("burn", "failing", "times"),
    [
        pytest.param(None, None, 1.0, id="nothing is promised"),
        pytest.param(Burn(), None, 1.0, id="nothing is known yet"),
        pytest.param(QUICKLY, None, FAST, id="in an hour what should last for two days"),
        pytest.param(SLOWLY, None, SLOW, id="in six hours what should last for a day and a half"),
        pytest.param(OVER, None, 1.0, id="it is over"),
        pytest.param(QUICKLY, QUICKLY, 1.0, id="errors, which no replica mends"),
    ],
)
def test_requests_weigh_by_how_fast_the_promise_burns(burn: Burn | None, failing: Burn | None, times: float) -> None:
    """Nine requests on one replica for four: one more would take four of those that nobody takes."""
    plain = decide(seen(running=4, waiting=5, wished=1, ready=1), POLICY, Instant(T0)).marginal_gain
    found = decide(seen(running=4, waiting=5, wished=1, ready=1, burn=burn, failing=failing), POLICY, Instant(T0))
    assert plain == 2.0
    assert found.marginal_gain == pytest.approx(times * plain)
