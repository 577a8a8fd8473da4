"""What the planner says and what the allocator grants, about parts of cards: one rule, so one answer."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from events.types.replicas import Card, CardsObserved
from events.types.shared import Resources
from events.units import Instant
from preemption.core.gpus.parts import NEVER, Kind, bytes_of, kind_of, part_of
from preemption.core.inventory import need_of
from preemption.core.reclaim.asking import Answered, AnsweredGang, Asked, AskedGang, Questions
from preemption.core.reclaim.pool_policy import PoolPolicy
from preemption.core.reclaim.prechecking import Holder, Pool
from preemption.core.reclaim.values import Outcome
from tests.support.pool import GI, World, node

MIB = 1 << 20
A100 = Card(id="", product="NVIDIA A100-SXM4-40GB", memory_bytes=40960 * MIB)
USABLE = 40192 * MIB
"""What programs have of it: its whole-card MIG profile."""
L4 = Card(id="", product="NVIDIA L4", memory_bytes=23034 * MIB)
DARK = Card(id="", product="new", virtual=True)
"""One whose memory is not known."""

GROUPS: tuple[tuple[Card, ...], ...] = (
    (A100,), (L4,), (DARK,), (A100, A100), (A100, L4), (replace(A100, link=0), replace(A100, link=0)),
    tuple(replace(A100, turns=4) for _ in range(4)), tuple(replace(L4, turns=3) for _ in range(2)),
    (replace(A100, profile="1g.5gb", memory_bytes=0),) * 2,
)  # fmt: skip
"""Whole cards, alike and not, turns (of one card some are others'), and MIG instances."""

ASKED = st.one_of(
    st.sampled_from((
        {"gpus": 1}, {"gpus": 2}, {"mig_profile": "1g.5gb"}, {}, {"gpu_bytes": USABLE}, {"gpu_bytes": USABLE + 1},
        {"gpu_bytes": USABLE // 2}, {"gpu_bytes": USABLE // 2 + 1}, {"gpu_bytes": USABLE // 4},
        {"gpu_bytes": USABLE // 4 + 1}, {"gpu_fraction": 0.25}, {"gpu_fraction": 0.251}, {"gpu_fraction": 1 / 3},
    )),
    st.builds(lambda share: {"gpu_fraction": share}, st.floats(0.001, 0.999)),
    st.builds(lambda size: {"gpu_bytes": size}, st.integers(1, USABLE + GI)),
)  # fmt: skip
"""At the edges of what the cards have, and anywhere between."""


@st.composite
def machines(draw: st.DrawFn) -> CardsObserved:
    groups = draw(st.lists(st.sampled_from(GROUPS), min_size=1, max_size=3))
    cards = tuple(replace(card, id=f"{at}-{index}") for at, group in enumerate(groups)
                  for index, card in enumerate(group))  # fmt: skip
    memory = draw(st.sampled_from((GI, 2 * GI, 64 * GI)))
    return replace(node(cpu=draw(st.sampled_from((1.0, 3.0, 32.0))), memory=memory), cards=cards)


@st.composite
def asked(draw: st.DrawFn) -> Resources:
    memory = draw(st.sampled_from((MIB, GI, GI + 1)))
    return Resources(**draw(ASKED), cpu=1.0, memory_bytes=memory)


@settings(max_examples=80)
@given(st.lists(machines(), min_size=1, max_size=3), st.lists(asked(), min_size=1, max_size=6), st.integers(1, 4))
def test_what_the_plan_says_fits_is_granted_and_nothing_else_is(
    made: list[CardsObserved], wanted: list[Resources], replicas: int
) -> None:
    """Whole cards, shares, bytes, turns, MIG instances, with memory near the edge: models are declared one after the
    other, and before each the planner is asked. What it says has room gets all its replicas; of what does not as many
    as it counts have room; and no card ever has more bytes promised than programs can have of it."""
    nodes = [replace(one, node=f"n{at}") for at, one in enumerate(made)]
    world = World(*nodes)
    for at, resources in enumerate(wanted):
        plan = Questions(pool_of(world), (), PoolPolicy(), Instant(world.now)).ask(
            Asked(f"m{at}", resources, replicas, 100)
        )
        world.declare(f"m{at}", resources=resources)
        world.wish(f"m{at}", replicas)
        world.decide()
        got = len(world.live(f"m{at}"))
        assert (plan.plan.outcome is Outcome.FITS) == (got == replicas), (resources, plan.lacks)
        assert got == min(replicas, plan.room)
        assert_within_usable(world)


@settings(max_examples=60)
@given(st.lists(machines(), min_size=1, max_size=2), st.lists(st.tuples(asked(), st.booleans()), max_size=8))
def test_answers_are_shares_and_name_each_job_once(
    made: list[CardsObserved], wanted: list[tuple[Resources, bool]]
) -> None:
    """Jobs and models in a row, the same job twice, models that take what jobs have: what is free and of no use is a
    share of all cards whatever is taken on paper, and each job is told of once."""
    questions = Questions(
        Pool([replace(one, node=f"n{at}") for at, one in enumerate(made)], [], []), (), PoolPolicy(), Instant(1e4)
    )
    for at, (resources, trains) in enumerate(wanted):
        if trains:
            answer: Answered | AnsweredGang = questions.ask_gang(AskedGang(f"t{at % 3}", resources, 2, 1, 0))
        else:
            answer = questions.ask(Asked(f"m{at}", resources, 2, 100))
        assert 0 <= answer.before <= 1
        assert answer.after is None or 0 <= answer.after <= 1
        named = [verdict.job for verdict in answer.plan.verdicts]
        assert len(named) == len(set(named))


def pool_of(world: World) -> Pool:
    held = [Holder(one.replica, model, one.placement, one.resources)
            for model, grant in world.grants.items() for one in grant.replicas if not one.drain]  # fmt: skip
    typical = [one.resources for one in world.declared.values()]
    return Pool(list(world.nodes.values()), held, typical)


def assert_within_usable(world: World) -> None:
    cards = {(seen.node, card.id): card for seen in world.nodes.values() for card in seen.cards}
    promised: dict[tuple[str, str], int] = {}
    for grant in world.grants.values():
        for one in grant.replicas:
            for name in one.placement.gpus:
                need, kind = need_of(one.resources), kind_of(cards[one.placement.node, name])
                much = bytes_of(need.gpu_milli or 1000, need.gpu_bytes, kind)
                promised[one.placement.node, name] = promised.get((one.placement.node, name), 0) + much
    for where, much in promised.items():
        kind = kind_of(cards[where])
        assert much <= kind.usable // max(1, kind.turns), where


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(0, USABLE)), max_size=12), st.integers(1, USABLE * 4))
def test_parts_that_fit_a_card_fit_its_bytes(shares: list[tuple[int, int]], usable: int) -> None:
    """However odd the numbers: thousandths that add up to a card stand for no more bytes than it has."""
    kind, milli, used = Kind(usable), 0, 0
    for share, gpu_bytes in shares:
        takes = part_of(share, gpu_bytes, kind)
        if takes != NEVER and milli + takes <= 1000:
            milli += takes
            used += bytes_of(share, gpu_bytes, kind)
    assert used <= usable


@given(st.integers(2, 1000), st.integers(0, USABLE), st.integers(1, 1000), st.integers(0, USABLE))
def test_turns_of_a_card_fit_its_bytes(turns: int, usable: int, share: int, gpu_bytes: int) -> None:
    """Whoever has a turn asked for no more than its share, in thousandths and in bytes."""
    kind = Kind(usable, turns)
    assert turns * kind.size <= 1000
    if part_of(share, gpu_bytes, kind) != NEVER:
        assert turns * gpu_bytes <= usable
        assert share == 1000 or turns * share <= 1000
        assert turns * bytes_of(share, gpu_bytes, kind) <= usable
