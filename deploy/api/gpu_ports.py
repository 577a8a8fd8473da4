"""What the admin API needs of who looks after a node's GPUs."""

from __future__ import annotations

from http import HTTPStatus
from typing import Protocol

from deploy.api.gpushapes import NodeGpusSeen
from deploy.api.problem import ProblemError, refuse


class NodeGpus(Protocol):
    """The GPUs of the node that this process looks after. Both raise ProblemError where it looks after none."""

    async def seen(self, after: int) -> NodeGpusSeen:
        """What they say, once it is another than version `after`, and after some seconds anyway."""

    async def look(self) -> NodeGpusSeen:
        """What they say now, read after this was asked."""


class NoGpus:
    """For a process that looks after no node's GPUs."""

    async def seen(self, after: int) -> NodeGpusSeen:  # noqa: ARG002 - the port's shape
        """See `NodeGpus`."""
        raise _elsewhere()

    async def look(self) -> NodeGpusSeen:
        """See `NodeGpus`."""
        raise _elsewhere()


def _elsewhere() -> ProblemError:
    return refuse(
        HTTPStatus.MISDIRECTED_REQUEST, "no-gpus-here", "this process does not look after a node's GPUs",
        remedy="ask the agent of the node: give --admin its admin port",
    )  # fmt: skip
