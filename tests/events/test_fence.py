"""Fences: which writer counts."""

from __future__ import annotations

from events.fence import Fence


def test_a_fence_never_goes_back() -> None:
    """A record of an older taking that arrives late does not let the old writer in again."""
    fence = Fence()
    assert fence.allows("p", None)
    fence.take("p", 7)
    fence.take("p", 3)
    assert [fence.allows("p", epoch) for epoch in (None, 3, 6, 7, 8)] == [False, False, False, True, True]


def test_scopes_are_apart() -> None:
    """Who takes one scope fences that one only."""
    fence = Fence()
    fence.take(0, 9)
    assert fence.allows(1, None)
    assert not fence.allows(0, 8)
