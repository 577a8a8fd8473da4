"""Cards that the device plugin counts several times: their turns, as GPU feature discovery's labels tell of them."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.kubernetes.nodes import observed
from deploy.kubernetes.shaping import gpu_requests
from deploy.kubernetes.slicing import resource_of, turns_in
from deploy.kubernetes.views import NodeView, PodView, node_of
from events.types.shared import Resources
from preemption.core.gpus.cards import node_spec
from preemption.core.gpus.space import Space

L4 = {"nvidia.com/gpu.product": "NVIDIA-L4-SHARED", "nvidia.com/gpu.memory": "23034", "nvidia.com/gpu.count": "2",
      "nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}  # fmt: skip
RENAMED = {**L4, "nvidia.com/gpu.product": "NVIDIA-L4"}


def machine(labels: dict[str, str], **allocatable: str) -> NodeView:
    resources = {name.replace("__", "/").replace("_", "."): much for name, much in allocatable.items()}
    status: dict[str, Any] = {"conditions": [{"type": "Ready", "status": "True"}],
                              "allocatable": {"cpu": "8", "memory": "64Gi", **resources}}  # fmt: skip
    return node_of({"metadata": {"name": "a", "labels": labels}, "status": status})


def taker(resource: str, count: float) -> PodView:
    return PodView(name="p", namespace="d", uid="u", node="a", phase="Running", requests={resource: count})


@pytest.mark.parametrize(
    ("labels", "resource", "prefix"), [(L4, "nvidia.com/gpu", "turn"), (RENAMED, "nvidia.com/gpu.shared", "shared")]
)
def test_each_turn_is_an_entry_of_its_own(labels: dict[str, str], resource: str, prefix: str) -> None:
    """Two cards counted four times are eight turns, of two cards alternately, so that who comes first is alone on a
    card; a turn is asked for by one of the resource that counts it."""
    node = machine(labels, **{resource.replace("/", "__").replace("gpu.shared", "gpu_shared"): "8"})
    seen = observed(node, (), ())
    assert [card.id for card in seen.cards[:3]] == [f"{prefix}-0::0", f"{prefix}-1::0", f"{prefix}-0::1"]
    assert {(card.turns, card.product, card.memory_bytes) for card in seen.cards} == {(4, "NVIDIA-L4", 23034 << 20)}
    assert len(seen.cards) == len({card.id for card in seen.cards}) == 8
    for wanted in (Resources(gpu_fraction=0.25), Resources(gpu_bytes=4 << 30)):
        assert gpu_requests(wanted, (seen.cards[0].id,)) == {resource: "1"}


def test_turns_of_others_are_not_there_and_held_ones_keep_their_names() -> None:
    """Three of eight are pods of others: five are left, those that replicas have among them, each once."""
    seen = observed(machine(L4, nvidia_com__gpu="8"), [taker("nvidia.com/gpu", 3)], {"turn-1::3", "turn-0::0"})
    ids = [card.id for card in seen.cards]
    assert (len(ids), len(set(ids))) == (5, 5)
    assert {"turn-1::3", "turn-0::0"} <= set(ids)


def test_turns_that_there_are_no_more_of_are_gone() -> None:
    """The plugin was told to share a card between fewer: the fourth turn is none, and nothing else changes its name.
    Pods that were granted such turns, or whole cards, have one of what is counted each."""
    fewer = {**L4, "nvidia.com/gpu.replicas": "2"}
    seen = observed(machine(fewer, nvidia_com__gpu="4"), (), {"turn-0::3", "turn-1::1", "gpu-0"})
    assert {card.id for card in seen.cards} == {"turn-0::0", "turn-1::1"}
    none = {**L4, "nvidia.com/gpu.replicas": "1", "nvidia.com/gpu.product": "NVIDIA-L4",
            "nvidia.com/gpu.sharing-strategy": "none"}  # fmt: skip
    whole = observed(machine(none, nvidia_com__gpu="2"), (), {"turn-0::3", "gpu-1"})
    assert [(card.id, card.turns) for card in whole.cards] == [("gpu-1", 0)]


def test_cards_whose_labels_are_gone_are_shared_as_long_as_somebody_has_a_turn() -> None:
    """Eight of a resource of which a replica has a turn are not eight whole cards."""
    assert observed(machine({}, nvidia_com__gpu="8"), (), {"turn-0::0"}).cards == ()
    assert len(observed(machine({}, nvidia_com__gpu="8"), (), {"gpu-0"}).cards) == 8


@pytest.mark.parametrize("replicas", ["0", "-3", "four", "4.0", "", "\u00b2"])
def test_labels_that_say_no_number_are_not_believed(replicas: str) -> None:
    """Then the counts tell: eight of two cards are four turns each."""
    seen = observed(machine({**L4, "nvidia.com/gpu.replicas": replicas}, nvidia_com__gpu="8"), (), ())
    assert [card.turns for card in seen.cards] == [4] * 8


def test_no_count_is_believed_beyond_what_a_node_can_have() -> None:
    """A status with a million million cards names no more than relume can look at, whole or in turns."""
    many = {"nvidia_com__gpu": "1T"}
    assert len(observed(machine({}, **many), (), ()).cards) == 1 << 14
    assert len(observed(machine({**L4, "nvidia.com/gpu.replicas": "9" * 60}, **many), (), ()).cards) == 1 << 14


@pytest.mark.parametrize("memory", ["-5", "many", "\u00b2", str(1 << 24), "9" * 13, "9" * 63, ""])
def test_memory_that_no_card_has_is_not_known(memory: str) -> None:
    """So a share of the card can be had, bytes of it cannot, and the planner's arrays hold it."""
    seen = observed(machine({"nvidia.com/gpu.memory": memory}, nvidia_com__gpu="1"), (), ())
    assert [card.memory_bytes for card in seen.cards] == [0]
    assert Space([node_spec(seen)]).gpu_free == 1000


