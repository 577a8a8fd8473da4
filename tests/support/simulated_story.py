"""What happens in a simulated world: traffic in bursts, changes by people, faults; and the quiet at the end."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from tests.support.faulty_log import LogFaults
from tests.support.simulated_world import TOTAL, Hazards, Setup, Watcher, World, behaviour, ended, forever, world

QUIET = 120.0
"""Seconds at the end, beyond the longest keep-alive: for drains, back-off of what is still wanted, and lost news (a
gateway whose closing window was lost is known to have nothing after 60 s)."""


@dataclass(frozen=True)
class Told:
    """What a run did, for whoever compares or counts."""

    events: int
    endings: dict[str, int]
    trace: tuple[str, ...]


def drawn_setup(seed: int) -> Setup:
    """A world of its own for each seed: from quiet to everything at once."""
    drawn = random.Random(f"setup {seed}")

    def some(*choices: float) -> float:
        return drawn.choice((0.0, *choices))

    log = LogFaults(
        delay=some(0.01, 0.2), loses_news=some(0.05), repeats_news=some(0.1), unsure=drawn.choice((0.0, 0.5))
    )
    hazards = Hazards(
        crashes=some(5.0, 30.0), hangs=some(60.0), changes=some(10.0, 40.0), outages=some(60.0), restarts=some(90.0),
        fails_to_start=some(0.2, 0.5), log=log,
    )  # fmt: skip
    models, cpu, gpus = drawn.choice((1, 3, 5)), drawn.choice((4.0, 16.0)), drawn.choice((0, 2, 6))
    return Setup(seed, models, cpu, gpus, drawn.choice((100_000, 100)), hazards)


class Story:
    """Traffic and hazards of one world."""

    def __init__(self, made: World, watcher: Watcher) -> None:
        self._world = made
        self._watcher = watcher
        self._hazards = made.setup.hazards
        self._names = [f"m{index}" for index in range(made.setup.models)]

    async def begin(self) -> None:
        """Declare the models."""
        for name in self._names:
            await self.declare(name, self._drawn(f"declare {name}"))

    def _drawn(self, what: str) -> random.Random:
        return random.Random(f"{self._world.setup.seed}/{what}")

    async def declare(self, name: str, drawn: random.Random) -> None:
        """Anew, or changed."""
        made = self._world
        made.machine.behaviours[name] = behaviour(drawn, self._hazards)
        keep_alive = drawn.choice((1.0, 5.0, 20.0))
        self._watcher.keep_alive[name] = max(keep_alive, self._watcher.keep_alive.get(name, 0.0))
        gpus = drawn.choice((0, 1, 2)) if made.setup.gpus else 0
        await made.apply(
            name, slots=drawn.choice((1, 2, 4)), priority=drawn.choice((50, 100, 200)),
            resources={"cpu": drawn.choice((0.5, 1, 2)), "memory": "1Gi", "gpus": gpus},
            scaling={
                "minReplicas": 0, "maxReplicas": drawn.choice((1, 3, 8)), "keepAlive": f"{keep_alive:g}s",
                "stableWindow": "10s", "panicWindow": "2s",
            },
        )  # fmt: skip

    async def go(self, seconds: float) -> None:
        """All of it for so long."""
        hazards, drawn = self._hazards, self._drawn
        tasks = [asyncio.create_task(self._bursts(name, drawn(f"bursts {name}"))) for name in self._names]
        tasks += [
            asyncio.create_task(work)
            for work in (
                self._crashes(hazards.crashes, drawn("crashes")), self._hangs(hazards.hangs, drawn("hangs")),
                self._changes(hazards.changes, drawn("changes")), self._outages(hazards.outages, drawn("outages")),
                self._restarts(hazards.restarts, drawn("restarts")), self._watcher.watch(),
            )
        ]  # fmt: skip
        try:
            sleeping = asyncio.create_task(asyncio.sleep(seconds))
            working: set[asyncio.Task[None]] = {sleeping, *tasks}
            while not sleeping.done():
                done, working = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    await task
        finally:
            await ended(*tasks)

    async def _bursts(self, model: str, drawn: random.Random) -> None:
        while True:
            for _ in range(drawn.choice((1, 1, 2, 5, 12, 40))):
                self._world.ask(model, drawn)
                await asyncio.sleep(drawn.choice((0.0, 0.0, 0.01, 0.1, 0.5)))
            await asyncio.sleep(drawn.choice((0.0, 0.5, 2.0, 8.0, 40.0)))

    async def _crashes(self, pause: float, drawn: random.Random) -> None:
        machine = self._world.machine
        async for _ in forever(pause, drawn):
            if machine.engines:
                replica = drawn.choice(sorted(machine.engines))
                self._world.ledger.say(f"crash    {replica}")
                machine.crash(replica)

    async def _hangs(self, pause: float, drawn: random.Random) -> None:
        machine = self._world.machine
        async for _ in forever(pause, drawn):
            ready = sorted(name for name, engine in machine.engines.items() if engine.ready)
            if ready:
                self._world.ledger.say(f"hang     {ready[0]}")
                machine.engines[ready[0]].hung = True

    async def _changes(self, pause: float, drawn: random.Random) -> None:
        made = self._world
        async for _ in forever(pause, drawn):
            name = drawn.choice(self._names)
            match drawn.choice(("apply", "delete", "anew", "scale", "unscale")):
                case "apply":
                    await self.declare(name, drawn)
                case "delete":
                    await made.delete(name)
                    await asyncio.sleep(drawn.choice((0.0, 1.0, 10.0)))
                    await self.declare(name, drawn)
                case "anew":
                    await made.delete(name)
                    await self.declare(name, drawn)
                case "scale":
                    await made.scale(name, drawn.choice((0, 1, 2, 5)), drawn.choice((2.0, 10.0, 30.0)))
                case _:
                    await made.scale(name, None, 0.0)

    async def _outages(self, pause: float, drawn: random.Random) -> None:
        made = self._world
        async for _ in forever(pause, drawn):
            made.ledger.say("log      is away")
            made.faults.away = True
            try:
                await asyncio.sleep(drawn.choice((0.1, 2.0, 8.0, 20.0)))
            finally:
                made.faults.away = False
                made.ledger.say("log      is back")

    async def _restarts(self, pause: float, drawn: random.Random) -> None:
        async for _ in forever(pause, drawn):
            await asyncio.shield(asyncio.create_task(self._world.restart(drawn.choice(("autoscaler", "allocator")))))


async def settle_down(made: World, watcher: Watcher) -> None:
    """Nobody comes any more: everybody gets an end, everything goes away."""
    ledger, clock = made.ledger, made.clock
    until = clock.now() + 60.0 + TOTAL + 5.0
    while made.clients and clock.now() < until:
        await asyncio.sleep(1.0)
        watcher.look()
    if made.clients:
        raise ledger.breach(f"requests have got no end: {[one.wanted for one in made.clients.values()]}")
    until = clock.now() + max(watcher.keep_alive.values()) + TOTAL + QUIET
    while clock.now() < until:
        await asyncio.sleep(1.0)
        watcher.look()
    check_quiet(made)


def check_quiet(made: World) -> None:
    """Nothing is held, nothing runs, nothing is remembered of what is over."""
    desk, authority = made.desk, made.desk._authority
    held = [(model.name, len(model.queue), model.running) for model in authority._models.values()]
    facts: dict[str, object] = {
        "engines": list(made.machine.engines), "grants": [one for one in made.ledger.grants.values() if one.replicas],
        "allocator's ledger": dict(made.allocator.pool.ledger.holdings), "waiters": desk._waiters,
        "tickets": authority._tickets, "leases": authority._live, "asked": authority._asked,
        "held or running": [one for one in held if one[1] or one[2]],
        "news": made.desk.counts.news_pending,
        "replicas": made.cluster._reconciler.replicas(), "told": made.cluster._reconciler._told,
        "counting": made.cluster._reconciler._counting, "lives": made.cluster._reconciler.lives(),
        "outbox": list(desk._outbox), "budget": authority._budget.requests + authority._budget.bytes,
        "meters": authority._meters._awake,
    }  # fmt: skip
    left = {name: fact for name, fact in facts.items() if fact}
    if left:
        raise made.ledger.breach(f"not quiet at the end: {left}")
    sizes = {
        "alarms": len(authority._alarms), "agenda": len(made.autoscaler._agenda._heap),
        "recordings": len(made.autoscaler._recorder._recordings), "models": len(authority._models),
        "autoscaler's models": made.autoscaler._estate.models, "timers": len(made.allocator.pool._timers),
    }  # fmt: skip
    if any(size > 64 + 8 * made.setup.models for size in sizes.values()):
        raise made.ledger.breach(f"something grows: {sizes}")


async def tell(setup: Setup, seconds: float) -> Told:
    """The whole story of a world."""
    async with world(setup) as made:
        watcher = Watcher(made)
        story = Story(made, watcher)
        await story.begin()
        await story.go(seconds)
        await settle_down(made, watcher)
        return Told(made.ledger.events, dict(made.endings), tuple(made.ledger.trace))
