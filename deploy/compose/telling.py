"""What the admin port asks of the other roles, answered: explanations, readiness, numbers for ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields

from autoscaler.explain import Records, explain
from autoscaler.loop import Autoscaler
from deploy.api.board import Board
from deploy.api.ports import Explanation, Reading
from deploy.compose.eventlog import OpenLog
from deploy.local.cluster import LocalCluster
from preemption.loop import Allocator
from runtime.desk.desk import Desk
from runtime.gateway.server import GatewayServer


class BoardExplainer:
    """Explains from the records that the admin port's board holds; `board` is asked for late, since it holds us."""

    def __init__(self, board: Callable[[], Board]) -> None:
        self._board = board

    def explain(self, model: str) -> Explanation | None:
        """See `deploy.api.ports.Explainer`."""
        entry = self._board().entry(model)
        if entry is None or entry.wish is None:
            return None
        told = explain(Records(entry.wish, entry.grant, entry.observed, entry.declared))
        return Explanation(sentences=told.sentences, facts=told.facts)


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of one process."""

    log: OpenLog
    desk: Desk
    gateway: GatewayServer
    autoscaler: Autoscaler
    allocator: Allocator
    cluster: LocalCluster


class RolesReadiness:
    """Ready when each role has read what stood in the log."""

    def __init__(self, roles: Roles) -> None:
        self._roles = roles

    def missing(self) -> Sequence[str]:
        """See `deploy.api.ports.Readiness`."""
        missing = list(self._roles.autoscaler.missing())
        if not self._roles.desk.ready:
            missing.append("the gateway does not know yet what is declared and what runs, or is shutting down")
        if not self._roles.allocator.caught_up.is_set():
            missing.append("the allocator has not read the states yet")
        if self._roles.cluster.cards is None:
            missing.append("the local cluster has not taken its inventory yet")
        return missing

    def troubles(self) -> Sequence[str]:
        """See `deploy.api.ports.Readiness`."""
        why = self._roles.log.trouble
        return [f"the event log takes nothing, so nothing is scaled; what is warm serves on ({why})"] if why else []


_LEVELS = frozenset({
    "connections", "held", "running", "buffered_bytes", "upstream_idle", "queue_depth", "news_pending", "models",
    "replicas", "ready", "starting", "tending",
})  # fmt: skip
"""Fields of the roles' counts that go up and down; all others only count up."""


class RolesReadings:
    """The counts of each role as ``relume_ROLE_FIELD``; counters end in ``_total``."""

    def __init__(self, roles: Roles) -> None:
        self._roles = roles

    def read(self) -> Iterable[Reading]:
        """See `deploy.api.ports.Readings`."""
        roles = self._roles
        yield from _readings("log", roles.log.stats())
        failing = float(bool(roles.log.trouble))
        yield Reading("log_failing", "1 while the event log cannot be written, else 0.", failing)
        yield from _readings("desk", roles.desk.counts)
        yield from _readings("gateway", roles.gateway.stats())
        yield from _readings("autoscaler", roles.autoscaler.statistics())
        yield from _readings("allocator", roles.allocator.stats)
        yield from _readings("cluster", roles.cluster.stats())


def _readings(role: str, counts: object) -> Iterable[Reading]:
    for field in fields(counts):  # type: ignore[arg-type]  # every role's counts are a dataclass
        level = field.name in _LEVELS
        yield Reading(
            name=f"{role}_{field.name}" + ("" if level else "_total"),
            help=f"{role}: {field.name.replace('_', ' ')}" + ("" if level else " since the start"),
            value=float(getattr(counts, field.name)),
            kind="gauge" if level else "counter",
        )
