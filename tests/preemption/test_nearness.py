"""Where the weights are, and what that means for where a replica goes and when a rollout drains."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.types.caches import CacheObserved, ModelWarmth
from events.types.replicas import ReplicaState
from events.units import Instant
from preemption.core.inventory import Ledger, need_of
from preemption.core.nearness import Nearness
from preemption.core.placement import place
from preemption.core.terms import ANYWHERE
from preemption.core.view import Declared, Locality, Reason
from tests.support.pool import World, needs, node

Told = tuple[str, float | None]


def placed(
    told: dict[str, Told], *, waits: bool = True, gpus: dict[str, int] | None = None, after: float = 1.0,
    promise: float | None = None,
) -> str:  # fmt: skip
    """Where the first replica of `m` goes, when so much is told of nodes with so many cards (1, 2, 3 …)."""
    sizes = {f"n{index}": index for index in (1, 2, 3)} if gpus is None else gpus
    world = World(*(node(name, gpus=count) for name, count in sizes.items()))
    world.declare("m", resources=needs(gpus=1), promise=promise)
    for name, (tier, seconds) in told.items():
        world.warm(name, ("m", tier, seconds))
    world.wish("m", 1, waits=waits)
    world.decide(after=after)
    return world.grants["m"].replicas[0].placement.node


@pytest.mark.parametrize(
    ("told", "where"),
    [
        pytest.param({}, "n1", id="nothing is known: best fit"),
        pytest.param({"n3": ("memory", 2.0), "n2": ("disk", 5.0), "n1": ("remote", 40.0)}, "n3", id="the earliest"),
        pytest.param({"n3": ("disk", 5.0), "n2": ("disk", 5.9), "n1": ("disk", 9.0)}, "n2", id="as early: best fit"),
        pytest.param({"n3": ("disk", 100.0), "n1": ("disk", 110.0)}, "n1", id="ten per cent of the earliest"),
        pytest.param({"n3": ("disk", 100.0), "n1": ("disk", 110.1)}, "n3", id="and no more"),
        pytest.param({"n3": ("disk", 20.0)}, "n3", id="who says nothing comes after all that know"),
        pytest.param({"n3": ("remote", 20.0), "n1": ("remote", None)}, "n3", id="unknown is not zero"),
        pytest.param({"n3": ("disk", None)}, "n3", id="nobody knows seconds: who has the weights"),
        pytest.param({"n3": ("remote", None)}, "n1", id="nobody knows anything of use"),
        pytest.param(
            {"n3": ("disk", None), "n2": ("remote", 30.0)}, "n2", id="here and unknown: as the quickest fetch"
        ),
        pytest.param(
            {"n3": ("disk", None), "n2": ("disk", 30.0), "n1": ("remote", 90.0)},
            "n2",
            id="as the slowest of those here",
        ),
        pytest.param({"n2": ("remote", 10.0), "n1": ("disk", 30.0)}, "n2", id="a quick network beats a slow disk"),
    ],
)
def test_a_replica_goes_where_it_answers_first(told: dict[str, Told], where: str) -> None:
    """Of those that are as early within the tolerance the best fit."""
    assert placed(told) == where


@pytest.mark.parametrize(("waits", "where"), [(True, "n3"), (False, "n1")])
def test_who_is_not_waited_for_may_be_some_seconds_later(*, waits: bool, where: str) -> None:
    """For a better fit: fragments last, and nobody notices the seconds."""
    assert placed({"n3": ("memory", 2.0), "n1": ("disk", 11.0)}, waits=waits) == where


@pytest.mark.parametrize(("promise", "where"), [(None, "n3"), (39.0, "n3"), (40.0, "n1")])
@pytest.mark.parametrize("waits", [True, False])
def test_nodes_that_keep_the_promise_are_as_good(*, waits: bool, promise: float | None, where: str) -> None:
    """Half of what the owner promises is for the start; which node keeps that is all one, though one is earlier."""
    assert placed({"n3": ("memory", 2.0), "n1": ("disk", 20.0)}, waits=waits, promise=promise) == where


@pytest.mark.parametrize(("after", "where"), [(179.0, "n3"), (180.0, "n1")])
def test_what_was_told_too_long_ago_counts_as_nothing(after: float, where: str) -> None:
    """Its agent may be gone, and the weights with it."""
    assert placed({"n3": ("memory", 2.0)}, after=after) == where


def test_where_it_does_not_fit_does_not_count() -> None:
    """The earliest of those with room sets the tolerance."""
    told = {"n1": ("memory", 1.0), "n2": ("disk", 20.0), "n3": ("disk", 21.0)}
    assert placed(told, gpus={"n1": 0, "n2": 2, "n3": 1}) == "n3"


def test_of_another_revision_it_means_nothing() -> None:
    """What was told of the weights before is not about these."""
    world = World(node("n1", gpus=1), node("n2", gpus=2))
    world.declare("m", resources=needs(gpus=1), revision=2)
    world.warm("n2", ("m", "memory", 1.0), revision=1)
    world.wish("m", 1, waits=True)
    world.decide()
    assert world.grants["m"].replicas[0].placement.node == "n1"


# A rollout without room for one more.


def rollout(*, told: str | None, revision: int = 2, replicas: int = 1) -> World:
    """`m` fills its nodes (a card each) and has a new revision; its agents have told so much."""
    world = World(*(node(f"n{index}", gpus=1) for index in range(replicas)))
    world.declare("m", resources=needs(gpus=1))
    world.wish("m", replicas)
    world.decide()
    world.obey("m")
    world.declare("m", revision=2)
    for where in world.nodes if told else ():
        world.warm(where, ("m", told or "", 5.0), revision=revision)
    world.decide()
    return world


@pytest.mark.parametrize(
    ("told", "revision", "drains"),
    [
        pytest.param("remote", 2, False, id="they must be fetched"),
        pytest.param("disk", 2, True, id="they are here"),
        pytest.param("memory", 2, True, id="they are read"),
        pytest.param("disk", 1, False, id="the agent has not heard of the new revision"),
        pytest.param("remote", 0, True, id="an agent that does not say of which"),
        pytest.param(None, 2, True, id="no agent has them"),
    ],
)
def test_a_rollout_drains_once_the_weights_are_here(told: str | None, revision: int, *, drains: bool) -> None:
    """The old replica serves on meanwhile, and the reason says so."""
    world = rollout(told=told, revision=revision)
    assert bool(world.draining("m")) is drains
    assert (Reason.AWAITS_WEIGHTS in world.grants["m"].reasons) is not drains
    assert (Reason.DRAINS_FIRST in world.grants["m"].reasons) is drains


def test_it_goes_on_when_the_agent_says_so() -> None:
    """The newest state of the node's weights wakes the rollout, and nothing else has to happen."""
    world = rollout(told="remote")
    world.decide(after=100)
    assert world.draining("m") == []
    world.warm("n0", ("m", "disk", 5.0), revision=2)
    world.decide(after=1)
    assert world.draining("m") == ["m-r1-0"]


