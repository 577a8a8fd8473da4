"""GPUs that are not given: in use by strangers, sick, or not yet seen empty after their pod."""

from __future__ import annotations

import pytest

from deploy.kubernetes.occupied import Left, what_is_left, without_unaccounted
from events.types.gpus import GpusObserved, NodeGpu
from events.types.replicas import Card, CardsObserved

GI = 1 << 30


def gpu(name: str, *, empty: bool | None = True, pods: tuple[str, ...] | None = (), sick: str = "") -> NodeGpu:
    """A card of 80 GiB."""
    used = {True: 4 << 20, False: 8 * GI, None: 8 * GI}[empty]
    return NodeGpu(id=name, memory_bytes=80 * GI, used_bytes=used, empty=empty, pods=pods, sick=sick)


def node(*cards: str) -> CardsObserved:
    """A node with these cards."""
    return CardsObserved(node="n", cpu=8, memory_bytes=GI, cards=tuple(
        Card(id=one, turns=2 if "::" in one else 0) for one in cards))  # fmt: skip


def seen(*gpus: NodeGpu, known: bool = True) -> GpusObserved:
    """What its agent tells."""
    return GpusObserved(node="n", known=known, gpus=gpus)


STRANGER = gpu("GPU-b", empty=False)
COUNTED = ("gpu-0", "gpu-1", "gpu-2")
TURNS = ("turn-0::0", "turn-1::0", "turn-0::1", "turn-1::1")
CLAIMED = ("GPU-a", "GPU-b", "GPU-c")
INSTANCE = NodeGpu(
    id="MIG-1", product="NVIDIA H100 80GB HBM3 MIG 1g.10gb", memory_bytes=10 * GI, used_bytes=GI, empty=False, pods=(),
    parent="GPU-a",
)  # fmt: skip


@pytest.mark.parametrize(("cards", "told", "held", "left"), [
    pytest.param(COUNTED, None, (), COUNTED, id="no agent tells"),
    pytest.param(COUNTED, seen(known=False), (), COUNTED, id="it sees none"),
    pytest.param(COUNTED, seen(gpu("GPU-a"), gpu("GPU-b")), (), COUNTED, id="all are empty"),
    pytest.param(COUNTED, seen(STRANGER), (), ("gpu-0", "gpu-1"), id="one fewer where a plugin counts"),
    pytest.param(COUNTED, seen(STRANGER), ("gpu-2",), ("gpu-0", "gpu-2"), id="what is held stays"),
    pytest.param(COUNTED, seen(STRANGER), COUNTED, COUNTED, id="also when all are"),
    pytest.param(COUNTED, seen(gpu("GPU-b", empty=False, pods=("m/a",))), (), COUNTED, id="a pod accounts for it"),
    pytest.param(COUNTED, seen(gpu("GPU-b", empty=False, pods=None)), (), COUNTED, id="nobody knows whose it is"),
    pytest.param(COUNTED, seen(gpu("GPU-b", empty=None)), (), COUNTED, id="nobody knows whether it is in use"),
    pytest.param(COUNTED, seen(gpu("GPU-b", sick="XID 79")), (), COUNTED, id="the plugin counts no sick one itself"),
    pytest.param(CLAIMED, seen(STRANGER), (), ("GPU-a", "GPU-c"), id="that one, where they are claimed by UUID"),
    pytest.param(CLAIMED, seen(STRANGER), ("GPU-b",), CLAIMED, id="held ones stay, by UUID"),
    pytest.param(CLAIMED, seen(gpu("GPU-c", sick="XID 79")), (), ("GPU-a", "GPU-b"), id="the sick one, by UUID"),
    pytest.param(("mig-1g.10gb-0", "mig-1g.10gb-1", "mig-2g.20gb-0"), seen(INSTANCE), (),
                 ("mig-1g.10gb-0", "mig-2g.20gb-0"), id="an instance of its profile"),
    pytest.param(TURNS, seen(STRANGER), (), ("turn-0::0", "turn-1::0"), id="all turns of one card"),
    pytest.param(TURNS, seen(STRANGER), ("turn-1::1", "turn-0::1", "turn-1::0"), TURNS[1:], id="held turns stay"),
    pytest.param(TURNS, seen(INSTANCE), (), TURNS, id="an instance is no turn"),
    pytest.param(("hami-GPU-b",), seen(gpu("GPU-b", empty=False, pods=None)), (), ("hami-GPU-b",), id="HAMi's"),
])  # fmt: skip
def test_what_is_not_given(
    cards: tuple[str, ...], told: GpusObserved | None, held: tuple[str, ...], left: tuple[str, ...]
) -> None:
    """Only what is known to be in use by a stranger; what nobody knows takes nothing away."""
    assert tuple(one.id for one in without_unaccounted(node(*cards), told, held).cards) == left


POD = Left("n", "models/job-0", ("gpu-0",))
CLAIMS = Left("n", "models/job-0", ("GPU-a",))
UNIFIED = NodeGpu(id="GPU-a", pods=())


@pytest.mark.parametrize(("left", "told", "had", "says"), [
    pytest.param(POD, None, None, "", id="no agent: the pod's end is all the proof there is"),
    pytest.param(POD, seen(known=False), ["GPU-a"], "", id="an agent that sees no GPUs likewise"),
    pytest.param(POD, seen(gpu("GPU-a")), ["GPU-a"], "", id="empty"),
    pytest.param(POD, seen(gpu("GPU-a", empty=False)), ["GPU-a"], "GPU-a is still in use with 8192 MiB", id="not yet"),
    pytest.param(POD, seen(gpu("GPU-a", empty=False, pods=("models/job-0",))), ["GPU-a"], "still in use",
                 id="nor while the kubelet still lists the pod that has ended"),
    pytest.param(POD, seen(gpu("GPU-a", empty=False, pods=("other/x",))), ["GPU-a"], "",
                 id="the kubelet has given it to another"),
    pytest.param(POD, seen(gpu("GPU-a", empty=None)), ["GPU-a"], "not known whether GPU GPU-a is empty", id="unknown"),
    pytest.param(POD, seen(UNIFIED), ["GPU-a"], "", id="memory of the machine: it never tells"),
    pytest.param(POD, seen(NodeGpu(id="GPU-a", sick="lost")), ["GPU-a"], "not known", id="a lost one is not empty"),
    pytest.param(POD, seen(gpu("GPU-b")), ["GPU-a"], "not seen any more", id="gone"),
    pytest.param(POD, seen(), ["GPU-a"], "does not answer", id="the agent is silent"),
    pytest.param(POD, seen(gpu("GPU-a"), gpu("GPU-b")), None, "", id="nobody knows which: no stranger on the node"),
    pytest.param(POD, seen(gpu("GPU-a"), STRANGER), None, "GPU-b is still in use", id="nor which, and there is one"),
    pytest.param(POD, seen(gpu("GPU-a", empty=None)), None, "not known whether GPU GPU-a", id="nor which, nor whether"),
    pytest.param(POD, seen(UNIFIED), None, "", id="nor which, and it never tells"),
    pytest.param(CLAIMS, seen(gpu("GPU-a", empty=False), gpu("GPU-b")), None, "GPU-a is still in use",
                 id="which is known of what was claimed by UUID"),
])  # fmt: skip
def test_what_is_left_of_a_pod(left: Left, told: GpusObserved | None, had: list[str] | None, says: str) -> None:
    """Unknown is not empty, and is not for ever where nobody can ever tell."""
    found = what_is_left(left, told, had)
    assert found == "" if not says else says in found
