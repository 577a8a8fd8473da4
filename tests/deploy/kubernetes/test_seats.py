"""Which pods an object ends when its number falls, and who must drain before that."""

from __future__ import annotations

import pytest

from deploy.kubernetes.seats import Seat, displace, next_to_go
from deploy.kubernetes.views import PodView, pod_of
from events.units import Instant


def pod(
    name: str, ordinal: int | None = None, *, node: str = "n", phase: str = "Running", ready: bool = True,
    made: float = 0.0,
) -> PodView:  # fmt: skip
    """A pod whose uid is its name."""
    return PodView(
        name=name, namespace="default", uid=name, ordinal=ordinal, node=node, phase=phase, ready=ready,
        created_at=Instant(made),
    )  # fmt: skip


def stateful(*ordinals: int) -> list[PodView]:
    """Pods of a StatefulSet."""
    return [pod(f"s-{number}", number) for number in ordinals]


@pytest.mark.parametrize(
    ("pods", "numbers", "cheapest", "goes"),
    [
        pytest.param(stateful(0, 1, 2), (3, 2), {"s-0"}, ["s-2"], id="the highest ordinal, whatever it costs"),
        pytest.param(stateful(2, 0, 1), (3, 1), {}, ["s-2", "s-1"], id="the highest two"),
        pytest.param(stateful(0, 2), (3, 2), {}, ["s-2"], id="one that is made anew changes nothing"),
        pytest.param(stateful(0, 1), (3, 2), {}, [], id="the last is not there"),
        pytest.param(stateful(5, 6), (2, 1), {}, ["s-6"], id="ordinals that begin at five"),
        pytest.param(stateful(0, 1), (2, 0), {}, ["s-0", "s-1"], id="all"),
        pytest.param([pod("a"), pod("b"), pod("c")], (3, 2), {"b"}, ["b"], id="what costs least"),
        pytest.param([pod("a"), pod("b", ready=False)], (2, 1), {"a"}, ["b"], id="not ready before cost"),
        pytest.param(
            [pod("a", ready=False), pod("b", phase="Pending", ready=False)], (2, 1), {"a"}, ["b"],
            id="pending before not ready",
        ),
        pytest.param(
            [pod("a", phase="Pending"), pod("b", phase="Pending", node="")], (2, 1), {"a"}, ["b"],
            id="without a node before pending",
        ),
        pytest.param([pod("a", made=1.0), pod("b", made=2.0)], (2, 1), {}, ["b"], id="else the newest"),
        pytest.param([pod("a"), pod("b")], (3, 2), {"a"}, [], id="one has gone by itself"),
        pytest.param([], (3, 0), {}, [], id="nothing is there"),
    ],
)  # fmt: skip
def test_next_to_go(pods: list[PodView], numbers: tuple[int, int], cheapest: set[str], goes: list[str]) -> None:
    """As StatefulSets and ReplicaSets choose."""
    assert [one.name for one in next_to_go(pods, *numbers, cheapest)] == goes


@pytest.mark.parametrize(
    ("seats", "falls", "displaced", "given"),
    [
        pytest.param([Seat(pod("x", 0)), Seat(pod("y", 1), leaving=True)], True, [], [], id="the one that leaves goes"),
        pytest.param([Seat(pod("x", 0), leaving=True), Seat(pod("y", 1))], False, [1], [0], id="another would go"),
        pytest.param([Seat(pod("x", 0), leaving=True), Seat(pod("y", 1), drains=True)], False, [], [],
                     id="another would go, and drains already"),
        pytest.param([Seat(pod("x", 0), leaving=True), Seat(pod("y", 1), drains=True, leaving=True)], True, [], [],
                     id="both leave"),
        pytest.param([Seat(None, leaving=True), Seat(pod("y", 1))], False, [1], [], id="who leaves has no pod"),
        pytest.param([Seat(pod("x", 0), leaving=True, ended=True), Seat(pod("y", 1))], False, [1], [],
                     id="who leaves has a pod that ends"),
    ],
)  # fmt: skip
def test_displace(seats: list[Seat], falls: bool, displaced: list[int], given: list[int]) -> None:
    """The number falls when nobody is in the way; else that one is displaced, once, and an idle pod is free for its
    successor."""
    had = [seat.pod is not None for seat in seats]
    for _ in range(2):
        assert displace(seats, {"y"}) == falls
        assert [index for index, seat in enumerate(seats) if seat.displaced] == displaced
        assert [index for index, seat in enumerate(seats) if had[index] and seat.pod is None] == given


@pytest.mark.parametrize(
    ("kind", "labels", "name", "ordinal"),
    [
        ("StatefulSet", {"apps.kubernetes.io/pod-index": "7"}, "s-7", 7),
        ("StatefulSet", {}, "s-of-12", 12),
        ("StatefulSet", {}, "s", None),
        ("ReplicaSet", {"apps.kubernetes.io/pod-index": "7"}, "s-7", None),
        ("", {}, "s-7", None),
    ],
)
def test_a_pods_ordinal(kind: str, labels: dict[str, str], name: str, ordinal: int | None) -> None:
    """Pods of a StatefulSet have one, by their label or their name."""
    owners = [{"kind": "Node", "name": "other"}, *([{"kind": kind, "controller": True}] if kind else [])]
    metadata = {"name": name, "uid": "u", "creationTimestamp": "2026-12-01T00:00:00Z", "labels": labels}
    assert pod_of({"metadata": metadata | {"ownerReferences": owners}}).ordinal == ordinal
