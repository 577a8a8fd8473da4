"""One replica's processes: the shim and, below it, the engine and whatever the engine starts.

How they end, whoever dies first, is told in `shim`; here is relume's side. When the shim itself is killed the kernel
kills the engine (Linux), and what is left of its group and of its marked processes is killed from here. `gone` is only
said when nothing is left: until then cards and memory are not free.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from deploy.local.environment import MARK_DATA, MARK_REPLICA
from deploy.local.stale import StaleProcessesRemain, is_ending, kill_marked

logger = logging.getLogger(__name__)

SHIM: Final = str(Path(__file__).with_name("shim.py"))
_EXIT: Final = re.compile(r"(exit|signal) (\d{1,3})\n")
FIRST_WORD: Final = 20.0
"""Seconds in which the shim must have said whether the engine runs: it takes 20 ms, a busy machine some more."""


class CannotStart(Exception):
    """The command cannot be executed; `missing` when there is no such command."""

    def __init__(self, message: str, *, missing: bool) -> None:
        super().__init__(message)
        self.missing = missing


@dataclass(frozen=True, slots=True)
class Exit:
    """How an engine ended. Neither: its shim was killed, and the engine with it."""

    code: int | None = None
    signal: int | None = None

    def __str__(self) -> str:
        if self.code is not None:
            return f"exit code {self.code}"
        if self.signal is None:
            return "killed together with its shim"
        with contextlib.suppress(ValueError):  # real-time signals have no name
            return f"killed by {signal.Signals(self.signal).name}"
        return f"killed by signal {self.signal}"


@dataclass(frozen=True, slots=True)
class Door:
    """A socket at which the next relume takes a replica over, for `open_for` seconds after the death of this one."""

    path: Path
    open_for: float


class Shim(Protocol):
    """What is needed of a shim: a child's pipes, or a connection to one that was another's child."""

    @property
    def pid(self) -> int:
        """Its pid."""

    @property
    def stdout(self) -> asyncio.StreamReader | None:
        """What it reports."""

    @property
    def stdin(self) -> asyncio.StreamWriter | None:
        """The life pipe."""

    def kill(self) -> None:
        """SIGKILL. ProcessLookupError: it has ended."""

    async def wait(self) -> object:
        """Return when it has ended."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to start. `env` carries the marks; `cores`: those it may run on (empty: all); `folder`: where to
    start it (None: here)."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    log_path: Path
    header: str
    log_bytes: int = 5 << 20
    grace: float = 5.0
    orphan_grace: float = 1.0
    niceness: int = 0
    cores: tuple[int, ...] = ()
    door: Door | None = None
    keep: tuple[int, ...] = ()
    """Descriptors that shim and engine inherit: uses of weights, which so end when the last process does."""
    folder: Path | None = None
    word: Path | None = None
    """Where it is written how the engine ended, for a relume that comes after."""

    def shim_arguments(self) -> list[str]:
        """The command line of the shim (without Python's)."""
        numbers = [str(self.log_bytes), str(self.grace), str(self.orphan_grace), str(self.niceness)]
        door = ["", "0"] if self.door is None else [str(self.door.path), str(self.door.open_for)]
        word = "" if self.word is None else str(self.word)
        return [str(self.log_path), *numbers, ",".join(map(str, self.cores)), *door, word, self.header, *self.argv]


