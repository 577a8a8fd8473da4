"""Which pod on this node has which devices: asked of the kubelet, over its socket (v1.PodResourcesLister).

The kubelet's own device manager answers, so this is the truth of what it has given out. Its messages are those of
`k8s.io/kubelet/pkg/apis/podresources/v1`. gRPC is grpclib's, pure Python; the messages are read by their wire format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from deploy.kubernetes.protobuf import BadMessage, messages, texts

SERVICE: Final = "v1.PodResourcesLister"
SOCKET: Final = "kubelet.sock"
"""In the kubelet's folder ``pod-resources``."""
T = TypeVar("T")
ANSWER_WITHIN: Final = 5.0
"""Seconds for one answer: the kubelet has it in memory."""


class PodResourcesUnknown(Exception):
    """The kubelet does not tell; why."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A device that a container has by a ResourceClaim."""

    driver: str
    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class Holding:
    """What one container has: by a device plugin, ids of one resource; by claims, devices that drivers publish."""

    namespace: str
    pod: str
    container: str
    resource: str = ""
    devices: tuple[str, ...] = ()
    claimed: tuple[Claimed, ...] = ()


class PodResources:
    """The kubelet of this node. All raise PodResourcesUnknown."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def holdings(self) -> tuple[Holding, ...]:
        """Of all pods that the kubelet runs."""
        return await self._ask("List", read_list)

    async def allocatable(self) -> dict[str, tuple[str, ...]]:
        """The healthy devices that plugins have told of, by resource, given out or not."""
        return await self._ask("GetAllocatableResources", read_allocatable)

    async def _ask(self, method: str, read: Callable[[bytes], T]) -> T:
        try:
            from deploy.kubernetes.grpc_bytes import NoAnswer, ask  # noqa: PLC0415 - agents on Kubernetes alone need it
        except ImportError as error:
            raise PodResourcesUnknown(f"{error.name} is not installed; install relume[agent]") from error

        if not self._socket.is_socket():
            raise PodResourcesUnknown(f"there is no socket {self._socket}")
        try:
            return read(await ask(self._socket, f"/{SERVICE}/{method}", ANSWER_WITHIN))
        except (NoAnswer, BadMessage) as error:
            raise PodResourcesUnknown(f"the kubelet does not tell ({method}): {error}") from error


def read_list(answer: bytes) -> tuple[Holding, ...]:
    """Of a ListPodResourcesResponse. Raises BadMessage."""
    return tuple(one for pod in messages(answer, 1) for one in _of_pod(pod))


def read_allocatable(answer: bytes) -> dict[str, tuple[str, ...]]:
    """Of an AllocatableResourcesResponse. Raises BadMessage."""
    found: dict[str, tuple[str, ...]] = {}
    for one in messages(answer, 1):
        resource, devices = _devices(one)
        found[resource] = found.get(resource, ()) + devices
    return found


def _of_pod(message: bytes) -> list[Holding]:
    name, namespace = _text(message, 1), _text(message, 2)
    found: list[Holding] = []
    for container in messages(message, 3):
        who = namespace, name, _text(container, 1)
        found += [Holding(*who, *_devices(one)) for one in messages(container, 2)]
        claimed = tuple(
            Claimed(_text(one, 2), _text(one, 3), _text(one, 4))
            for claim in messages(container, 5) for one in messages(claim, 4)
        )  # fmt: skip
        if claimed:
            found.append(Holding(*who, claimed=claimed))
    return found


def _devices(message: bytes) -> tuple[str, tuple[str, ...]]:
    return _text(message, 1), tuple(texts(message).get(2, ()))


def _text(message: bytes, number: int) -> str:
    found = messages(message, number)
    return found[-1].decode("utf-8", "replace") if found else ""
