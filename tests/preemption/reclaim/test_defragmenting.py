"""Moves against fragmentation: what is worth it, in an order that can be made, and never of who must stay."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from events.units import Seconds
from preemption.core.gpus.mix import Fragmentation, Mix
from preemption.core.gpus.shapes import NodeSpec, Spot
from preemption.core.gpus.space import Space
from preemption.core.reclaim.defragmenting import (
    DefragPolicy,
    Movable,
    defragment,
    movable_job,
    movable_replica,
)
from preemption.core.reclaim.planning import Scene
from preemption.core.reclaim.values import Held, Shortage
from tests.support.gpus import node, task
from tests.support.reclaim import NOW, POLICY, cards, job, scenes

WHOLE = Mix((task(4),), (1,))
"""What usually comes takes four cards of one node."""


def pool(*held: Held, nodes: int = 2) -> Space:
    space = Space([node(f"n{index}") for index in range(nodes)])
    for one in held:
        space.take(one.task, one.spot)
    return space


def test_two_halves_become_a_whole() -> None:
    """One card is held on each of two nodes: moving one frees a node of four."""
    first, second = Held(task(), cards(0, 0)), Held(task(), cards(1, 0))
    moves = defragment(pool(first, second), WHOLE, [Movable("a", first, 100.0)], DefragPolicy())
    assert [(move.name, move.source.node, move.target.node) for move in moves] == [("a", 0, 1)]
    assert moves[0].gained == 4000


@pytest.mark.parametrize(("price", "moves"), [(7199.0, 1), (7200.0, 0)])
def test_a_move_that_costs_more_than_it_gains_is_not_made(price: float, moves: int) -> None:
    """Four cards of use for half an hour are 7,200 A100-seconds."""
    first, second = Held(task(), cards(0, 0)), Held(task(), cards(1, 0))
    found = defragment(pool(first, second), WHOLE, [Movable("a", first, price)], DefragPolicy())
    assert len(found) == moves


def test_nothing_moves_where_nothing_is_gained() -> None:
    """One node is full, the other empty."""
    held = Held(task(4), cards(0, 0, 1, 2, 3))
    assert defragment(pool(held), WHOLE, [Movable("a", held, 0.0)], DefragPolicy()) == []


def test_a_move_needs_a_place_that_is_free_now() -> None:
    """Both places exist for a while: on a full pool nothing can move, however much it would gain."""
    held = [Held(task(2), Spot(row, (0, 1), 1000)) for row in range(2)]
    rest = [Held(task(2), Spot(row, (2, 3), 1000)) for row in range(2)]
    assert defragment(pool(*held, *rest), WHOLE, [Movable("a", held[0], 0.0)], DefragPolicy()) == []


def test_who_must_stay() -> None:
    """Gangs, protected and yielding jobs, and those that never committed a checkpoint."""
    assert movable_job(job("t", cards(0, 0)), POLICY, NOW) is not None
    for stays in (job("gang", cards(0, 0), cards(0, 1)), job("p", cards(0, 0), protected=True),
                  job("y", cards(0, 0), yielding=True), job("n", cards(0, 0), last_commit_at=None)):  # fmt: skip
        assert movable_job(stays, POLICY, NOW) is None
    assert movable_replica("r", Held(task(), cards(0, 0)), Seconds(20.0), 2.0).price == 40


def test_a_plan_has_a_bound() -> None:
    """At most so many moves, the most worth first; whose node took another in has nothing to gain any more."""
    held = [Held(task(), cards(row, 0)) for row in range(6)]
    movable = [Movable(f"m{index}", one, float(index)) for index, one in enumerate(held)]
    moves = defragment(pool(*held, nodes=6), WHOLE, movable, DefragPolicy(most=2))
    assert [move.name for move in moves] == ["m0", "m2"]


@settings(max_examples=40, deadline=None)
@given(scenes())
def test_moves_can_be_made_one_after_the_other_and_each_helps(case: tuple[Scene, Shortage]) -> None:
    """Each target is free before its source is left; F falls with each move by what was said."""
    scene, shortage = case
    mix = Mix((shortage.task,), (1,))
    able = [one for one in (movable_job(job, POLICY, NOW) for job in scene.jobs) if one is not None]
    space, held = scene.space.copy(), {one.name: one.held for one in able}
    for move in defragment(scene.space, mix, able, DefragPolicy(lasts=Seconds(1e6))):
        before = int(Fragmentation(space, mix).now().sum())
        space.take(held[move.name].task, move.target)
        assert min(space.free.min(), space.cpu.min(), space.memory.min()) >= 0
        space.give(held[move.name].task, move.source)
        assert before - int(Fragmentation(space, mix).now().sum()) == pytest.approx(move.gained * mix.total)
        assert move.gained >= 100


def test_nodes_are_names_only() -> None:
    """An empty pool has no moves."""
    empty: list[NodeSpec] = []
    assert defragment(Space(empty), WHOLE, [], DefragPolicy()) == []
