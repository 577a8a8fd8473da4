"""The pool as arrays: bytes, turns, MIG, topology, gangs, and the reserve."""

from __future__ import annotations

import numpy as np
import pytest

from events.types.replicas import Card, CardsObserved
from preemption.core.gpus.cards import node_spec, units
from preemption.core.gpus.choosing import Chooser, Policy
from preemption.core.gpus.gang import place_gang
from preemption.core.gpus.mix import Fragmentation, Mix, typical
from preemption.core.gpus.parts import NEVER, usable_bytes
from preemption.core.gpus.reserve import Reserve, for_training
from preemption.core.gpus.shapes import CardSpec, Mode, Spot, Task, check_task
from preemption.core.gpus.space import Space
from preemption.core.gpus.topology import pick_cards
from tests.support.gpus import GI, mig_node, node, task, with_cards


def test_bytes_are_a_larger_part_of_a_smaller_card() -> None:
    """12 GiB are 300 thousandths of 40 GiB and 750 of 16; a card whose memory is unknown is left alone."""
    cards = [CardSpec(id=str(size), usable_bytes=size * GI) for size in (40, 16, 0)]
    space = Space([with_cards("a", *cards)])
    wanted = task(gpu_bytes=12 * GI)
    assert space.need(wanted).tolist() == [[300, 750, NEVER]]
    assert space.room(wanted).tolist() == [3 + 1]


def test_turns_are_given_whole() -> None:
    """A turn of four is taken whole by who asks for a quarter or less, by nobody who asks for more, and is no whole
    card for anybody; all turns together are the card."""
    turns = [CardSpec(id=f"0::{at}", mode=Mode.SLICED, turns=4, usable_bytes=40 * GI) for at in range(4)]
    space = Space([with_cards("a", *turns)])
    assert space.need(task(milli=200)).tolist() == space.need(task(gpu_bytes=10 * GI)).tolist() == [[250] * 4]
    assert space.room(task(milli=250)).tolist() == [4]
    assert not any(space.fits(one).any() for one in (task(), task(milli=251), task(gpu_bytes=10 * GI + 1)))
    assert space.gpu_total == 1000


def test_instances_are_taken_and_given() -> None:
    """A MIG card tells its free memory slices as thousandths, takes each start once, and gets it back."""
    space = Space([mig_node()])
    half = task(profile="3g.20gb")
    assert space.room(half).tolist() == [2]
    spot = Chooser(space, Policy.RELUME, Mix((half,), (1,))).choose(half)
    assert spot == Spot(0, (0,), 0, 4)
    space.take(half, spot)
    assert space.free.tolist() == [[500]]
    with pytest.raises(ValueError, match="not there to move"):
        space.take(half, spot)
    space.give(half, spot)
    assert (space.free.tolist(), space.state.tolist()) == ([[1000]], [[0]])


def test_whole_cards_and_instances_do_not_mix() -> None:
    """Work that wants a whole card never lands on one that is split, nor the other way round."""
    space = Space([node("a", cards=1), mig_node("b")])
    assert space.fits(task()).tolist() == [True, False]
    assert space.fits(task(profile="1g.5gb")).tolist() == [False, True]
    assert not space.fits(task(profile="1g.99gb")).any()


def test_what_is_free_of_a_split_card_is_lost_to_those_who_cannot_use_it() -> None:
    """F counts a split card for work that wants it whole, and a card with half free for the profile that finds no
    start."""
    space = Space([mig_node()])
    half, whole = task(profile="3g.20gb"), task()
    assert Fragmentation(space, Mix((whole,), (1,))).now().tolist() == [1000]
    of_half = Fragmentation(space, Mix((half,), (1,)))
    assert of_half.now().tolist() == [0]
    quarter = task(profile="2g.10gb")
    for start in (0, 4):
        space.take(quarter, Spot(0, (0,), 0, start))
    assert of_half.now().tolist() == [500]


