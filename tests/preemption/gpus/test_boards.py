"""How cards and nodes reach each other, by what adapters, products and labels say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from events.types.replicas import Card, CardsObserved
from preemption.core.gpus.boards import domains_of, network_of
from preemption.core.gpus.cards import node_spec
from preemption.core.gpus.choosing import Chooser, Policy
from preemption.core.gpus.gang import APART, distances, place_gang
from preemption.core.gpus.mix import Mix
from preemption.core.gpus.space import Space
from preemption.core.inventory import Ledger
from tests.support.gpus import node, task


@pytest.mark.parametrize(
    ("product", "link"),
    [
        ("NVIDIA-A100-SXM4-80GB", 0), ("NVIDIA H100 80GB HBM3", 0), ("NVIDIA H200", 0), ("NVIDIA H200 NVL", None),
        ("NVIDIA A100 80GB PCIe", None), ("NVIDIA H100 NVL", None), ("Tesla V100-SXM2-32GB", None), ("", None),
    ],
)  # fmt: skip
def test_boards_with_a_switch_are_one_island(product: str, link: int | None) -> None:
    """By the product, where nothing is told of any card; what is told goes before, and instances have no NVLink."""
    cards = (Card(id="a", product=product), Card(id="b", product=product))
    assert domains_of(cards) == (() if link is None else ((link, None),) * 2)
    told = (replace(cards[0], numa=1), cards[1])
    assert domains_of(told) == ((link, 1), (link, None))
    alone = (replace(cards[0], link=0), replace(cards[1], link=1))
    assert domains_of(alone) == ((0, None), (1, None))
    split = (Card(id="a", product=product, profile="1g.10gb"), cards[1])
    assert domains_of(split) == (() if link is None else ((None, None), (0, None)))


def test_the_ledger_and_the_arrays_know_the_same() -> None:
    """One word of the adapter, two inventories."""
    cards = (Card(id="a", link=0, numa=0), Card(id="b", link=0, numa=1), Card(id="c", profile="1g.10gb"))
    seen = CardsObserved(node="n", cpu=8.0, memory_bytes=1 << 33, cards=cards, labels={"nvidia.com/gpu.clique": "u.1"})
    ledger = Ledger()
    ledger.set_node(seen)
    spec = node_spec(seen)
    assert spec.network == ("", "", "", "u.1")
    assert [(card.link, card.numa) for card in spec.cards] == list(ledger.nodes["n"].domains.values())
    assert ledger.nodes["n"].look.have.domains == ((0, 0), (0, 1))


def test_labels_say_where_a_node_is() -> None:
    """By the first label of each level; clouds and NVIDIA's programs write different ones."""
    assert network_of({"topology.kubernetes.io/zone": "z1", "topology.k8s.aws/network-node-layer-3": "nn-3"}) == (
        "z1", "", "nn-3", "",
    )  # fmt: skip
    assert network_of({"cloud.google.com/gce-topology-block": "b", "nvidia.com/gpu.clique": ""}) == ("", "b", "", "")
    assert network_of(None) == ("", "", "", "")


def test_a_gang_prefers_nodes_that_are_near() -> None:
    """Its second node is in the NVLink domain of the first, else behind the same switch, though others are before it by
    name; where nothing is known all are as far."""
    places = (("z", "s", "l1", "n1"), ("z", "s", "l2", ""), ("z", "s", "l1", "n2"), ("z", "s", "l1", "n1"))
    nodes = [replace(node(name, cards=2), network=where) for name, where in zip("abcd", places, strict=True)]
    space = Space(nodes)
    assert distances(space, 0).tolist() == [0, 2 * APART, 2 * APART, APART]
    spots = place_gang(Chooser(space, Policy.RELUME, Mix((task(),), (1,))), [task(2)] * 3)
    assert spots is not None
    assert [spot.node for spot in spots] == [0, 3, 1]
    assert distances(Space([node("a"), node("b")]), 0).tolist() == [0, APART]