class ReplicaProcess:
    """A running engine under its shim. Made by `start_process`."""

    def __init__(self, order: Order, shim: Shim, pid: int) -> None:
        self.pid = pid
        self._order = order
        self._shim = shim
        loop = asyncio.get_running_loop()
        self._exit: asyncio.Future[Exit] = loop.create_future()
        self._following = loop.create_task(self._follow(), name=f"process of {order.env.get(MARK_REPLICA)}")

    @property
    def shim_pid(self) -> int:
        """The pid of the shim."""
        return self._shim.pid

    @property
    def exit(self) -> Exit | None:
        """How the engine ended, or None while it runs."""
        return self._exit.result() if self._exit.done() else None

    def terminate(self) -> None:
        """Ask all of it to end: SIGTERM now, SIGKILL after the grace."""
        self._say(b"t")

    def kill(self) -> None:
        """SIGKILL to all of it, now."""
        self._say(b"k")
        if not self._exit.done():  # a shim that is stopped or starved does not hear; its engine does
            self._signal_group()

    def abandon_shim(self) -> None:
        """The shim does not do its work (somebody stopped it): kill it, which makes `_follow` clear up in its place."""
        with contextlib.suppress(ProcessLookupError):
            self._shim.kill()

    async def wait_exit(self) -> Exit:
        """Return when the engine ended (others of its group may still be there)."""
        return await asyncio.shield(self._exit)

    async def wait_gone(self) -> Exit:
        """Return when no process of it is left."""
        await asyncio.shield(self._following)
        return self._exit.result()

    def _say(self, word: bytes) -> None:
        _say(self._shim, word)

    def _signal_group(self) -> None:
        with contextlib.suppress(OSError):  # nobody is left in it, as it should be
            os.killpg(self.pid, signal.SIGKILL)

    async def _follow(self) -> None:
        """Hear the shim to its end; if it ended without `gone`, clear up in its place."""
        clean = False
        with contextlib.suppress(ConnectionError):  # an adopted shim that ends before it has read all that we said
            clean = await self._hear()
        if not self._exit.done() and self._order.word is not None:
            word = await asyncio.to_thread(read_word, self._order.word)
            if word is not None:
                self._exit.set_result(word)
        if not clean:
            self._signal_group()
        await self._shim.wait()
        if not self._exit.done():
            self._exit.set_result(Exit())
        if not clean or sys.platform != "linux":  # elsewhere nothing but the marks finds one that left the group
            await self._sweep()
        if self._shim.stdin is not None:
            self._shim.stdin.close()

    async def _hear(self) -> bool:
        """What the shim reports; whether its last word is that nothing is left."""
        assert self._shim.stdout is not None
        clean = False
        async for line in self._shim.stdout:
            if line == b"gone\n":
                clean = True
            elif (exit_ := parse_exit(line.decode())) is not None and not self._exit.done():
                self._exit.set_result(exit_)
        return clean

    async def _sweep(self) -> None:
        """Kill what carries this replica's marks, until there is none, and the engine has let go of what it held."""
        while True:
            try:
                await asyncio.to_thread(kill_marked, self._order.env[MARK_DATA], self._order.env[MARK_REPLICA])
            except StaleProcessesRemain as remain:
                logger.error("replica keeps its resources: %s", remain)  # noqa: TRY400 - its words say it all
            else:
                if not is_ending(self.pid):
                    return


def parse_exit(line: str) -> Exit | None:
    """The end of an engine as a shim tells it: ``exit CODE`` or ``signal NUMBER``, and a line's end."""
    said = _EXIT.fullmatch(line)
    if said is None:
        return None
    number = int(said[2])
    return Exit(code=number) if said[1] == "exit" else Exit(signal=number)


def read_word(path: Path) -> Exit | None:
    """What a shim left there (`Order.word`); None when it did not. Blocking."""
    try:
        return parse_exit(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


async def start_process(order: Order) -> ReplicaProcess:
    """Start an engine under a shim. Raises CannotStart when the command cannot be executed.

    Returns when the engine's process runs, which says nothing of its being ready.
    """
    shim = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", SHIM, *order.shim_arguments(),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        env=dict(order.env), start_new_session=True, pass_fds=order.keep, cwd=order.folder,
    )  # fmt: skip
    try:
        pid = await _first_word(shim, order)
    except BaseException:
        assert shim.stdin is not None
        _say(shim, b"k")
        shim.stdin.close()  # the shim ends, and with it what it may have started
        await shim.wait()
        raise
    return ReplicaProcess(order, shim, pid)


def _say(shim: Shim, word: bytes) -> None:
    """Tell the shim, unless it has ended already: uvloop refuses to write to a pipe that is closed."""
    if shim.stdin is not None and not shim.stdin.is_closing():
        shim.stdin.write(word)


async def _first_word(shim: Shim, order: Order) -> int:
    assert shim.stdout is not None
    try:
        async with asyncio.timeout(FIRST_WORD):
            line = (await shim.stdout.readline()).decode(errors="replace").strip()
    except TimeoutError as error:
        raise CannotStart(f"the shim of {order.argv[0]} said nothing in {FIRST_WORD:g} s", missing=False) from error
    word, _, rest = line.partition(" ")
    if word == "pid":
        return int(rest)
    number, _, text = rest.partition(" ")
    if word != "error":
        raise CannotStart(f"the shim of {order.argv[0]} ended before it started it", missing=False)
    missing = number in {"2", "13", "20"}  # ENOENT, EACCES, ENOTDIR
    raise CannotStart(f"cannot execute {order.argv[0]}: {text}", missing=missing)
