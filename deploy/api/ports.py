"""What the admin API needs of the process that it speaks for. Compose fulfils these; tests fake them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


class ModelTraffic(Protocol):
    """How many requests of one model run and how many are held, at this instant."""

    @property
    def model(self) -> str:
        """The model's name."""

    @property
    def running(self) -> int:
        """Requests that hold a lease."""

    @property
    def held(self) -> int:
        """Requests in the hold queue."""


class Traffic(Protocol):
    """What the slot authority counts. `runtime.desk.desk.Desk` is one."""

    def statuses(self) -> Sequence[ModelTraffic]:
        """All models that it knows; one that is not among them is unknown, which is not zero."""


class ReplicaLogs(Protocol):
    """The output of replicas, also of ones that ended while it is kept."""

    async def tail(self, replica: str, lines: int) -> Sequence[str] | None:
        """The last `lines` lines, oldest first, without line ends; None for an unknown replica."""

    def follow(self, replica: str, lines: int) -> AsyncIterator[str]:
        """The last `lines` lines and then each new one, until the replica ends or the iterator is closed."""


class TrainingLogs(Protocol):
    """The output of members of training jobs (``JOB-INDEX``), of all their runs that are kept."""

    async def tail(self, member: str, lines: int) -> Sequence[str] | None:
        """The last `lines` lines, oldest first, without line ends; None for an unknown member."""

    def follow(self, member: str, lines: int) -> AsyncIterator[str]:
        """The last `lines` lines and then each new one, until the member ends or the iterator is closed."""


class Explainer(Protocol):
    """Why the autoscaler decided as it did."""

    def explain(self, model: str) -> Explanation | None:
        """The last decision in sentences; None when nothing was decided for the model yet."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision for people (`sentences`) and for programs (`facts`: JSON values, as the autoscaler names them)."""

    sentences: Sequence[str]
    facts: Mapping[str, object]


class Readiness(Protocol):
    """Whether the parts of this process can do their work."""

    def missing(self) -> Sequence[str]:
        """What is not ready, a sentence each; empty when everything is."""

    def troubles(self) -> Sequence[str]:
        """What does not work though requests are taken, a sentence each."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One number for ``/metrics``: `name` without the prefix ``relume_``; a counter's name ends in ``_total``."""

    name: str
    help: str
    value: float
    kind: Literal["gauge", "counter"] = "gauge"
    labels: tuple[tuple[str, str], ...] = ()


class Readings(Protocol):
    """Numbers that no event tells: loop lag, drops, sizes of queues. Series must be bounded in number."""

    def read(self) -> Iterable[Reading]:
        """The numbers now. Readings of one name share help, kind and label names."""
