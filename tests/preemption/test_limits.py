"""Limits beside the nodes: what a quota leaves is granted and not more, and its name is told."""

from __future__ import annotations

import pytest

from events.types.limits import Limit, LimitKind
from events.types.replicas import ReplicaState
from events.units import Seconds
from preemption.core.calling import CallPolicy
from preemption.core.inventory import need_of
from preemption.core.limits import Tally
from preemption.core.reclaim.pool_policy import PoolPolicy
from preemption.core.view import AllocatorPolicy, Reason
from tests.support.lending import LendingWorld
from tests.support.pool import GI, World, needs, node

GPUS = Limit(source="ResourceQuota gpus", resource="requests.nvidia.com/gpu", kind=LimitKind.GPUS, most=2.0)


def limit(kind: LimitKind, most: float, *, each: bool = False, least: bool = False) -> Limit:
    """One of LimitRange or ResourceQuota `small`."""
    return Limit(
        source="LimitRange small" if each else "ResourceQuota small", resource=kind.value, kind=kind, most=most,
        each=each, least=least, profile="1g.10gb" if kind is LimitKind.MIG else "",
    )  # fmt: skip


TABLE: dict[str, tuple[Limit, object, str, int]] = {
    "no gpus": (limit(LimitKind.GPUS, 0), needs(), "", 5),
    "gpus": (limit(LimitKind.GPUS, 3), needs(gpus=2), "", 1),
    "too many gpus": (limit(LimitKind.GPUS, 1), needs(gpus=2), "leaves 1 of gpus, and it needs 2 of gpus", 0),
    "a share is one": (limit(LimitKind.GPUS, 2), needs(fraction=0.5), "", 2),
    "mig": (limit(LimitKind.MIG, 1), needs(mig="1g.10gb"), "", 1),
    "another profile": (limit(LimitKind.MIG, 0), needs(mig="2g.20gb"), "", 5),
    "cores": (limit(LimitKind.CPU, 2.5), needs(cpu=1.0), "", 2),
    "memory": (limit(LimitKind.MEMORY, 2 * GI), needs(memory=3 * GI), "leaves 2Gi of memory, and it needs 3Gi", 0),
    "pods": (limit(LimitKind.PODS, 1), needs(), "", 1),
    "less than nothing": (limit(LimitKind.PODS, 0), needs(), "leaves 0 of pods", 0),
    "each": (limit(LimitKind.CPU, 1, each=True), needs(cpu=2.0), "allows at most 1 of cpu each, and it needs 2", 0),
    "each may": (limit(LimitKind.CPU, 2, each=True), needs(cpu=2.0), "", 5),
    "too little": (limit(LimitKind.CPU, 1, each=True, least=True), needs(cpu=0.5), "no less than 1 of cpu each", 0),
    "no gpu at least": (limit(LimitKind.GPUS, 1, each=True, least=True), needs(), "", 5),
}


@pytest.mark.parametrize("case", TABLE)
def test_what_a_limit_says(case: str) -> None:
    """Whether one more may be made, and how many of five."""
    one, resources, words, count = TABLE[case]
    need = need_of(resources)  # type: ignore[arg-type]  # resources
    tally = Tally([one], [])
    refusal = tally.refusal(need)
    assert words in refusal
    assert bool(words) == bool(refusal)
    assert tally.room(need, 5) == count
    for _ in range(count):
        assert tally.refusal(need) == ""
        tally.take(need)
    assert count == 5 or tally.refusal(need)


def test_no_more_is_granted_than_a_quota_leaves() -> None:
    """Four cards are free and a quota leaves two: the higher priority has them, the others are told the quota's name.
    More of it, and the rest is granted."""
    world = World(node(gpus=4))
    world.pool.set_limits((GPUS,))
    world.declare("a", resources=needs(gpus=1), priority=1)
    world.declare("b", resources=needs(gpus=1), priority=2)
    world.wish("a", 2)
    world.wish("b", 1)
    world.decide()
    assert (len(world.live("a")), len(world.live("b"))) == (1, 1)
    shortage = world.grants["a"].shortage
    assert shortage is not None
    assert "ResourceQuota gpus leaves 0 of requests.nvidia.com/gpu" in shortage.message
    assert Reason.QUOTA in world.grants["a"].reasons
    assert world.decide(60.0).grants == ()
    world.pool.set_limits(())
    world.decide()
    assert world.grants["a"].shortage is None


def test_what_ends_gives_the_quota_back() -> None:
    """A replica that drains has its part of it until it is gone."""
    world = World(node(gpus=4))
    world.pool.set_limits((GPUS,))
    world.declare("a", resources=needs(gpus=2))
    world.declare("b", resources=needs(gpus=2))
    world.wish("a", 1)
    world.decide()
    world.obey("a")
    world.wish("b", 1)
    world.wish("a", 0)
    world.decide()
    assert world.live("b") == []
    world.obey("a")
    world.decide()
    assert len(world.live("b")) == 1


def test_a_rollout_under_a_full_quota_drains_first() -> None:
    """One more than wished may not be made: so an old replica goes before its successor comes."""
    world = World(node(gpus=4))
    world.pool.set_limits((GPUS,))
    world.declare("a", resources=needs(gpus=2))
    world.wish("a", 1)
    world.decide()
    world.obey("a")
    world.declare("a", revision=2)
    world.decide()
    assert Reason.DRAINS_FIRST in world.grants["a"].reasons
    world.see("a")
    world.decide()
    assert [name.split("-r")[1] for name in world.live("a")] == ["2-0"]


def test_a_gang_is_started_within_the_quota_or_not_at_all() -> None:
    """Three cards would do for both jobs: the quota has room for one of two members, and the other job is told its
    name; an elastic one starts with what there is."""
    world = LendingWorld(node(gpus=4))
    world.pool.set_limits((GPUS,))
    world.train("first", members=1)
    world.settle()
    world.train("gang", members=2)
    world.settle()
    assert (len(world.training["first"].members), len(world.training["gang"].members)) == (1, 0)
    assert "ResourceQuota gpus leaves" in world.training["gang"].message
    world.train("elastic", members=2, min_members=1)
    world.settle()
    assert len(world.training["elastic"].members) == 1


def test_no_node_is_called_for_that_a_quota_forbids_to_use() -> None:
    """A shortage by a quota is no call."""
    world = World(node(gpus=4), policy=AllocatorPolicy(calls=True))
    calls = CallPolicy(most=4, after=Seconds(0.0), within=Seconds(60.0), pause=Seconds(60.0))
    world.pool.set_policy(PoolPolicy(calls=calls))
    world.pool.set_limits((GPUS,))
    world.declare("a", resources=needs(gpus=1))
    world.wish("a", 3)
    world.decide()
    world.see("a", *((name, ReplicaState.READY) for name in world.live("a")))
    world.decide(5.0)
    shortage = world.grants["a"].shortage
    assert shortage is not None
    assert (shortage.replicas, shortage.call) == (1, None)
