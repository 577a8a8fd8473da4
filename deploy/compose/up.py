"""`relume up`, and its parts as processes of their own: from the settings to the exit code."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import sys
from collections.abc import Sequence

import uvloop

from deploy.api.problem import ProblemError
from deploy.compose.eventlog import event_log
from deploy.compose.logs import set_up_logging
from deploy.compose.process import Process
from deploy.compose.roles import Role, folder_of, hold_folder, make
from deploy.kubernetes.api import KubernetesMissing
from deploy.kubernetes.lease import LeaseLost
from deploy.local.folder import DataFolder, FolderInUse, FolderUnusable
from deploy.local.inventory import InventoryFailed
from deploy.local.stale import StaleProcessesRemain
from deploy.settings.settings import Settings
from deploy.spec.kinds import Document
from deploy.spec.load import load_files
from deploy.spec.problem import SpecRefused
from events.clock import SystemClock
from events.log import EventLogError
from events.units import Seconds
from preemption.loop import Deposed

logger = logging.getLogger(__name__)

_TOLD = (
    FolderInUse, FolderUnusable, InventoryFailed, StaleProcessesRemain, SpecRefused, EventLogError, ProblemError,
    Deposed, KubernetesMissing, LeaseLost,
)  # fmt: skip
"""What the user can mend: told in a sentence, without a traceback."""


_NO_PORT = {
    errno.EADDRINUSE: "is taken by another program", errno.EADDRNOTAVAIL: "is not an address of this machine",
    errno.EACCES: "may not be used by this user",
}  # fmt: skip


GIL_TURN = 0.0005
"""Seconds after which a thread that computes lets another one go on (`sys.setswitchinterval`; CPython's own is 5 ms).
The log's writer takes the interpreter's lock again after each step of a commit: while the loop works off a burst, each
of these waits would be 5 ms, and a decision needs three commits."""


def run(settings: Settings, files: Sequence[str], role: Role = Role.ALL) -> int:
    """Run until SIGTERM or SIGINT (exit code 0), or until it cannot go on (1). A second signal ends it at once."""
    sys.setswitchinterval(GIL_TURN)
    set_up_logging(settings)
    try:
        documents = load_files(files, sys.stdin.buffer).or_refuse()
        folder = hold_folder(role, settings)
    except _TOLD as error:
        return _refuse(error)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_main(role, settings, documents, folder))
    finally:
        if folder is not None:
            folder.close()


async def _main(role: Role, settings: Settings, documents: Sequence[Document], folder: DataFolder | None) -> int:
    clock = SystemClock()
    try:
        async with event_log(settings, clock, folder_of(role, settings)) as log:
            process = Process(log, clock, make(role, settings, log, clock, folder))
            return await _live(process, settings, documents)
    except _TOLD as error:
        return _refuse(error)
    except OSError as error:
        if error.errno not in _NO_PORT:
            raise
        return _refuse(no_port(error, settings))


async def _live(relume: Process, settings: Settings, documents: Sequence[Document]) -> int:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, ended, number)
    broken: asyncio.Task[None] | None = None
    asked = asyncio.create_task(ended.wait())
    try:
        starting = asyncio.create_task(relume.start(documents))
        await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
        await asyncio.gather(starting, return_exceptions=ended.is_set())
        if not ended.is_set():
            logger.info("%s", ", ".join(f"{role} on {url}" for role, url in relume.urls.items()))
            broken = asyncio.create_task(relume.wait())
            await asyncio.wait({broken, asked}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        asked.cancel()
        if broken is not None:
            logger.info("shutting down; running answers have %.0f s", settings.drain_bound)
        await relume.stop(Seconds(settings.drain_bound))
    if broken is not None and not ended.is_set():
        if isinstance(why := broken.exception(), _TOLD):
            raise why
        logger.critical("a part of relume failed", exc_info=why)
        return 1
    if broken is not None:
        broken.cancel()
        await asyncio.gather(broken, return_exceptions=True)
    return 0


def _on_signal(ended: asyncio.Event, number: int) -> None:
    """The first signal drains; the second one means it."""
    if ended.is_set():
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    ended.set()


def no_port(error: OSError, settings: Settings) -> OSError:
    """A failure to listen, in a sentence: which of the two ports, why, and which option to change."""
    ports = {
        "gateway": (settings.gateway_host, settings.gateway_port),
        "admin": (settings.admin_host, settings.admin_port),
    }
    # asyncio tells the address in the text only: ('127.0.0.1', 8080), or with two numbers more for IPv6.
    role = next(
        (role for role, (_, port) in ports.items() if f"', {port})" in str(error) or f"', {port}," in str(error)), ""
    )
    if not role:
        return OSError(f"{error}; choose other ports with --gateway-port and --admin-port, or 0 for free ones")
    host, port = ports[role]
    why = _NO_PORT[error.errno or 0]
    option = f"--{role}-host" if error.errno == errno.EADDRNOTAVAIL else f"--{role}-port, or 0 for any free one"
    return OSError(f"the {role} port, {host}:{port}, {why}; choose another with {option}")


def _refuse(error: Exception) -> int:
    text = "\n".join(str(problem) for problem in error.problems) if isinstance(error, SpecRefused) else str(error)
    sys.stderr.write(f"relume: {text}\n")
    return 1
