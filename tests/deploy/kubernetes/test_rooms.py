"""What pods of enrolled objects have already: told as room for one replica of their model each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deploy.kubernetes.rooms import Idle, is_room, with_rooms
from deploy.kubernetes.views import NodeView, PodView
from events.types.replicas import Card, CardsObserved
from events.units import Instant

GPU, PROFILE, GI = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", 1 << 30
PLAIN = NodeView(name="n", ready=True, usable=True, allocatable={GPU: 4.0})
SHARED = replace(PLAIN, labels={"nvidia.com/gpu.replicas": "4"})
SHARED_PARTS = replace(PLAIN, labels={f"{PROFILE}.replicas": "2"})


def pod(name: str = "p", *, at: float = 1.0, ordinal: int | None = None, **asked: float) -> PodView:
    """One that asks for half a core and these devices."""
    requests = {"cpu": 0.5, "memory": float(GI)} | {{"gpu": GPU, "mig": PROFILE}.get(k, k): v for k, v in asked.items()}
    return PodView(
        name=name, namespace="m", uid=name, node="n", created_at=Instant(at), requests=requests, ordinal=ordinal
    )


@pytest.mark.parametrize(("node", "asked", "so"), [
    pytest.param(PLAIN, pod(), True, id="no device"),
    pytest.param(PLAIN, pod(gpu=2), True, id="whole cards"),
    pytest.param(PLAIN, pod(mig=1), True, id="an instance"),
    pytest.param(PLAIN, pod(mig=2), False, id="no replica has two"),
    pytest.param(PLAIN, pod(gpu=1, mig=1), False, id="nor both"),
    pytest.param(PLAIN, pod(other=1), False, id="another device"),
    pytest.param(SHARED, pod(gpu=1), False, id="turns"),
    pytest.param(SHARED_PARTS, pod(mig=1), False, id="turns of an instance"),
    pytest.param(replace(PLAIN, shared=()), pod(gpu=1), False, id="parts that HAMi gives"),
    pytest.param(replace(PLAIN, usable=False), pod(gpu=1), False, id="nothing comes to the node"),
])  # fmt: skip
def test_what_is_room(node: NodeView, asked: PodView, so: bool) -> None:
    """What can be told as cards of its own."""
    assert is_room(node, asked) is so


def told(*idle: Idle, held: tuple[str, ...] = ()) -> list[tuple[str, tuple[str, ...], int]]:
    """The rooms of a node with three cards and an instance."""
    cards = (*(Card(id=f"gpu-{index}") for index in range(3)), Card(id="mig-1g.10gb-0", profile="1g.10gb"))
    state = CardsObserved(node="n", cpu=8.0, memory_bytes=GI, cards=cards)
    found = with_rooms(state, idle, held)
    assert replace(found, rooms=()) == state
    return [(one.pod, one.gpus, one.ordinal) for one in found.rooms]


def test_each_has_cards_of_its_own() -> None:
    """The last ones that no replica was granted, by age; of an instance one of its profile."""
    old, new, part = pod("old", gpu=1), pod("new", at=2.0, gpu=1, ordinal=7), pod("part", mig=1)
    rooms = told(Idle("a", new), Idle("b", old), Idle("a", part), held=("gpu-2",))
    assert rooms == [("old", ("gpu-1",), 0), ("part", ("mig-1g.10gb-0",), 0), ("new", ("gpu-0",), 7)]


def test_what_is_no_room() -> None:
    """One that a replica is about to get; and where all cards are held there is nothing to give."""
    assert told(Idle("a", pod(gpu=1), awaited=True)) == []
    assert told(Idle("a", pod(gpu=2)), held=("gpu-0", "gpu-1")) == []
