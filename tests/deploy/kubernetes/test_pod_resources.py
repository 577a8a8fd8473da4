"""Which pod has which devices: the wire format, and questions to the published service over a real socket."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.kubernetes.pod_resources import Claimed, Holding, PodResources, PodResourcesUnknown
from deploy.kubernetes.protobuf import BadMessage, fields, messages
from tests.support.kubelet_socket import GPU, KubeletSocket, kubelet_socket


@given(st.binary(max_size=200))
def test_whatever_the_bytes_are_they_are_read_or_refused(text: bytes) -> None:
    """Nothing else is raised, and what is read are fields with numbers above 0."""
    try:
        found = list(fields(text))
    except BadMessage:
        return
    assert all(number > 0 for number, _ in found)


def test_fields_of_every_kind_are_stepped_over() -> None:
    """By the examples of the format's own documentation: 150 in field 1, "testing" in field 2; and fixed widths."""
    message = bytes.fromhex("089601") + bytes.fromhex("120774657374696e67")
    message += bytes.fromhex("1d01020304") + bytes.fromhex("210102030405060708")
    assert list(fields(message)) == [(1, 150), (2, b"testing"), (3, bytes([1, 2, 3, 4])), (4, bytes(range(1, 9)))]
    assert messages(message, 2) == [b"testing"]


@pytest.mark.parametrize("text", ["0896", "1207746573", "00", "0b", "08" + "ff" * 11, "1d0102"])
def test_what_is_cut_or_wrong_is_refused(text: str) -> None:
    """Not read as something shorter."""
    with pytest.raises(BadMessage):
        list(fields(bytes.fromhex(text)))


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as made:
        yield Path(made)


@pytest.fixture
async def socket(short_folder: Path) -> AsyncIterator[KubeletSocket]:
    """The service with three pods."""
    async with kubelet_socket(short_folder / "pod-resources") as made:
        made.given = {"models/chat-0": ["GPU-1", "GPU-2"], "other/train": ["GPU-3::2"], "models/idle": []}
        made.claimed = {"models/claims": ("gpu-node", "gpu-0")}
        made.offered = ["GPU-1", "GPU-2"]
        made.say()
        yield made


@pytest.mark.needs("podresources")
async def test_the_kubelet_tells_who_has_what(socket: KubeletSocket) -> None:
    """By pod and container, of plugins and of claims, beside numbers and topologies that nobody asked for."""
    kubelet = PodResources(socket.folder / "kubelet.sock")
    found = [one for one in await kubelet.holdings() if one.devices or one.claimed]
    assert found == [
        Holding("models", "chat-0", "engine", GPU, ("GPU-1", "GPU-2")),
        Holding("other", "train", "engine", GPU, ("GPU-3::2",)),
        Holding("models", "claims", "engine", claimed=(Claimed("gpu.nvidia.com", "gpu-node", "gpu-0"),)),
    ]
    assert await kubelet.allocatable() == {GPU: ("GPU-1", "GPU-2")}


@pytest.mark.needs("podresources")
async def test_a_large_answer_comes_whole(socket: KubeletSocket) -> None:
    """Larger than HTTP/2's first window (64 KiB), by far."""
    socket.given = {
        f"models/pod-{number}": [f"GPU-{number}-{part:036d}" for part in range(8)] for number in range(2000)
    }
    socket.say()
    assert len([one for one in await PodResources(socket.folder / "kubelet.sock").holdings() if one.devices]) == 2000


@pytest.mark.needs("podresources")
async def test_a_kubelet_that_does_not_tell_is_not_one_without_pods(socket: KubeletSocket, tmp_path: Path) -> None:
    """No socket, a socket that nobody listens at, a refusal: unknown, and why."""
    with pytest.raises(PodResourcesUnknown, match="there is no socket"):
        await PodResources(tmp_path / "none.sock").holdings()
    socket.refuses = "rate limit"
    socket.say()
    with pytest.raises(PodResourcesUnknown, match=r"RESOURCE_EXHAUSTED: rate limit"):
        await PodResources(socket.folder / "kubelet.sock").holdings()


@pytest.mark.needs("podresources")
async def test_a_kubelet_that_begins_anew_is_asked_like_any(short_folder: Path) -> None:
    """Its socket is another; between, nobody answers."""
    folder = short_folder / "again"
    kubelet = PodResources(folder / "kubelet.sock")
    for pod in ("models/a", "models/b"):
        async with kubelet_socket(folder) as made:
            made.given = {pod: ["GPU-1"]}
            made.say()
            assert [one.pod for one in await kubelet.holdings() if one.devices] == [pod.partition("/")[2]]
        with pytest.raises(PodResourcesUnknown, match="does not tell"):
            await kubelet.holdings()