def test_small_instances_go_where_they_hurt_least() -> None:
    """The gradient puts a small instance onto a card that is broken already, and keeps the other whole for halves."""
    space = Space([mig_node(cards=2)])
    small, half = task(profile="1g.5gb"), task(profile="3g.20gb")
    chooser = Chooser(space, Policy.FGD, typical([small, half]))
    for _ in range(3):  # the upper half has three starts for the smallest: the eighth slice is no start
        spot = chooser.choose(small)
        assert spot is not None
        space.take(small, spot)
    assert sorted(space.free[0].tolist()) == [625, 1000]


@pytest.mark.parametrize(
    ("links", "free", "count", "picked"),
    [
        ((0, 0, 0, 0, 1, 1, 1, 1), (1, 2, 3, 4, 5), 2, (4, 5)),  # the island with least to spare
        ((0, 0, 0, 0, 1, 1, 1, 1), (1, 2, 3, 4, 5), 3, (1, 2, 3)),
        ((0, 0, 1, 1), (0, 2), 2, (0, 2)),  # no island has two: across
        ((None, None, None), (0, 2), 2, (0, 2)),
    ],
)
def test_cards_that_reach_each_other_are_picked(
    links: tuple[int | None, ...], free: tuple[int, ...], count: int, picked: tuple[int, ...]
) -> None:
    """Within one NVLink island where one has enough."""
    assert pick_cards([CardSpec(id=str(i), link=link) for i, link in enumerate(links)], free, count) == picked


def test_sockets_come_after_islands() -> None:
    """Without NVLink, on one NUMA node; where none has enough, on as few as possible."""
    cards = [CardSpec(id=str(i), numa=numa) for i, numa in enumerate((0, 0, 0, 1, 1, 2))]
    assert pick_cards(cards, (0, 3, 4, 5), 2) == (3, 4)
    assert pick_cards(cards, (0, 3, 4, 5), 3) == (0, 3, 4)
    with pytest.raises(ValueError, match="4 cards are wanted and 3 are free"):
        pick_cards(cards, (0, 1, 2), 4)


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    """Three members of two cards fit two nodes of four; a fourth and fifth leave nothing behind."""
    space = Space([node("a"), node("b")])
    chooser = Chooser(space, Policy.RELUME, Mix((task(2),), (1,)))
    spots = place_gang(chooser, [task(2)] * 3)
    assert spots is not None
    assert space.gpu_free == 2000
    assert place_gang(chooser, [task(2)] * 2) is None
    assert space.gpu_free == 2000


def test_a_gang_stays_together() -> None:
    """Members go to the node of their gang, unless another is much better; the largest is placed first."""
    chooser = Chooser(Space([node("a"), node("b")]), Policy.RELUME, Mix((task(),), (1,)))
    spots = place_gang(chooser, [task(1), task(3)])
    assert spots is not None
    assert spots[0].node == spots[1].node


def test_training_leaves_the_reserve() -> None:
    """Of eight whole cards one, of four none; of shared cards a fifth of their parts, of time-sliced ones of their
    turns."""
    turns = [CardSpec(id=f"0::{at}", mode=Mode.SLICED, turns=4) for at in range(4)]
    space = Space([node("eight", cards=8), node("four"), node("parts", cards=2), with_cards("turns", *turns)])
    training = np.zeros_like(space.free)
    partial = np.zeros_like(space.free)
    partial[2] = 1
    seen = for_training(space, training, partial, Reserve())
    assert (seen.free == 1000).sum(axis=1).tolist()[:2] == [7, 4]
    assert seen.free[2].tolist()[:2] == [1000, 600]
    assert seen.room(task(milli=100)).tolist()[3] == 3
    assert space.free[0].sum() == 8000


