"""Replicas that outlived the relume which started them: found, and taken over.

Their shims wait at a door (see `shim`), a socket named after the replica in ``DATA/doors``. What they are stands in the
log, as their last relume published it; a replica whose door, process and state fit together serves on as if nothing had
happened. All others are killed: they may be half started, and a new start is quicker than to find out.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.local.environment import MARK_DATA, MARK_REPLICA
from deploy.local.folder import DataFolder
from deploy.local.logs import log_path
from deploy.local.process import Order, ReplicaProcess
from events.log import EventLog, Query
from events.names import Topic
from events.types.replicas import ReplicasObserved, ReplicaState, ReplicaStatus

ANSWER: Final = 5.0
"""Seconds in which a shim must answer at its door: it does nothing else."""
SERVING: Final = (ReplicaState.READY, ReplicaState.DRAINING)


@dataclass(frozen=True, slots=True)
class Survivor:
    """A replica that serves on: of which model, what it is, and its processes."""

    model: str
    status: ReplicaStatus
    process: ReplicaProcess


class AdoptedShim:
    """A shim that was started by another relume. (Fulfils `process.Shim`.)"""

    def __init__(self, pid: int, stdout: asyncio.StreamReader, stdin: asyncio.StreamWriter) -> None:
        self.pid = pid
        self.stdout = stdout
        self.stdin = stdin

    def kill(self) -> None:
        """See `process.Shim`."""
        os.kill(self.pid, signal.SIGKILL)

    async def wait(self) -> None:
        """It has ended when its connection has, which the caller has seen: it is nobody's child here."""


async def survivors(log: EventLog, folder: DataFolder, node: str) -> dict[str, Survivor]:
    """Replicas of this folder and node that serve, by name, taken over. Raises LogUnavailable, LogClosed."""
    doors = await asyncio.to_thread(_doors, folder)
    if not doors:
        return {}
    serving = await _serving(log, node)
    found: dict[str, Survivor] = {}
    for name, path in doors.items():
        if name not in serving:
            continue
        model, status = serving[name]
        env = {MARK_REPLICA: name, MARK_DATA: folder.mark}
        adopted = await knock(path, Order(argv=("adopted",), env=env, log_path=log_path(folder.logs, name), header=""))
        if adopted is None:
            continue
        if adopted.process.pid == status.pid and not adopted.stopping:
            found[name] = Survivor(model, status, adopted.process)
        else:
            adopted.process.kill()
            await adopted.process.wait_gone()
    return found


def _doors(folder: DataFolder) -> Mapping[str, Path]:
    return {path.name: path for path in sorted(folder.doors.iterdir())}


async def _serving(log: EventLog, node: str) -> dict[str, tuple[str, ReplicaStatus]]:
    """What the log says of replicas of this node, by name."""
    found = {}
    async for record in log.read(Query(Topic.REPLICAS, newest_per_key=True)):
        observed = record.envelope.data
        for status in observed.replicas if isinstance(observed, ReplicasObserved) else ():
            if status.node == node and status.state in SERVING and status.ready_at is not None:
                found[status.replica] = (observed.model, status)
    return found


@dataclass(frozen=True, slots=True)
class Adopted:
    """Processes that were another relume's. `stopping`: they have been told to end."""

    process: ReplicaProcess
    stopping: bool


async def knock(path: Path, order: Order) -> Adopted | None:
    """Take over who is behind a door; None when nobody is. `order` says what was started there, by its marks."""
    at = os.open(path.parent, os.O_RDONLY)  # a socket's address may have 107 bytes, and folders are deep
    short = Path(f"/proc/self/fd/{at}/{path.name}")
    try:
        async with asyncio.timeout(ANSWER):
            reader, writer = await asyncio.open_unix_connection(short if short.parent.exists() else path)
            _, engine, shim, *state = (await reader.readline()).decode().split()
            adopted = AdoptedShim(int(shim), reader, writer)
            return Adopted(ReplicaProcess(order, adopted, int(engine)), stopping=bool(state))
    except (OSError, TimeoutError, ValueError):  # it ended: its socket's file may be left, its processes are found
        await asyncio.to_thread(path.unlink, missing_ok=True)
        return None
    finally:
        os.close(at)
