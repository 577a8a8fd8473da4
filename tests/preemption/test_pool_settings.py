"""Settings of a pool and words about cards, while it runs and after a restart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from events.clock import SimulatedClock, settle
from events.types.pools import CardMarked, PoolDeclared
from events.types.replicas import Card, CardsObserved
from events.types.shared import Resources
from events.types.training import Ending, MemberStatus, RunState, TrainingObserved
from preemption.core.gpus.cards import units
from preemption.core.lending.policy import LendingPolicy
from preemption.core.reclaim.pool_policy import PoolPolicy
from preemption.core.reclaim.prechecking import task_of
from preemption.core.reclaim.words import Words
from tests.preemption.test_loop import declared, running, wish
from tests.preemption.test_loop_training import TrainingBench, job
from tests.support.lending import LendingWorld, assert_nothing_twice
from tests.support.pool import GI, needs, node


def settings(**spec: object) -> PoolDeclared:
    return PoolDeclared(pool="default", uid="p", revision=1, generation=1, spec=spec)  # type: ignore[arg-type]  # tests name real fields


@pytest.fixture
def bench() -> TrainingBench:
    return TrainingBench(SimulatedClock())


async def test_settings_hold_from_the_next_decision_on(bench: TrainingBench) -> None:
    """A budget of nothing lets nobody yield, and the shortage says so; once it is raised the victim is told, without a
    restart. Of another pool nothing counts, and what cannot be read changes nothing."""
    await bench.say(settings(reclaim={"budgetPerHour": 0}), node(gpus=1), declared(), job())
    async with running(bench.allocator):
        await bench.see()
        await bench.say(wish(1))
        assert (await bench.training()).notice is None
        assert (await bench.newest()).shortage is not None
        await bench.say(replace(settings(), pool="other"), settings(reclaim={"mercy": 1}))
        await settle()
        assert (await bench.training()).notice is None
        assert bench.allocator.stats.unreadable == 1
        await bench.say(settings(reclaim={"budgetPerHour": 5}))
        assert (await bench.training()).notice is not None


async def test_settings_are_read_by_the_next_leader(bench: TrainingBench) -> None:
    """They stand in the log; deleting them brings the defaults back."""
    await bench.say(settings(reclaim={"budgetPerHour": 0}), node(gpus=1), declared(), job())
    async with running(bench.allocator):
        await bench.see()
    async with running(bench.new_allocator("second")):
        await bench.say(wish(1))
        assert (await bench.training()).notice is None
        await bench.say(replace(settings(), deleted=True))
        assert (await bench.training()).notice is not None


def test_the_reserve_is_kept_from_training() -> None:
    """With half of the whole cards reserved, training gets two of four; when that is taken back, the rest."""
    world = LendingWorld(node(gpus=4))
    world.pool.set_policy(PoolPolicy(LendingPolicy(reserve_whole=0.5)))
    for index in range(4):
        world.train(f"t{index}")
    world.settle()
    assert sum(bool(grant.members) for grant in world.training.values()) == 2
    world.pool.set_policy(PoolPolicy(LendingPolicy(reserve_whole=0.0)))
    world.settle()
    assert sum(bool(grant.members) for grant in world.training.values()) == 4


@pytest.mark.parametrize(
    ("product", "own", "worth"),
    [
        ("NVIDIA H100 80GB HBM3", {"H100": 4.0}, 4.0),
        ("NVIDIA H100 80GB HBM3", {"H100": 4.0, "H100 80GB": 5.0}, 5.0),
        ("NVIDIA H100 80GB HBM3", {"H200": 4.0}, 989.0 / 312.0),
        ("", {"H100": 4.0}, 1.0),
        ("some-new-card", {"some-new-card": 2.5}, 2.5),
    ],
)
def test_what_a_card_is_worth_is_its_owners_to_say(product: str, own: dict[str, float], worth: float) -> None:
    """The longest name that its words contain counts, before the data sheets."""
    assert PoolPolicy(units=own).worth(Card(id="g", product=product)) == pytest.approx(worth)
    assert units(product, {}) == units(product)


@pytest.mark.parametrize(
    ("product", "profile", "part"),
    [
        ("NVIDIA A100-SXM4-40GB", "", 1.0), ("NVIDIA A100-SXM4-40GB", "1g.5gb", 1 / 7),
        ("NVIDIA A100-SXM4-40GB", "1c.3g.20gb", 3 / 7), ("NVIDIA H100 80GB HBM3", "7g.80gb", 1.0),
        ("NVIDIA A30", "2g.12gb", 0.5), ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "4g.96gb", 1.0),
        ("", "1g.10gb", 1 / 7), ("NVIDIA A30", "7g.80gb", 1.0),
    ],
)  # fmt: skip
def test_an_instance_is_worth_its_part_of_the_card(product: str, profile: str, part: float) -> None:
    """By compute slices; the same for victims, for moves, and in what `relume gpus` shows."""
    whole, one = Card(id="g", product=product), Card(id="g", product=product, profile=profile)
    assert PoolPolicy().worth(one) == pytest.approx(part * PoolPolicy().worth(whole))
    asked = task_of(Resources(mig_profile=profile) if profile else Resources(gpus=1))
    assert PoolPolicy().best([whole, one], asked) == pytest.approx(PoolPolicy().worth(one if profile else whole))


H100, L4 = Card(id="h", product="NVIDIA H100 80GB HBM3"), Card(id="l", product="L4", memory_bytes=24 * GI, virtual=True)
BEST = PoolPolicy().worth(H100)


@pytest.mark.parametrize(
    ("cards", "asked", "worth"),
    [
        ([H100, L4], Resources(gpus=2), 2 * BEST),
        ([H100, L4], Resources(gpu_fraction=0.25), 0.25 * BEST),
        ([L4], Resources(gpu_bytes=6 * GI), 0.25 * PoolPolicy().worth(L4)),
        ([replace(L4, turns=4)], Resources(gpu_bytes=GI), 0.25 * PoolPolicy().worth(L4)),
        ([replace(H100, turns=2), L4], Resources(gpus=1), PoolPolicy().worth(L4)),
        ([replace(H100, profile="1g.10gb"), L4], Resources(gpus=1), PoolPolicy().worth(L4)),
        ([H100], Resources(mig_profile="3g.40gb"), 3 / 7 * BEST),
        ([H100], Resources(cpu=4), 0.0),
        ([], Resources(gpus=2), 2.0), ([], Resources(mig_profile="2g.12gb"), 0.5),
    ],
)  # fmt: skip
def test_what_is_asked_for_is_worth_its_part_of_the_best_card(
    cards: list[Card], asked: Resources, worth: float
) -> None:
    """Of those that it could be on; so much waiting for it costs. Bytes, turns and instances are no whole cards."""
    assert PoolPolicy().best(cards, task_of(asked)) == pytest.approx(worth, rel=0.01)


def test_who_yields_depends_on_what_cards_are_worth() -> None:
    """Of two jobs on different cards the one on those that are said to be worth less yields."""
    for own, victim in (({"big": 9.0}, "t-small"), ({"big": 0.1}, "t-big")):
        cards = tuple(Card(id=name, product=name, virtual=True) for name in ("big", "small"))
        world = LendingWorld(CardsObserved(node="n", cpu=8, memory_bytes=1 << 36, cards=cards))
        world.pool.set_policy(PoolPolicy(LendingPolicy(), own))
        world.train("one")
        world.train("two")
        world.settle()
        world.pass_time(90, every=5.0)
        by_card = {grant.members[0].placement.gpus[0]: name for name, grant in world.training.items()}
        world.declare("llama", resources=needs(gpus=1))
        world.wish("llama", 1)
        world.settle()
        noticed = {name for name, grant in world.training.items() if grant.notice is not None}
        assert noticed == {by_card[victim.removeprefix("t-")]}


def test_nothing_new_is_placed_on_a_cordoned_card() -> None:
    """Neither a replica nor a job; what is there stays, and nothing counts as too much; said otherwise, it is used."""
    world = LendingWorld(node(gpus=2))
    world.declare("llama", resources=needs(gpus=1))
    world.wish("llama", 1)
    world.settle()
    (first,) = world.grants["llama"].replicas
    taken = first.placement.gpus[0]
    other = next(card for card in ("n1-gpu-0", "n1-gpu-1") if card != taken)
    for card in (taken, other):
        world.pool.set_cordoned("n1", card, cordoned=True)
    world.wish("llama", 2)
    world.train("tune")
    world.settle()
    assert [one.replica for one in world.grants["llama"].replicas] == [first.replica]
    assert not world.training["tune"].members
    assert world.pool.ledger.overcommitted() == []
    world.wish("llama", 0)
    world.settle()
    world.pass_time(2)
    world.settle()
    assert not world.grants["llama"].replicas
    assert not world.training["tune"].members
    world.pool.set_node(node(gpus=2))  # the node is told anew: it stays cordoned
    world.settle()
    assert not world.training["tune"].members
    world.pool.set_cordoned("n1", taken, cordoned=False)
    world.settle()
    assert [one.placement.gpus for one in world.training["tune"].members] == [(taken,)]
    assert_nothing_twice(world)


def test_a_mig_instance_can_be_cordoned() -> None:
    """Also before its node is known."""
    world = LendingWorld()
    world.pool.set_cordoned("n", "mig-0", cordoned=True)
    card = Card(id="mig-0", profile="1g.10gb", memory_bytes=10 << 30)
    world.pool.set_node(CardsObserved(node="n", cpu=8, memory_bytes=1 << 36, cards=(card,)))
    world.train("tune", resources=replace(needs(), mig_profile="1g.10gb"))
    world.settle()
    assert not world.training["tune"].members
    world.pool.set_cordoned("n", "mig-0", cordoned=False)
    world.settle()
    assert world.training["tune"].members


def ended(at: float = 100.0, job: str = "tune", *cards: str) -> TrainingObserved:
    member = MemberStatus(member=f"{job}-0", node="n", gpus=cards or ("gpu-0",))
    return TrainingObserved(
        job=job, uid="u", revision=1, run=1, state=RunState.ENDED, members=(member,), started_at=1.0, ended_at=at,
        ending=Ending.LOST,
    )  # fmt: skip


def word(at: float, card: str = "gpu-0", *, cordoned: bool = False) -> CardMarked:
    return CardMarked(node="n", card=card, cordoned=cordoned, at=at)


def test_a_word_counts_for_runs_that_had_ended() -> None:
    """Whichever is read first; for all of its cards; not for a run that ended later, nor after a cordon."""
    words = Words()
    assert words.seen(ended()).empty_at is None
    assert [one.empty_at for one in words.say(word(120.0))] == [120.0]
    assert words.seen(ended()).empty_at == 120.0
    assert words.seen(ended(121.0)).empty_at is None
    assert words.say(word(122.0, cordoned=True)) == []
    assert words.seen(ended()).empty_at is None
    two = ended(100.0, "both", "gpu-1", "gpu-2")
    assert words.seen(two).empty_at is None
    assert words.say(word(123.0, "gpu-1")) == []
    assert [one.job for one in words.say(word(124.0, "gpu-2"))] == ["both"]
    alive = replace(ended(), state=RunState.RUNNING, ended_at=None)
    assert words.seen(alive) is alive


async def test_a_persons_word_frees_a_card_that_is_never_seen_empty(bench: TrainingBench) -> None:
    """Its process cannot be killed, so its card is set apart and given to nobody; a person says that it is empty: the
    model gets it, also from the next leader."""
    await bench.say(node(gpus=1), declared(), job())
    async with running(bench.allocator):
        await bench.see()
        await bench.say(wish(1))
        await bench.see(state=RunState.ENDED, ended_at=bench.clock.now(), ending=Ending.LOST)
        await bench.clock.advance(600)
        assert (await bench.reclaims())[-1].state in ("lost", "parked")
        assert (await bench.newest()).replicas == ()
    async with running(bench.new_allocator("second")):
        await bench.clock.advance(60)
        assert (await bench.newest()).replicas == ()
        await bench.say(CardMarked(node="n1", card="n1-gpu-0", cordoned=False, at=bench.clock.now()))
        await settle()
        assert [one.replica for one in (await bench.newest()).replicas] == ["a-r1-0"]
    async with running(bench.new_allocator("third")):
        await settle()
        assert [one.replica for one in (await bench.newest()).replicas] == ["a-r1-0"]
