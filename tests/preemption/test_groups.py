"""Replicas with workers: granted only where there is room for the whole group, and counted whole against quotas."""

from __future__ import annotations

import pytest

from events.types.limits import Limit, LimitKind
from events.types.shared import Resources
from preemption.core.view import Reason, Workers
from tests.support.pool import World, needs, node

LEADER, WORKER = needs(gpus=1), Resources(gpus=4, cpu=1.0, memory_bytes=1 << 30)


def grouped(*cards: int, workers: int = 2, wish: int = 1) -> World:
    """Nodes with so many cards, and model `a` whose replicas take one and four for each worker."""
    world = World(*(node(f"n{index}", gpus=count) for index, count in enumerate(cards)))
    world.declare("a", resources=LEADER, workers=Workers(workers, WORKER))
    world.wish("a", wish)
    return world


@pytest.mark.parametrize(
    ("cards", "workers", "wish", "granted"),
    [
        pytest.param((9,), 2, 1, 1, id="all on one node"),
        pytest.param((1, 4, 4), 2, 1, 1, id="each on its own"),
        pytest.param((4, 4), 2, 1, 0, id="no room for the leader beside its workers"),
        pytest.param((8,), 2, 1, 0, id="one card too few"),
        pytest.param((1, 7), 2, 1, 0, id="cards that are left over are of no use"),
        pytest.param((9, 5), 2, 2, 1, id="one group of two, in one round"),
        pytest.param((9, 9), 2, 2, 2, id="two groups"),
        pytest.param((1,), 0, 1, 1, id="no workers"),
    ],
)
def test_a_group_is_granted_with_room_for_all(cards: tuple[int, ...], workers: int, wish: int, granted: int) -> None:
    """The whole group has room, or it is short; only leaders stay in the ledger."""
    world = grouped(*cards, workers=workers, wish=wish)
    (grant,) = world.decide().grants
    assert len(grant.replicas) == granted
    assert set(world.pool.ledger.holdings) == {one.replica for one in grant.replicas}
    assert (grant.shortage.replicas if grant.shortage else 0) == wish - granted


def test_what_is_lacking_is_told_and_comes_with_a_node() -> None:
    """The shortage names the workers; others whose one pod has room are not kept from it by what is not theirs."""
    world = grouped(4, 4)
    world.declare("b", resources=LEADER)
    world.wish("b", 1)
    world.decide()
    shortage = world.grants["a"].shortage
    assert shortage is not None
    assert "not for all of its 2 workers" in shortage.message
    assert Reason.LACKS_GPUS in world.grants["a"].reasons
    assert len(world.live("b")) == 1
    world.set_node(node("n9", gpus=4))
    world.decide()
    assert len(world.live("a")) == 1


def test_a_quota_counts_the_whole_group() -> None:
    """Nine GPUs and three pods a replica: a quota that leaves fewer says no by its name."""
    for kind, resource, most in ((LimitKind.GPUS, "requests.nvidia.com/gpu", 8.0), (LimitKind.PODS, "pods", 2.0)):
        world = grouped(9, 9)
        world.pool.set_limits((Limit(source="ResourceQuota q", resource=resource, kind=kind, most=most),))
        (grant,) = world.decide().grants
        assert grant.shortage is not None
        assert f"ResourceQuota q leaves {most:g} of {resource}, and it needs {most + 1:g}" in grant.shortage.message
        world.pool.set_limits((Limit(source="ResourceQuota q", resource=resource, kind=kind, most=most + 1),))
        world.decide()
        assert len(world.live("a")) == 1
