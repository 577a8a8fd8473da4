"""What an authority of several gateways knows of one model's leases."""

from __future__ import annotations

from itertools import count

import pytest

from coldstart.core.hold import HoldBudget
from events.units import Bytes, Instant
from runtime.core.frames import Row
from runtime.core.members import Member
from runtime.core.shared_model import NOBODY, UNDECLARED_TOTAL, SharedModel
from runtime.core.slots import ReplicaSlots
from tests.support.slots import MODEL, declared, observed, replica

A, C = Member("a", "a.1"), Member("c", "c.1")
NOW = Instant(1_000.0)


def dead_and_counted(running: int) -> SharedModel:
    """Three slots leased to two gateways that were found dead; then the engine counts what it still runs."""
    model = SharedModel(MODEL, HoldBudget(100, Bytes(1 << 20)))
    model.slots.declare(declared())
    model.observe(observed(replica(0, slots=3, busy_path="/slots")), NOW)
    (at,) = model.slots.replicas.values()
    for handle, (name, holder) in enumerate((("a-0", A), ("c-0", C), ("a-1", A))):
        model.enter(handle, Row(name, holder, at.name, at.life, age=2.0), holder, NOW)
    for holder in (A, C):
        model.bury(holder, NOW)
    names = (f"nobody-{number}" for number in count())
    if at.settle_counted(running, 0, Instant(NOW + 1.0)):
        model.forget_settled(at)
        model.disown(at, lambda: next(names))
    return model


def test_what_a_count_leaves_is_nobodys() -> None:
    """The engine runs two of three, and which two is unknown: that one gateway comes back without its lease frees none.

    Found by a random walk in which two gateways stood still: the lease that was left for the one stood for the other's.
    """
    model = dead_and_counted(running=2)
    (at,) = model.slots.replicas.values()
    assert at.busy == 2
    assert {sold.holder for sold in model.sold.values()} == {NOBODY}
    assert [model.remove(name) for name in ("a-0", "c-0", "a-1")] == [None, None, None]
    assert at.busy == 2


def test_without_a_count_a_gateway_that_comes_back_speaks_for_its_leases() -> None:
    """Nothing was freed, so each lease still stands for itself."""
    model = dead_and_counted(running=3)
    (at,) = model.slots.replicas.values()
    assert {sold.holder for sold in model.sold.values()} == {A, C}
    model.remove("c-0")
    assert at.busy == 2


def test_what_is_left_is_handed_over_as_nobodys() -> None:
    """The next authority, too, takes nobody's word for these slots."""
    model = dead_and_counted(running=1)
    assert [row.holder for row in (sold.row(NOW) for sold in model.sold.values())] == [NOBODY]


def settles_until(model: SharedModel) -> float:
    """When the one slot that settles is free, or its engine suspect."""
    (at,) = model.slots.replicas.values()
    (settling,) = at.settling.values()
    (sold,) = model.sold.values()
    assert sold.settling == settling
    return settling.until


def dead_before_it_was_declared(*, seen_first: bool) -> SharedModel:
    """A lease of two seconds whose gateway dies before anybody here has read what its model declares."""
    model = SharedModel(MODEL, HoldBudget(100, Bytes(1 << 20)))
    at = ReplicaSlots(replica(0, slots=1), ("127.0.0.1", 9000))
    if seen_first:
        model.observe(observed(replica(0, slots=1)), NOW)
    model.enter(1, Row("a-0", A, at.name, at.life, age=2.0), A, NOW)
    model.bury(A, NOW)
    return model


@pytest.mark.parametrize("seen_first", [True, False])
@pytest.mark.parametrize(("total", "left"), [(20.0, 18.0), (1.0, 0.0), (900.0, 598.0)])
def test_the_end_of_a_dead_ones_slot_goes_by_the_declaration_once_it_is_read(
    total: float, left: float, seen_first: bool
) -> None:
    """Whatever is read first, the declaration or what runs; later than it was guessed it is never."""
    model = dead_before_it_was_declared(seen_first=seen_first)
    assert model.total == UNDECLARED_TOTAL
    model.declare(declared(total=total))
    model.observe(observed(replica(0, slots=1)), NOW)
    assert settles_until(model) == NOW + left


def test_another_model_of_the_same_name_says_nothing_of_a_dead_ones_slot() -> None:
    """Its engine was started for one that is deleted, whose requests may have taken longer."""
    model = dead_before_it_was_declared(seen_first=True)
    model.declare(declared(uid="u2", total=20.0))
    assert settles_until(model) == NOW - 2.0 + UNDECLARED_TOTAL


def test_what_a_gateway_itself_says_of_a_slot_is_no_guess() -> None:
    """It has ended, and its gateway said how long the engine may go on: longer than usual, if that was missed."""
    model = SharedModel(MODEL, HoldBudget(100, Bytes(1 << 20)))
    model.observe(observed(replica(0, slots=1)), NOW)
    (at,) = model.slots.replicas.values()
    model.enter(1, Row("a-0", A, at.name, at.life, age=21.0, left=20.0), A, NOW)
    model.bury(A, NOW)
    model.declare(declared(total=20.0))
    assert settles_until(model) == NOW + 20.0
