"""What the event log of a running relume says: the instants of each model's activation."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.relume_up import Relume
from events.codec import decode_structured
from events.envelope import AnyEnvelope, Envelope
from events.types.decisions import WishDecided
from events.types.grants import GrantDecided
from events.types.replicas import Phase, ReplicasObserved
from events.types.requests import RequestWindow


@dataclass(slots=True)
class Activation:
    """Instants of one model's first activation; None: it did not come to that."""

    arrived_at: float | None = None
    """The request that waits longest arrived."""
    wished_at: float | None = None
    granted_at: float | None = None
    spawned_at: float | None = None
    """The start command was issued."""
    ready_at: float | None = None


async def events(relume: Relume, topics: Sequence[str]) -> list[AnyEnvelope]:
    """What stands in the log."""
    found = []
    query = {"topic": ",".join(topics), "from": "beginning"}
    async with relume.session.get(f"{relume.admin}/events", params=query) as answer:
        answer.raise_for_status()
        for line in (await answer.read()).splitlines():
            read = decode_structured(line)
            if isinstance(read, Envelope):
                found.append(read)
    return found


async def activations(relume: Relume) -> dict[str, Activation]:
    """By model."""
    found: dict[str, Activation] = {}
    for envelope in await events(relume, ("requests", "decisions", "grants", "replicas")):
        data = envelope.data
        if isinstance(data, RequestWindow | WishDecided | GrantDecided | ReplicasObserved):
            _enter(found.setdefault(data.model, Activation()), data, envelope.time)
    return found


def _enter(seen: Activation, data: RequestWindow | WishDecided | GrantDecided | ReplicasObserved, at: float) -> None:
    match data:
        case RequestWindow(oldest_waiting_since=float(since)):
            seen.arrived_at = seen.arrived_at or since
        case WishDecided() if data.replicas:
            seen.wished_at = seen.wished_at or at
        case GrantDecided() if data.replicas:
            seen.granted_at = seen.granted_at or at
        case ReplicasObserved():
            for status in data.replicas:
                for span in status.phases:
                    if span.phase is Phase.SPAWN:
                        seen.spawned_at = seen.spawned_at or span.started_at
                seen.ready_at = seen.ready_at or status.ready_at


class TwoCommits:
    """The yardstick of an activation: a wish and a grant, each committed, with sqlite3 and nothing around it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._base = sqlite3.connect(folder / "plain.db", isolation_level=None)
        self._base.execute("PRAGMA journal_mode=WAL")
        self._base.execute("PRAGMA synchronous=NORMAL")
        self._base.execute("CREATE TABLE event (at REAL, data BLOB)")

    def seconds(self) -> float:
        """How long two of them take just now."""
        began = time.perf_counter()
        for _ in range(2):
            self._base.execute("BEGIN")
            self._base.execute("INSERT INTO event VALUES (?, ?)", (began, b"x" * 1024))
            self._base.execute("COMMIT")
        return time.perf_counter() - began

    def close(self) -> None:
        """Be done."""
        self._base.close()
