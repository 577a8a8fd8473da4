"""Asking engines how many requests they run, over real sockets on the loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
from aiohttp import web

from events.clock import SimulatedClock, settle
from runtime.core.ledger import Poll
from runtime.desk.busy import OFTEN, RARELY, ROUNDS_OFTEN, BusyPoller, parse_running
from runtime.ports import Ending, Outcome
from tests.support.desk import Asker, world
from tests.support.slots import MODEL, name, replica
from tests.support.waiting import until


@pytest.mark.parametrize(
    ("answer", "running"),
    [
        (b'[{"id":0,"is_processing":true,"prompt":"x"},{"id":1,"is_processing":false}]', 1),
        (b"[]", 0),
        (b'{"running": 3, "slots": 4}', 3),
        (b'{"running": 0}', 0),
        (b'{"running": true}', None),
        (b'{"running": -1}', None),
        (b'{"running": "2"}', None),
        (b'[{"id":0}]', None),
        (b"[1, 2]", None),
        (b"null", None),
        (b"<html>", None),
        (b"", None),
        (b"\xff", None),
    ],
)
def test_what_an_answer_says(answer: bytes, running: int | None) -> None:
    """llama.cpp's list, an object with `running`, and nothing else: a count that is not understood is no count."""
    assert parse_running(answer) == running


@dataclass
class Engine:
    """Says how many requests it runs, after `delay`, with `status`."""

    running: int = 0
    status: int = 200
    delay: float = 0.0
    asked: int = 0
    port: int = 0
    came: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, _: web.Request) -> web.Response:
        self.asked += 1
        self.came.set()
        await asyncio.sleep(self.delay)
        slots = [{"id": index, "is_processing": index < self.running} for index in range(4)]
        return web.json_response(slots, status=self.status)


@asynccontextmanager
async def served(engine: Engine) -> AsyncIterator[Engine]:
    app = web.Application()
    app.router.add_get("/slots", engine.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    engine.port = runner.addresses[0][1]
    yield engine
    await runner.cleanup()


async def test_a_slot_settles_by_the_engines_count() -> None:
    """A cancelled stream keeps its slot until the engine says that it runs nothing; then nobody asks any more."""
    async with served(Engine(running=1)) as engine, world() as one:
        await one.observe(replace(replica(slots=1, busy_path="/slots"), address=f"127.0.0.1:{engine.port}"))
        first, second = one.ask("r1"), one.ask("r2")
        assert first.lease is not None
        one.desk.give_back(first.lease, Outcome(Ending.CLIENT_LEFT, engine_done=False))
        await until(lambda: engine.asked == 1)
        assert second.lease is None
        engine.running = 0
        for _ in range(3):
            await one.clock.advance(OFTEN)
            await asyncio.sleep(0.05)
        await until(lambda: second.lease is not None)
        asked = engine.asked
        await one.clock.advance(5.0)
        await asyncio.sleep(0.05)
        assert engine.asked == asked


@pytest.mark.parametrize("engine", [Engine(status=503), Engine(delay=1.0), None], ids=["error", "slow", "refused"])
async def test_an_engine_that_does_not_answer_is_asked_again(
    engine: Engine | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is counted; no count is invented."""
    monkeypatch.setattr("runtime.desk.busy.ANSWER_WITHIN", 0.05)
    told: list[int] = []
    clock = SimulatedClock()
    async with served(engine or Engine()) as up:
        port = up.port if engine is not None else 1
        poll = Poll(MODEL, name(0), "127.0.0.1", port, "/slots")
        poller = BusyPoller(clock, lambda: (poll,), lambda _, count, __: told.append(count))
        task = asyncio.create_task(poller.run())
        poller.wake()
        await until(lambda: poller.unanswered == 1)
        await clock.advance(OFTEN)
        await until(lambda: poller.unanswered == 2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert told == []


async def test_it_asks_often_at_first_and_then_rarely() -> None:
    """A slot that settles for minutes does not cost ten questions a second."""
    clock = SimulatedClock()
    poll = Poll(MODEL, name(0), "127.0.0.1", 1, "/slots")
    poller = BusyPoller(clock, lambda: (poll,), lambda *_: None)

    async def count(*_: object) -> int:
        return 1

    poller._count = count  # type: ignore[method-assign]  # no socket: only the rhythm matters
    task = asyncio.create_task(poller.run())
    poller.wake()
    await settle()
    await clock.advance(OFTEN * ROUNDS_OFTEN)
    assert poller.asked == pytest.approx(ROUNDS_OFTEN + 1, abs=1)
    before = poller.asked
    await clock.advance(RARELY * 10)
    assert poller.asked - before == pytest.approx(10, abs=1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_nobody_is_asked_while_nothing_settles() -> None:
    """An engine at work is left alone."""
    async with served(Engine()) as engine, world() as one:
        asker = Asker("r1")
        one.desk.take(one.wanted("r1"), asker)
        await one.clock.advance(3.0)
        assert engine.asked == 0
        assert one.desk.counts.polls == 0
