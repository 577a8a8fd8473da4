"""Back-off, the budget of retries, stalls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstart.core.cache.pace import Patience, Pulse
from coldstart.core.cache.policy import FetchPolicy, RoomPolicy
from events.units import Instant, Seconds

POLICY = FetchPolicy()


def test_back_off_doubles_up_to_its_bound() -> None:
    """And begins anew after a chunk came."""
    patience = Patience(POLICY, chunks=0)
    waits = [patience.failed(None, 0.5) for _ in range(8)]
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.5, 2.5]
    patience.came()
    assert patience.failed(None, 0.5) == 0.05


@given(st.floats(0, 60), st.floats(0, 1, exclude_max=True))
def test_retry_after_is_never_undercut(wanted: float, draw: float) -> None:
    """Whatever the jitter."""
    waited = Patience(POLICY, 1).failed(Seconds(wanted), draw)
    assert waited is not None
    assert waited >= wanted


def test_patience_ends() -> None:
    """By the budget, though chunks come between; at once where more patience is asked than there is."""
    patience = Patience(FetchPolicy(retries=2, retries_share=0.5), chunks=4)
    for _ in range(4):
        assert patience.failed(None, 0.0) is not None
        patience.came()
    assert patience.failed(None, 0.0) is None
    assert Patience(POLICY, 4).failed(Seconds(61.0), 0.0) is None


def test_a_trickle_is_a_stall() -> None:
    """Less than the floor in five seconds; what is slow but flows is not."""
    trickle = Pulse(POLICY, Instant(0.0))
    assert [trickle.stalled(1, Instant(at)) for at in (1.0, 4.9, 5.1)] == [False, False, True]
    flow = Pulse(POLICY, Instant(0.0))
    assert not any(flow.stalled(4096, Instant(4.0 * at)) for at in range(1, 20))


@pytest.mark.parametrize("wrong", [{"chunk_bytes": 0}, {"connections_first": 0}, {"connections_first": 99},
                                   {"retries": -1}, {"stall": 0.0}])  # fmt: skip
def test_nonsense_policies_are_refused(wrong: dict[str, int]) -> None:
    """When they are made."""
    with pytest.raises(ValueError, match=next(iter(wrong)).split("_")[0]):
        FetchPolicy(**wrong)


def test_nonsense_watermarks_are_refused() -> None:
    """Low above high would evict for ever."""
    with pytest.raises(ValueError, match="low"):
        RoomPolicy(high=0.5, low=0.6)
