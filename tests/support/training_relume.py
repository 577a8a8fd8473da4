"""A process with a local cluster on a log in its folder, which a test may kill: ``python training_relume.py FOLDER``.

Events come in on standard input, states of training go out on standard output: a pickle in base64 a line. SIGTERM
stops it in order.
"""

from __future__ import annotations

import asyncio
import base64
import pickle
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from events.adapters.sqlite import SqliteEventLog
from events.clock import SystemClock
from events.following import Follower
from events.log import Batch, Start
from events.names import Topic
from events.types.training import RunState, TrainingObserved
from events.units import Seconds
from tests.support.training_stage import QUICK, TrainingStage

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0


class Relume:
    """The process, as the test sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.seen: list[TrainingObserved] = []

    @classmethod
    async def start(cls, folder: Path) -> Relume:
        """Start one on this folder."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.support.training_relume", str(folder), cwd=ROOT,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 22,
        )  # fmt: skip
        return cls(process)

    def say(self, data: object, epoch: int | None = None) -> None:
        """Append an event."""
        assert self._process.stdin is not None
        self._process.stdin.write(base64.b64encode(pickle.dumps((data, epoch))) + b"\n")

    async def until(self, holds: Callable[[TrainingObserved], bool]) -> TrainingObserved:
        """The first state that it tells for which `holds`."""
        assert self._process.stdout is not None
        last: TrainingObserved | None = None
        try:
            async with asyncio.timeout(PATIENCE):
                async for line in self._process.stdout:
                    last = pickle.loads(base64.b64decode(line))
                    self.seen.append(last)
                    if holds(last):
                        return last
        except TimeoutError:
            raise AssertionError(f"not within {PATIENCE:g} s; the last state was {last}") from None
        raise AssertionError(f"it ended; the last state was {last}")

    async def stepping(self, run: int = 1) -> TrainingObserved:
        """Wait until a run has said something."""
        return await self.until(lambda one: one.run == run and one.reports and one.state is RunState.RUNNING)

    async def empty(self, run: int = 1) -> TrainingObserved:
        """Wait until a run has ended and its cards were seen empty."""
        return await self.until(lambda one: one.run == run and one.empty_at is not None)

    async def kill(self) -> None:
        """As the system does when memory is short."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def stop(self) -> int:
        """In order; its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return await self._process.wait()


async def main(folder: Path) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    clock = SystemClock()
    async with SqliteEventLog(folder / "events.db", clock) as log:
        stage = TrainingStage(folder, QUICK, log)
        await stage.cluster.start()

        def tell(batch: Batch) -> None:
            for record in batch.records:
                if isinstance(record.envelope.data, TrainingObserved):
                    sys.stdout.buffer.write(base64.b64encode(pickle.dumps(record.envelope.data)) + b"\n")
            sys.stdout.buffer.flush()

        follower = asyncio.create_task(Follower(log, clock, (Topic.REPLICAS,), Start("newest_per_key"), tell).run())
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        hearing = asyncio.create_task(hear(reader, stage))
        await ended.wait()
        hearing.cancel()
        await stage.cluster.stop(Seconds(0.0), Seconds(10.0))
        follower.cancel()
        await asyncio.gather(hearing, follower, return_exceptions=True)


async def hear(reader: asyncio.StreamReader, stage: TrainingStage) -> None:
    while line := await reader.readline():
        await stage.say(*pickle.loads(base64.b64decode(line)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
