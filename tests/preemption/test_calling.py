"""Calls for nodes: who calls, for how many, until when; what a node, time and people make of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.types.grants import NodeCall
from events.types.replicas import StandIns
from events.units import Instant, Seconds
from preemption.core.calling import PAUSE_MOST, Call, Caller, CallPolicy, decide_calls, words
from preemption.core.reclaim.pool_policy import PoolPolicy
from preemption.core.view import AllocatorPolicy, Reason
from tests.support.pool import World, needs, node

POLICY = CallPolicy(most=4, after=Seconds(5.0), within=Seconds(600.0), pause=Seconds(300.0))
STANDS = Call(NodeCall(replicas=2, since=1000.0, until=1600.0), 0)
PAUSES = Call(NodeCall(replicas=0, since=1000.0, until=1600.0, tries=1, again_at=1900.0, reason="late"), 0)


def caller(count: int = 2, **fields: object) -> Caller:
    """Model a, short since 1000, with no replica."""
    made = Caller(model="a", priority=100, count=count, since=Instant(1000.0), live=0)
    return replace(made, **fields)  # type: ignore[arg-type]  # tests name real fields


def call(replicas: int, since: float, until: float, live: int = 0, **fields: object) -> Call:
    """A call as it should come out."""
    told = NodeCall(replicas=replicas, since=since, until=until)
    return Call(replace(told, **fields), live)  # type: ignore[arg-type]  # likewise


TABLE: dict[str, tuple[Caller, float, Call | None, float | None]] = {
    "not yet": (caller(), 1004.0, None, 1005.0),
    "long enough": (caller(), 1005.0, call(2, 1005.0, 1605.0), 1605.0),
    "nothing lacks": (caller(0), 1100.0, None, None),
    "more than all may": (caller(9), 1005.0, call(4, 1005.0, 1605.0), 1605.0),
    "it stands": (caller(before=STANDS), 1599.0, STANDS, 1600.0),
    "more are short": (caller(3, before=STANDS), 1100.0, call(3, 1000.0, 1600.0), 1600.0),
    "fewer are short": (caller(1, before=STANDS), 1100.0, call(1, 1000.0, 1600.0), 1600.0),
    "no demand now": (caller(0, before=STANDS), 1100.0, call(0, 1000.0, 1600.0), 1600.0),
    "demand again": (caller(before=call(0, 1000.0, 1600.0)), 1200.0, STANDS, 1600.0),
    "demand was over": (caller(0, before=call(0, 1000.0, 1600.0)), 1600.0, None, None),
    "a node came": (caller(1, before=STANDS, live=1), 1300.0, call(1, 1300.0, 1900.0, 1), 1900.0),
    "all came": (caller(0, before=STANDS, live=2), 1300.0, None, None),
    "late": (
        caller(before=STANDS), 1600.0, call(0, 1000.0, 1600.0, tries=1, again_at=1900.0, reason="late"), 1900.0,
    ),
    "late, and nobody asks": (caller(0, before=STANDS), 1600.0, None, None),
    "cancelled": (
        caller(before=STANDS, cancelled_at=Instant(1200.0)), 1201.0,
        call(0, 1000.0, 1600.0, tries=1, again_at=1501.0, reason="cancelled"), 1501.0,
    ),
    "an earlier one was cancelled": (caller(before=STANDS, cancelled_at=Instant(999.0)), 1201.0, STANDS, 1600.0),
    "it pauses": (caller(before=PAUSES), 1899.0, PAUSES, 1900.0),
    "it pauses, and nobody asks": (caller(0, before=PAUSES), 1899.0, PAUSES, 1900.0),
    "it calls again": (caller(before=PAUSES), 1900.0, call(2, 1900.0, 2500.0, tries=1), 2500.0),
    "a node came late": (caller(1, before=PAUSES, live=1), 1700.0, call(1, 1700.0, 2300.0, 1), 2300.0),
    "late once more": (
        caller(before=call(2, 1900.0, 2500.0, tries=1)), 2500.0,
        call(0, 1900.0, 2500.0, tries=2, again_at=3100.0, reason="late"), 3100.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
def test_what_becomes_of_a_call(case: str) -> None:
    """Each state of a call, and what time, a node or a person makes of it."""
    asked, now, wanted, again_at = TABLE[case]
    made = decide_calls([asked], POLICY, Instant(now))
    assert (made.by_model["a"], made.again_at) == (wanted, again_at)


def test_the_bound_goes_to_the_higher_priority_and_then_to_who_calls_already() -> None:
    """All models together call for at most so many; one like the others takes no standing call away."""
    others = [caller(3, model="b", since=Instant(900.0)), caller(2, model="c", priority=200)]
    made = decide_calls([caller(before=STANDS), *others], POLICY, Instant(1100.0)).by_model
    counts = {model: one.told.replicas if one is not None else 0 for model, one in made.items()}
    assert counts == {"c": 2, "a": 2, "b": 0}


def test_without_a_policy_calls_are_taken_back() -> None:
    """Settings that say nothing of calls any more end them."""
    assert decide_calls([caller(before=STANDS)], None, Instant(1100.0)).by_model == {"a": None}


@given(
    steps=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.floats(0.1, 700.0)), max_size=30),
    cancels=st.sets(st.integers(0, 29)),
)
def test_a_call_always_ends_and_never_exceeds_its_bounds(
    steps: list[tuple[int, int, float]], cancels: set[int]
) -> None:
    """Whatever happens: never more than are short or than all may, never past its deadline, never within a pause, and
    while nothing comes each pause is as long as the one before or longer."""
    now, before, cancelled = 1000.0, None, None
    for index, (count, live, wait) in enumerate(steps):
        now += wait
        cancelled = Instant(now) if index in cancels else cancelled
        asked = caller(count, live=live, before=before, since=Instant(1000.0), cancelled_at=cancelled)
        after = decide_calls([asked], POLICY, Instant(now)).by_model["a"]
        if after is not None:
            told = after.told
            assert told.replicas <= min(count, POLICY.most)
            assert now < (told.until if told.again_at is None else told.again_at)
            assert told.again_at is None or told.replicas == 0
            assert told.again_at is None or told.again_at <= now + PAUSE_MOST
            came = before is not None and live > before.live
            assert before is None or came or told.tries >= before.told.tries
        before = after


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (STANDS.told, "2 stand-ins wait for a node since 1970-01-01T00:16:40"),
        (PAUSES.told, "no node came within 10m; the next call is at 1970-01-01T00:31:40"),
        (replace(PAUSES.told, reason="cancelled"), "taken back, since somebody deleted a stand-in; the next call"),
    ],
)
def test_people_are_told_of_it(told: NodeCall, said: str) -> None:
    """How many wait, until when; or why not, and when again."""
    assert said in words(told)


# In the pool.


def calling(*nodes: object, calls: bool = True) -> World:
    """A pool whose settings say that models may call."""
    world = World(*nodes, policy=AllocatorPolicy(calls=calls))  # type: ignore[arg-type]  # nodes
    world.pool.set_policy(PoolPolicy(calls=POLICY))
    return world


def short_by(world: World, count: int, within: float = 0.0) -> NodeCall | None:
    """What model a's shortage of `count` says of a call after the next decision."""
    world.now += within
    world.decide()
    shortage = world.grants["a"].shortage
    assert (0 if shortage is None else shortage.replicas) == count, shortage
    return None if shortage is None else shortage.call


