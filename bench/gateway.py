"""CPU of the data port per JSON request, beside HAProxy, nginx, Envoy and a proxy of aiohttp, interleaved.

relume is measured as it runs: `relume up` with everything in its process, one model with one replica of 512 slots. The
yardsticks forward to that same replica, and do nothing else: they know no slots, meter nothing, read no body.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import load, machine
from bench.figures import Effort, Figure, Target, median
from bench.load import Stretch, json_stretch
from bench.peers.known import PEERS
from bench.peers.process import CannotRun, Proxy
from bench.relume_up import Relume, model, relume_up

HAPROXY = "HAProxy"
AIOHTTP = "aiohttp proxy"
GATES = {HAPROXY: Target(1.6, 1.25, of_ratio=True), AIOHTTP: Target(0.2, of_ratio=True)}
"""Design §11, at 16 connections."""


@dataclass(frozen=True, slots=True)
class Field:
    """The contenders, and why others are not among them."""

    relume: Relume
    logging: Relume
    """The same with its access log on."""
    peers: Sequence[Proxy]
    absent: dict[str, str]

    @property
    def all(self) -> Sequence[Proxy]:
        """relume first."""
        return (self.relume, self.logging, *self.peers)


@asynccontextmanager
async def field() -> AsyncIterator[Field]:
    """All contenders, ready: relume's replica is the upstream of all."""
    load_core, proxy_core = machine.cores()
    if load_core is not None:
        os.sched_setaffinity(0, {load_core})
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(load.scratch()))
        up = await stack.enter_async_context(_pinned(folder / "up", "relume", "", proxy_core))
        log = str(folder / "access.log")
        logging = await stack.enter_async_context(_pinned(folder / "log", "relume, access log", log, proxy_core))
        await logging.wake()
        upstream = await up.wake()
        peers: list[Proxy] = []
        absent: dict[str, str] = {}
        for name, make in PEERS.items():
            try:
                peer = make(folder, upstream[1])
                await peer.start()
            except CannotRun as why:
                absent[name] = str(why)
            else:
                stack.push_async_callback(peer.stop)
                peers.append(peer)
        yield Field(up, logging, peers, absent)


@asynccontextmanager
async def _pinned(folder: Path, name: str, access_log: str, core: int | None) -> AsyncIterator[Relume]:
    """A relume whose own threads are on one core, once its replica has been started on the others."""
    async with relume_up(folder, model(), name, access_log) as up:
        await up.wake()
        machine.pin(up.pid, core)
        yield up


async def run(effort: Effort) -> list[Figure]:
    """CPU microseconds a request at 1, 16 and 128 connections."""
    async with field() as contenders:
        figures = []
        for connections in (16,) if effort.quick else (16, 1, 128):
            for proxy in contenders.all:
                await json_stretch(proxy, connections, min(1.0, effort.seconds))  # warm
            taken: dict[str, list[Stretch]] = {proxy.name: [] for proxy in contenders.all}
            for _ in range(effort.rounds):
                for proxy in contenders.all:
                    taken[proxy.name].append(await json_stretch(proxy, connections, effort.seconds))
            figures += _figures(contenders, connections, taken)
        return figures


def _figures(contenders: Field, connections: int, taken: dict[str, list[Stretch]]) -> list[Figure]:
    each = {name: [stretch.cpu_us for stretch in stretches] for name, stretches in taken.items()}
    rate = {name: median([one.requests / one.seconds for one in stretches]) for name, stretches in taken.items()}
    mine = each[contenders.relume.name]
    what = f"JSON request, {connections} connections"
    figures = []
    for name in (peer.name for peer in contenders.peers):
        target = GATES.get(name) if connections == 16 else None
        why = f"{rate[contenders.relume.name]:,.0f} requests/s, {name} {rate[name]:,.0f}; load by {load.generator()}"
        figures.append(
            Figure(what, "us CPU", median(mine), name, median(each[name]), target, min(mine), max(mine), why)
        )
    if connections == 16:
        figures += [Figure(what, yardstick=name, target=GATES.get(name), why=why)
                    for name, why in contenders.absent.items()]  # fmt: skip
        logged = each[contenders.logging.name]
        figures.append(
            Figure(f"{what}, access log on", "us CPU", median(logged), "without", median(mine),
                   low=min(logged), high=max(logged))
        )  # fmt: skip
    return figures