def test_a_node_that_takes_no_pods_keeps_what_is_held() -> None:
    """As with whole cards."""
    node = node_of({"metadata": {"name": "a", "labels": L4}, "spec": {"unschedulable": True}, "status": {}})
    assert [(card.id, card.turns) for card in observed(node, (), {"turn-1::2"}).cards] == [("turn-1::2", 4)]


@pytest.mark.parametrize(
    ("labels", "allocatable", "turns"),
    [
        ({}, {"nvidia.com/gpu": 8}, 0),
        ({"nvidia.com/gpu.replicas": "1", "nvidia.com/gpu.sharing-strategy": "none"}, {"nvidia.com/gpu": 8}, 0),
        ({"nvidia.com/gpu.replicas": "0"}, {"nvidia.com/gpu": 8}, 0),
        ({"nvidia.com/gpu.replicas": "10", "nvidia.com/gpu.sharing-strategy": "mps"}, {"nvidia.com/gpu": 20}, 10),
        ({"nvidia.com/gpu.replicas": "3"}, {"nvidia.com/gpu": 3}, 3),  # before there was a label of the strategy
        ({"nvidia.com/gpu.product": "NVIDIA-L4-SHARED", "nvidia.com/gpu.count": "2"}, {"nvidia.com/gpu": 8}, 4),
        ({"nvidia.com/gpu.product": "NVIDIA-L4-SHARED"}, {"nvidia.com/gpu": 8}, None),
        ({}, {"nvidia.com/gpu.shared": 8}, None),
        ({"nvidia.com/gpu.count": "3"}, {"nvidia.com/gpu.shared": 8}, None),
    ],
)
def test_into_how_many_a_card_is_shared(
    labels: dict[str, str], allocatable: dict[str, float], turns: int | None
) -> None:
    """By the label; where it is missing by the counts; and where these do not tell, it is not known, which is not one:
    no card is offered there."""
    assert turns_in(labels, allocatable) == turns
    if turns is None:
        resources = {name.replace("/", "__").replace(".", "_"): str(count) for name, count in allocatable.items()}
        assert observed(machine(labels, **resources), (), ()).cards == ()


def test_mig_instances_that_are_shared_are_not_offered() -> None:
    """An instance that is counted several times is no instance of one's own."""
    labels = {"nvidia.com/mig-1g.10gb.replicas": "2"}
    seen = observed(machine(labels, **{"nvidia_com__mig-1g_10gb": "4"}), (), ())
    assert seen.cards == ()


def test_other_cards_are_no_turns() -> None:
    """Names of counted cards, of published ones and of HAMi's."""
    assert [resource_of(name) for name in ("gpu-0", "GPU-1::0", "hami-GPU-1", "mig-1g.10gb-0")] == [None] * 4
