"""Uses that the agent keeps for pods: held, prolonged, forgotten, and there again after its restart."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from coldstart.cache import holding
from coldstart.cache.holding import Use
from coldstart.cache.layout import Layout
from deploy.local import holders
from deploy.local.holders import HELD_FOR, Holders, TooManyHolders
from events.clock import SimulatedClock


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A cache with two snapshots."""
    made = Layout(tmp_path)
    made.make()
    for name in ("a", "b"):
        (made.snapshots / name).mkdir()
    return made


@contextlib.contextmanager
def agent(layout: Layout, clock: SimulatedClock) -> Iterator[Holders]:
    """An agent's holders, from its start to its end."""
    made = Holders(layout, clock)
    made.restore()
    try:
        yield made
    finally:
        made.close()


def use(layout: Layout, snapshot: str) -> Use:
    """One that a fetch or a hit gave."""
    taken = holding.take_use(layout, snapshot)
    assert taken is not None
    return taken


def test_a_holder_holds_until_it_ends_or_an_hour_has_passed(layout: Layout) -> None:
    """Prolonging counts from then on; who is not prolonged is forgotten; ending twice is harmless."""
    clock = SimulatedClock(1000.0)
    with agent(layout, clock) as made:
        assert made.take("pod-1", "a", use(layout, "a")) == 1000.0 + HELD_FOR
        made.take("pod-2", "a", use(layout, "a"))
        clock.set(clock.now() + HELD_FOR / 2)
        assert made.prolong("pod-1") == clock.now() + HELD_FOR
        clock.set(clock.now() + HELD_FOR / 2)
        made.forget()
        assert (len(made), made.prolong("pod-2")) == (1, None)
        assert holding.used(layout, "a")
        made.end("pod-1")
        made.end("pod-1")
        assert not holding.used(layout, "a")


def test_an_agent_that_starts_anew_holds_the_same(layout: Layout) -> None:
    """But not what was over meanwhile, or what is gone, or what a power cut left half written."""
    clock = SimulatedClock(1000.0)
    with agent(layout, clock) as made:
        made.take("over", "b", use(layout, "b"))
        clock.set(clock.now() + HELD_FOR - 1)
        made.take("pod-1", "a", use(layout, "a"))
        made.take("gone", "b", use(layout, "b"))
    assert not holding.used(layout, "a")  # its locks ended with it
    (layout.snapshots / "b").rmdir()
    (layout.root / "holders" / "half.json").write_bytes(b"")
    clock.set(clock.now() + 2)
    with agent(layout, clock) as made:
        assert len(made) == 1
        assert holding.used(layout, "a")
        made.end("pod-1")
    with agent(layout, clock) as made:
        assert len(made) == 0
    assert list((layout.root / "holders").iterdir()) == []


def test_a_holder_that_asks_again_holds_the_newer_weights(layout: Layout) -> None:
    """And not the older ones."""
    with agent(layout, SimulatedClock()) as made:
        made.take("pod-1", "a", use(layout, "a"))
        made.take("pod-1", "b", use(layout, "b"))
        assert (len(made), holding.used(layout, "a"), holding.used(layout, "b")) == (1, False, True)


def test_holders_are_bounded(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is refused, and his use stays his; who is there already may ask again."""
    monkeypatch.setattr(holders, "MOST", 1)
    with agent(layout, SimulatedClock()) as made:
        made.take("pod-1", "a", use(layout, "a"))
        another = use(layout, "b")
        with pytest.raises(TooManyHolders):
            made.take("pod-2", "b", another)
        another.end()
        made.take("pod-1", "a", use(layout, "a"))
        assert len(made) == 1