def test_a_node_turns_a_call_into_grants_and_is_counted_once() -> None:
    """Three replicas find no node; two cards come: two are granted, and one is called for from then on. The third
    comes, and nobody calls."""
    world = calling()
    world.declare("a", resources=needs(gpus=1))
    world.wish("a", 3, waits=True)
    assert short_by(world, 3) is None
    called = short_by(world, 3, 5.0)
    assert called is not None
    assert (called.replicas, called.until - called.since) == (3, 600.0)
    assert Reason.CALLS in world.grants["a"].reasons
    world.now += 60.0
    world.set_node(node("new", gpus=2))
    rest = short_by(world, 1)
    assert rest is not None
    assert (rest.replicas, rest.since) == (1, world.now)
    assert len(world.grants["a"].replicas) == 2
    world.set_node(node("next", gpus=2))
    assert short_by(world, 0) is None
    assert len({one.placement.gpus for one in world.grants["a"].replicas}) == 3


@pytest.mark.parametrize("way", ["settings", "adapter"])
def test_nobody_calls_unless_it_was_asked_for(way: str) -> None:
    """Without settings, or with an adapter that can make no stand-ins, a shortage is a shortage."""
    world = calling(calls=way == "settings")
    if way == "settings":
        world.pool.set_policy(PoolPolicy())
    world.declare("a", resources=needs(gpus=1))
    world.wish("a", 1)
    short_by(world, 1)
    assert short_by(world, 1, 100.0) is None