def test_the_node_that_has_them_goes_first() -> None:
    """Of several old replicas the one drains whose node has the weights, whichever is the cheapest."""
    world = rollout(told="remote", replicas=3)
    world.warm("n1", ("m", "disk", 5.0), revision=2)
    world.decide(after=1)
    (drained,) = world.draining("m")
    assert [one.placement.node for one in world.grants["m"].replicas if one.replica == drained] == ["n1"]


def test_it_waits_for_a_bounded_time() -> None:
    """Whose agent says for half an hour that they are not there drains first all the same."""
    world = rollout(told="remote")
    for _ in range(29):
        world.decide(after=60)
        world.warm("n0", ("m", "remote", 5.0), revision=2)
    assert world.draining("m") == []
    plan = world.decide(after=59)
    assert plan.again_at == world.now + 1
    world.decide(after=1)
    assert world.draining("m") == ["m-r1-0"]


def test_an_agent_that_died_is_not_waited_for() -> None:
    """Once its word is too old."""
    world = rollout(told="remote")
    began = world.now
    assert world.decide(after=1).again_at == began + Locality().stale
    world.decide(after=Locality().stale)
    assert world.draining("m") == ["m-r1-0"]


def test_with_room_for_one_more_nothing_is_waited_for() -> None:
    """The new one fetches while the old one serves."""
    world = World(node("n0", gpus=2))
    world.declare("m", resources=needs(gpus=1))
    world.wish("m", 1)
    world.decide()
    world.obey("m")
    world.declare("m", revision=2)
    world.warm("n0", ("m", "remote", 5.0), revision=2)
    world.decide()
    assert world.live("m") == ["m-r1-0", "m-r2-0"]
    world.see("m", *((name, ReplicaState.READY) for name in world.live("m")))
    world.decide()
    assert world.draining("m") == ["m-r1-0"]


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from((None, 1.0, 1.5, 2.4, 30.0, 33.0, 34.0))), max_size=7))
def test_the_place_is_the_best_fit_of_the_earliest(drawn: list[tuple[int, float | None]]) -> None:
    """Whatever nodes there are: as if each were looked at, and those within the tolerance compared by what they have
    left."""
    ledger, nearness = Ledger(), Nearness(Locality())
    for index, (gpus, seconds) in enumerate(drawn):
        ledger.set_node(node(f"n{index}", gpus=gpus))
        told = (ModelWarmth(model="m", tier="disk", seconds=seconds),) if seconds is not None else ()
        nearness.hear(CacheObserved(node=f"n{index}", used_bytes=0, capacity_bytes=1, models=told), Instant(0.0))
    soon = nearness.soon(Declared(model="m", uid="u", revision=1), Instant(1.0), hurried=True)
    found = place(ledger, need_of(needs(gpus=1)), ANYWHERE, soon)
    fits = [(inf if seconds is None else seconds, gpus, f"n{i}") for i, (gpus, seconds) in enumerate(drawn) if gpus]
    earliest = min((late for late, _, _ in fits), default=inf)
    near = [one for one in fits if one[0] <= earliest + max(1.0, 0.1 * min(earliest, 1e9))]
    best = min(((gpus, name) for _, gpus, name in near), default=None)
    assert (None if found is None else found.node) == (None if best is None else best[1])