def test_training_leaves_instances_of_each_profile() -> None:
    """Of seven instances one, of two none; what models hold counts, and what training holds is not taken from it."""
    small, large = task(profile="1g.5gb"), task(profile="3g.20gb")
    cards = [CardSpec(id=f"s{at}", mode=Mode.MIG, family="instance:1g.5gb") for at in range(7)]
    cards += [CardSpec(id=f"l{at}", mode=Mode.MIG, family="instance:3g.20gb") for at in range(2)]
    space = Space([with_cards("n", *cards)])
    none = np.zeros_like(space.free)
    seen = for_training(space, none, none, Reserve())
    assert (seen.room(small).tolist(), seen.room(large).tolist()) == ([6], [2])
    assert for_training(space, none, none, Reserve(shared=0.0)).room(small).tolist() == [7]
    space.take(small, Spot(0, (0,), 0, 0))
    assert for_training(space, none, none, Reserve()).room(small).tolist() == [6], "a model has the one that is kept"
    training = none.copy()
    for card in range(1, 6):
        space.take(small, Spot(0, (card,), 0, 0))
        training[0, card] = space.takes(small, Spot(0, (card,), 0, 0), card)
    assert for_training(space, training, none, Reserve()).room(small).tolist() == [1]
    space.give(small, Spot(0, (0,), 0, 0))
    assert for_training(space, training, none, Reserve()).room(small).tolist() == [1]


def test_parts_of_cards_add_up_to_cards() -> None:
    """Instances and turns count as their parts: what is free and of no use is never more than what is free."""
    instances = [CardSpec(id=f"m{at}", mode=Mode.MIG, family="instance:1g.5gb") for at in range(7)]
    turns = [CardSpec(id=f"0::{at}", mode=Mode.SLICED, turns=4) for at in range(4)]
    space = Space([with_cards("n", *instances, *turns, CardSpec(id="whole"))])
    assert space.gpu_total == space.gpu_free == 7 * 142 + 1000 + 1000
    assert Fragmentation(space, Mix((task(1),), (1,))).ratio() == pytest.approx(1994 / 2994)
    space.take(task(profile="1g.5gb"), Spot(0, (0,), 0, 0))
    assert space.gpu_free == 6 * 142 + 2000


def test_what_inference_holds_counts_as_its_reserve() -> None:
    """Training may fill a node on which latency-critical work has its share already, and never more than its own."""
    space = Space([node("a", cards=8)])
    space.take(task(1), Spot(0, (0,), 1000))
    training = np.zeros_like(space.free)
    assert (for_training(space, training, training, Reserve()).free == 1000).sum() == 7
    for card in range(1, 8):
        space.take(task(1), Spot(0, (card,), 1000))
        training[0, card] = 1000
    space.give(task(1), Spot(0, (0,), 1000))
    assert (for_training(space, training, training * 0, Reserve()).free == 1000).sum() == 0


def test_cards_are_known_by_what_is_usable_and_worth() -> None:
    """Programs never get the nominal memory; an A100 is 1.0; a kind nobody knows is 1.0 too."""
    real = Card(id="g", product="NVIDIA A100-SXM4-40GB", memory_bytes=40960 << 20)
    assert usable_bytes(real) == 40192 << 20
    assert usable_bytes(Card(id="g", product="Tesla T4", memory_bytes=16 * GI)) < 16 * GI
    assert usable_bytes(Card(id="g")) == 0
    assert usable_bytes(Card(id="g", memory_bytes=GI, virtual=True)) == GI
    products = ("NVIDIA A100-PCIE-40GB", "NVIDIA H100 80GB HBM3", "Tesla T4", "new")
    assert [round(units(name), 2) for name in products] == [1.0, 3.17, 0.21, 1.0]
    spec = node_spec(CardsObserved(node="n", cpu=1.5, memory_bytes=GI, cards=(real,)))
    assert (spec.cpu_milli, spec.model, spec.cards[0].id) == (1500, "NVIDIA A100-SXM4-40GB", "g")


@pytest.mark.parametrize(
    "wrong",
    [Task(gpus=-1), Task(gpus=1, milli=0), Task(gpus=1, milli=1001), Task(gpus=2, milli=500), Task(profile="1g.5gb")],
)
def test_a_task_that_means_nothing_is_refused(wrong: Task) -> None:
    """Negative, more than a card, a part of several cards, a profile without a card."""
    with pytest.raises(ValueError, match=r"."):
        check_task(wrong)