def test_what_is_only_kept_or_comes_by_itself_is_not_called_for() -> None:
    """A replica that nothing needs is worth no node, nor is one whose place another's drain makes free."""
    world = calling()
    world.declare("a", resources=needs(gpus=1))
    world.wish("a", 2, kept=1)
    short_by(world, 2)
    called = short_by(world, 2, 5.0)
    assert called is not None
    assert called.replicas == 1


def test_a_late_call_pauses_over_the_end_of_the_demand() -> None:
    """Who asks anew within the pause is told when the next call is, and calls then; a person's zero ends it all."""
    world = calling()
    world.declare("a", resources=needs(gpus=1))
    world.wish("a", 1, waits=True)
    short_by(world, 1)
    short_by(world, 1, 5.0)
    late = short_by(world, 1, 600.0)
    assert late is not None
    assert (late.replicas, late.reason, late.again_at) == (0, "late", world.now + 300.0)
    assert Reason.NO_NODE in world.grants["a"].reasons
    world.wish("a", 0)
    assert short_by(world, 0, 10.0) is None
    world.wish("a", 1, waits=True)
    assert short_by(world, 1, 10.0) == late
    again = short_by(world, 1, 280.0)
    assert again is not None
    assert (again.replicas, again.tries) == (1, 1)
    world.scale("a", 0, 60.0)
    assert short_by(world, 0) is None


def test_a_stand_in_that_a_person_deletes_takes_the_call_back() -> None:
    """What the adapter reports of a stand-in that somebody took away, of this declaration only."""
    world = calling()
    world.declare("a", resources=needs(gpus=1))
    world.wish("a", 1, waits=True)
    short_by(world, 1)
    short_by(world, 1, 5.0)
    world.see("a")
    seen = replace(world.observed["a"], stand_ins=StandIns(cancelled_at=world.now + 1))
    world.pool.set_observed(replace(seen, uid="another"))
    called = short_by(world, 1, 2.0)
    assert called is not None
    assert called.replicas == 1
    world.pool.set_observed(seen)
    called = short_by(world, 1)
    assert called is not None
    assert (called.replicas, called.reason) == (0, "cancelled")


def test_the_next_leader_goes_on_with_the_call_that_stands() -> None:
    """A call keeps its deadline over a change of the leader, since it stands in the grant."""
    world = calling()
    world.declare("a", resources=needs(gpus=1))
    world.wish("a", 1, waits=True)
    short_by(world, 1)
    called = short_by(world, 1, 5.0)
    following = calling()
    following.now = world.now + 30.0
    following.declare("a", resources=needs(gpus=1))
    following.pool.set_grant(world.grants["a"])
    following.grants["a"] = world.grants["a"]
    following.wish("a", 1, waits=True)
    assert short_by(following, 1) == called
