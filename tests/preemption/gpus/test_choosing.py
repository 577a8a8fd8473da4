"""The placement policies: FGD as published, ours better, all of them the same every time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preemption.adapters.generated import Size, make_nodes, make_pods
from preemption.adapters.submitting import saturating
from preemption.core.gpus.choosing import Chooser, Policy
from preemption.core.gpus.mix import Fragmentation, Mix, typical
from preemption.core.gpus.replay import Filled, fill
from preemption.core.gpus.shapes import NodeSpec, Spot, Task
from preemption.core.gpus.space import Space
from tests.support import gpus, plain_fgd
from tests.support.gpus import node, task

SEEDS = (1, 2, 3)


@settings(max_examples=150, deadline=None)
@given(gpus.nodes, st.lists(gpus.tasks, min_size=1, max_size=30))
def test_fgd_chooses_what_the_paper_says(nodes: list[NodeSpec], coming: list[Task]) -> None:
    """Each single choice is that of the loops that follow the paper, and so is F after it."""
    mix = typical(coming)
    space, plain = Space(nodes), [plain_fgd.PlainNode(spec) for spec in nodes]
    chooser = Chooser(space, Policy.FGD, mix)
    for one in coming:
        spot, wanted = chooser.choose(one), plain_fgd.choose(plain, one, mix)
        assert (spot is None) == (wanted is None)
        if spot is not None and wanted is not None:
            assert (spot.node, spot.cards) == wanted
            space.take(one, spot)
            plain_fgd.take(plain[wanted[0]], one, wanted[1])
    expected = [int(1000 * mix.total * plain_fgd.fragmentation(one, mix)) for one in plain]
    assert Fragmentation(space, mix).now().tolist() == expected


@settings(max_examples=100, deadline=None)
@given(gpus.nodes, st.lists(gpus.tasks, min_size=1, max_size=30), st.sampled_from(Policy), st.randoms())
def test_nothing_is_given_twice_and_all_comes_back(
    nodes: list[NodeSpec], coming: list[Task], policy: Policy, order: object
) -> None:
    """Whatever the policy: nothing falls below zero, what could be placed is, and giving back restores all."""
    space = Space(nodes)
    chooser = Chooser(space, policy, typical(coming))
    placed = []
    for index, one in enumerate(coming):
        room = bool(space.fits(one).any())
        spot = chooser.choose(one, draw=(index * 0.37) % 1)
        assert (spot is not None) == room
        if spot is not None:
            assert len(set(spot.cards)) == one.gpus
            space.take(one, spot)
            placed.append((one, spot))
            assert min(space.cpu.min(), space.memory.min(), space.free.min()) >= 0
    order.shuffle(placed)  # type: ignore[attr-defined] # hypothesis' Random
    for one, spot in placed:
        space.give(one, spot)
    fresh = Space(nodes)
    assert all(np.array_equal(getattr(space, name), getattr(fresh, name)) for name in ("cpu", "memory", "free"))


@settings(max_examples=60, deadline=None)
@given(gpus.nodes, st.lists(gpus.tasks, min_size=1, max_size=25), st.sampled_from(Policy))
def test_what_is_remembered_changes_no_choice(nodes: list[NodeSpec], coming: list[Task], policy: Policy) -> None:
    """A chooser that saw the whole history chooses as one that only sees what is free now."""
    space, mix = Space(nodes), typical(coming)
    old = Chooser(space, policy, mix)
    held = []
    for index, one in enumerate(coming):
        if held and index % 3 == 2:
            space.give(*held.pop(0))
        spot = old.choose(one, draw=0.5)
        assert spot == Chooser(space, policy, mix).choose(one, draw=0.5)
        if spot is not None:
            space.take(one, spot)
            held.append((one, spot))


def cluster(seed: int, scale: float) -> tuple[list[NodeSpec], list[Task]]:
    """The generated cluster and its pods as tasks."""
    pods = make_pods(Size(scale, seed))
    tasks = [Task(cpu_milli=c, memory_bytes=m << 20, gpus=n, milli=milli or 1000) for c, m, n, milli, _ in pods]
    return make_nodes(Size(scale, seed)), tasks


def filled(policy: Policy, seed: int, scale: float = 0.04) -> Filled:
    """A cluster filled until nothing more fits."""
    nodes, tasks = cluster(seed, scale)
    space = Space(nodes)
    return fill(Chooser(space, policy, typical(tasks)), saturating(tasks, space.gpu_total, seed))


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def test_ours_fills_a_cluster_best() -> None:
    """At saturation, over several seeds: ours above FGD, FGD above best fit, best fit above random; fragmentation the
    other way round."""
    by_policy = {policy: [filled(policy, seed) for seed in SEEDS] for policy in Policy}
    held = {policy: mean([one.allocated for one in runs]) for policy, runs in by_policy.items()}
    lost = {policy: mean([one.fragmentation for one in runs]) for policy, runs in by_policy.items()}
    assert held[Policy.RELUME] > held[Policy.FGD] > held[Policy.BESTFIT] > held[Policy.RANDOM]
    assert lost[Policy.RELUME] < lost[Policy.FGD] < lost[Policy.BESTFIT] < lost[Policy.RANDOM]


@pytest.mark.parametrize("policy", list(Policy))
def test_a_seed_gives_the_same_answer_always(policy: Policy) -> None:
    """Two runs are equal in every figure."""
    assert filled(policy, 5, 0.02) == filled(policy, 5, 0.02)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_the_published_size_is_filled_in_seconds(seed: int) -> None:
    """1,213 nodes with 6,212 cards: ours allocates more than FGD, which allocates more than best fit."""
    held = [filled(policy, seed, 1.0).allocated for policy in (Policy.RELUME, Policy.FGD, Policy.BESTFIT)]
    assert held == sorted(held, reverse=True)
    assert held[0] > 0.95


def test_heavy_work_goes_where_cores_are() -> None:
    """Ours keeps the node with many cores a card for work that needs them; F alone sees no difference yet."""
    nodes = [node("few", cards=2, cores=24), node("many", cards=2, cores=104)]
    mix = Mix((task(cores=3), task(cores=20)), (1, 1))
    chooser = Chooser(Space(nodes), Policy.RELUME, mix)
    light, heavy = chooser.choose(task(cores=3)), chooser.choose(task(cores=20))
    assert light is not None
    assert heavy is not None
    assert (light.node, heavy.node) == (0, 1)


@pytest.mark.parametrize("policy", [Policy.RELUME, Policy.FGD, Policy.BESTFIT])
def test_costs_decide_between_equals(policy: Policy) -> None:
    """A node whose weights are cold is taken only when it is better by more than what warming costs."""
    space = Space([node("a", cards=8), node("b", cards=8)])
    space.take(task(), Spot(0, (0,), 1000))
    chooser = Chooser(space, policy, Mix((task(),), (1,)))
    picked = [chooser.choose(task(), costs=None if cold is None else np.array([cold, 0])) for cold in (None, 5, 2000)]
    assert [spot.node if spot else None for spot in picked] == [0, 0, 1]
