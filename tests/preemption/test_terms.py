"""Which nodes a replica may go to: labels, taints, and what is said when none is left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from events.types.replicas import CardsObserved, Taint
from preemption.core.inventory import Ledger, Node
from preemption.core.terms import ANYWHERE, Terms, Toleration, allows
from preemption.core.view import Reason
from tests.support.pool import World, needs, node

SPOT = Taint(key="spot", value="yes")
A = Terms((("pool", "a"),))


def made(labels: dict[str, str] | None = None, *taints: Taint) -> Node:
    ledger = Ledger()
    ledger.set_node(replace(node(), labels=labels, taints=taints))
    return ledger.nodes["n1"]


def on(name: str, gpus: int = 1, labels: dict[str, str] | None = None, *taints: Taint) -> CardsObserved:
    return replace(node(name, gpus=gpus), labels=labels, taints=taints)


def bears(**said: str) -> Terms:
    return Terms((), (Toleration(**said),))


@pytest.mark.parametrize(
    ("where", "terms", "may"),
    [
        pytest.param(made(), ANYWHERE, True, id="nothing is said"),
        pytest.param(made({"pool": "a", "x": "y"}), A, True, id="the label is there"),
        pytest.param(made({"pool": "b"}), A, False, id="with another value"),
        pytest.param(made({}), A, False, id="it is not"),
        pytest.param(made(None), A, True, id="labels are not known, which is not without"),
        pytest.param(made({"pool": "a"}), Terms((("pool", "a"), ("zone", "1"))), False, id="one of two"),
        pytest.param(made({}, SPOT), ANYWHERE, False, id="a taint"),
        pytest.param(made({}, replace(SPOT, effect="NoExecute")), ANYWHERE, False, id="that ends pods too"),
        pytest.param(made({}, replace(SPOT, effect="PreferNoSchedule")), ANYWHERE, True, id="that only prefers"),
        pytest.param(made({}, SPOT), bears(key="spot", operator="Exists"), True, id="borne by its key"),
        pytest.param(made({}, SPOT), bears(key="spot", value="yes"), True, id="and value"),
        pytest.param(made({}, SPOT), bears(key="spot", value="no"), False, id="of another value"),
        pytest.param(made({}, SPOT), bears(operator="Exists"), True, id="all are borne"),
        pytest.param(
            made({}, SPOT), bears(key="spot", operator="Exists", effect="NoExecute"), False, id="another effect"
        ),
        pytest.param(made({}, SPOT, Taint(key="x")), bears(key="spot", operator="Exists"), False, id="one of two"),
    ],
)
def test_who_may_go_where(where: Node, terms: Terms, *, may: bool) -> None:
    """Kubernetes' own rules."""
    assert allows(where, terms) is may


def test_a_replica_goes_where_it_may() -> None:
    """The best fit of the nodes that have the label, though another would fit better."""
    world = World(on("n1", 1, {"pool": "b"}), on("n2", 4, {"pool": "a"}))
    world.declare("m", resources=needs(gpus=1), terms=A)
    world.wish("m", 1)
    world.decide()
    assert world.grants["m"].replicas[0].placement.node == "n2"


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        pytest.param(
            (on("n1", 1, {"pool": "b"}), on("n2", 1, {"pool": "c"})),
            "no node that could hold it may have it; n1 comes nearest: its label pool is b, not a",
            id="another value",
        ),
        pytest.param(
            (on("n1", 1, {"pool": "b"}, SPOT), on("n2", 1, {})),
            "no node that could hold it may have it; n2 comes nearest: it has no label pool (a is wanted)",
            id="the nearest",
        ),
        pytest.param(
            (on("n1", 1, {"pool": "b"}, SPOT),),
            "no node that could hold it may have it; n1 comes nearest: its label pool is b, not a, and its taint "
            "spot=yes:NoSchedule is not tolerated",
            id="both",
        ),
        pytest.param(
            (on("n1", 0, {"pool": "a"}), on("n2", 1, {"pool": "b"})),
            "no node that could hold it may have it; n2 comes nearest: its label pool is b, not a",
            id="who may is too small",
        ),
        pytest.param((on("n1", 0, {"pool": "a"}),), "needs 1 GPU; no node has one", id="nobody could at all"),
    ],
)
def test_who_fits_no_node_is_told_by_name(nodes: tuple[CardsObserved, ...], message: str) -> None:
    """Which label or taint it is, and on which node; once a node has it, the replica is placed."""
    world = World(*nodes)
    world.declare("m", resources=needs(gpus=1), terms=A)
    world.wish("m", 1)
    world.decide()
    shortage = world.grants["m"].shortage
    assert shortage is not None
    assert shortage.message == message
    expected = Reason.NODES_REFUSE if "comes nearest" in message else Reason.FITS_NOWHERE
    assert expected in world.grants["m"].reasons
    world.set_node(on("n9", 1, {"pool": "a"}))
    world.decide()
    assert world.grants["m"].shortage is None


def test_what_is_free_is_counted_on_nodes_that_it_may_have() -> None:
    """A shortage on full nodes of its pool does not count free cards of another."""
    world = World(on("n1", 1, {"pool": "a"}), on("n2", 4, {"pool": "b"}))
    world.declare("m", resources=needs(gpus=1), terms=A)
    world.wish("m", 2)
    world.decide()
    shortage = world.grants["m"].shortage
    assert shortage is not None
    assert shortage.message == "needs 1 GPU; 0 of 1 are free"


def test_a_claim_is_on_nodes_that_its_model_may_have() -> None:
    """A model of higher priority that waits for pool a keeps nobody from pool b, and all that could take from a."""
    world = World(on("n1", 1, {"pool": "a"}), on("n2", 1, {"pool": "b"}))
    world.declare("holder", resources=needs(gpus=1), terms=A)
    world.wish("holder", 1)
    world.decide()
    world.declare("high", priority=200, resources=needs(gpus=1), terms=A)
    world.declare("low", priority=50, resources=needs(gpus=1))
    world.declare("too", priority=50, resources=needs(gpus=1), terms=A)
    for name in ("high", "low", "too"):
        world.wish(name, 1)
    world.decide()
    assert world.grants["low"].replicas[0].placement.node == "n2"
    shortage = world.grants["too"].shortage
    assert shortage is not None
    assert shortage.message == "waits for model high of priority 200, which lacks the same"


def test_what_runs_stays_when_labels_change() -> None:
    """As in Kubernetes: labels and taints are looked at when a replica is placed."""
    world = World(on("n1", 1, {"pool": "a"}))
    world.declare("m", resources=needs(gpus=1), terms=A)
    world.wish("m", 1)
    world.decide()
    world.obey("m")
    world.set_node(on("n1", 1, {"pool": "b"}, SPOT))
    assert world.decide(after=1).grants == ()
