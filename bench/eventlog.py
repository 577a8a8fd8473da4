"""The SQLite event log beside plain sqlite3 that does the same inserts in one thread."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path

from bench import load
from bench.decisions import window
from bench.figures import Effort, Figure, median, percentile
from events.adapters.sqlite import SqliteEventLog
from events.clock import SystemClock
from events.codec import to_binary
from events.envelope import AnyEnvelope
from events.log import Start
from events.names import Topic
from events.writer import EventWriter

SHORT = 0.002
GROUP = 256
"""Rows of one plain transaction: about what the log's writer takes at once under such a load."""


async def run(effort: Effort) -> list[Figure]:
    """CPU microseconds an offered event; milliseconds from an append to its subscriber."""
    count, appends = effort.size(20_000, 500), effort.size(300, 20)
    offered: list[float] = []
    plain: list[float] = []
    rates: list[float] = []
    waits: list[float] = []
    commits: list[float] = []
    with load.scratch() as scratch:
        for index in range(effort.rounds):
            folder = Path(scratch) / str(index)
            folder.mkdir()
            clock = SystemClock()
            writer = EventWriter("relume/gateway/bench", clock)
            events = [writer.envelope(window(f"m{one % 100}", 0.0, 1.0, 3)) for one in range(count)]
            async with SqliteEventLog(folder / "events.db", clock) as log:
                cpu, rate = await _offer(log, events)
                offered.append(cpu / count * 1e6)
                rates.append(rate)
                waits += await _append(log, writer, clock, appends)
            cpu, seconds = _plain(folder / "plain.db", events, appends)
            plain.append(cpu / count * 1e6)
            commits += seconds
    rows = "plain sqlite3, same rows"
    commit = "one plain commit"
    why = f"{median(rates):,.0f} offered events/s until all were durable"
    return [
        Figure("offered event, durable", "us CPU", median(offered), rows, median(plain),
               low=min(offered), high=max(offered), why=why),
        Figure("append to its subscriber, p50", "ms", percentile(waits, 0.5), commit, percentile(commits, 0.5)),
        Figure("append to its subscriber, p99", "ms", percentile(waits, 0.99), commit, percentile(commits, 0.99)),
    ]  # fmt: skip


async def _offer(log: SqliteEventLog, events: list[AnyEnvelope]) -> tuple[float, float]:
    """(CPU seconds of the process, events a second) until all of them are durable; a full log is waited for."""
    began, cpu = time.perf_counter(), time.process_time()
    for event in events:
        while not log.offer(event):  # noqa: ASYNC110 - as below
            await asyncio.sleep(SHORT)
    while log.stats().queue_depth:  # noqa: ASYNC110 - the writer's thread tells nobody that it has nothing left
        await asyncio.sleep(SHORT)
    return time.process_time() - cpu, len(events) / (time.perf_counter() - began)


async def _append(log: SqliteEventLog, writer: EventWriter, clock: SystemClock, count: int) -> list[float]:
    """Milliseconds from each append to its delivery to a subscriber, one after the other."""
    subscription = log.subscribe((Topic.REQUESTS,), Start("end"))
    batches = aiter(subscription)
    waits = []
    for _ in range(count):
        event = writer.envelope(window("m", 0.0, clock.now(), 3))
        began = time.perf_counter()
        await log.append([event])
        async with asyncio.timeout(10):
            while not any(record.envelope.id == event.id for record in (await anext(batches)).records):
                pass
        waits.append((time.perf_counter() - began) * 1000)
    await subscription.close()
    return waits


def _plain(path: Path, events: list[AnyEnvelope], commits: int) -> tuple[float, list[float]]:
    """(CPU seconds for the rows, encoded and in groups; milliseconds of single commits)."""
    base = sqlite3.connect(path, isolation_level=None)
    base.execute("PRAGMA journal_mode=WAL")
    base.execute("PRAGMA synchronous=NORMAL")
    base.execute("CREATE TABLE event (offset INTEGER PRIMARY KEY, id TEXT, key TEXT, at REAL, headers TEXT, data BLOB)")
    insert = "INSERT INTO event (id, key, at, headers, data) VALUES (?, ?, ?, ?, ?)"
    cpu = time.process_time()
    for begin in range(0, len(events), GROUP):
        rows = [_row(event) for event in events[begin : begin + GROUP]]
        base.execute("BEGIN")
        base.executemany(insert, rows)
        base.execute("COMMIT")
    used = time.process_time() - cpu
    seconds = []
    for event in events[:commits]:
        began = time.perf_counter()
        base.execute("BEGIN")
        base.execute(insert, _row(event))
        base.execute("COMMIT")
        seconds.append((time.perf_counter() - began) * 1000)
    base.close()
    return used, seconds


def _row(event: AnyEnvelope) -> tuple[object, ...]:
    encoded = to_binary(event)
    return event.id, event.key, event.time, repr(encoded.headers), encoded.data
