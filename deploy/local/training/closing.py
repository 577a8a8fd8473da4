"""How training ends when relume is stopped in order: told to save and leave, then SIGTERM, then SIGKILL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from deploy.local.training.run import Run
from events.clock import Clock
from events.types.training import NoticeGiven, RunState, Stop
from events.units import Instant, Seconds

WHY = "relume stops"

Lives = Callable[[], Collection["asyncio.Task[None]"]]


async def close_runs(
    runs: Callable[[], list[Run]], lives: Lives, clock: Clock, bounds: tuple[Seconds, Seconds]
) -> None:
    """Return when all runs have ended, or when they were given their time. `bounds`: to save; from SIGTERM to SIGKILL.

    A run has the times of its checkpoint contract, but not more than the bound; one that is silent has its time for the
    first word. One that was given a notice already keeps that one.
    """
    bound, grace = bounds
    began = clock.now()
    for run in alive(runs()):
        how = run.shape.policy.checkpoint
        run.told_to_end = True
        if how.channels and bound > 0 and not run.notice:
            deadline = Instant(began + min(bound, how.ack + how.save))
            run.give(NoticeGiven(id=f"stop-{run.shape.run}-{began:.0f}", deadline=deadline, reason=WHY))
    while left := alive(runs()):
        now = clock.now()
        due = {run: _due(run, began, bound) for run in left}
        for run, at in due.items():
            if now >= at:
                run.end(Stop.TERMINATE, WHY)
        waiting = [at for at in due.values() if at > now]
        if not waiting:
            break
        await _until_less(lives(), clock, min(waiting))
    await _until_none(runs, lives, clock, grace)
    for run in alive(runs()):
        run.end(Stop.KILL, WHY)


def alive(runs: list[Run]) -> list[Run]:
    """Those with processes."""
    return [run for run in runs if run.state is not RunState.ENDED]


def _due(run: Run, began: Instant, bound: Seconds) -> Instant:
    """When it gets SIGTERM. (Asked for again: a word changes it.)"""
    how, notice = run.shape.policy.checkpoint, run.ear.story.notice
    if not how.channels or notice is None or notice.failed:
        return began
    lasts = how.ack if notice.heard_at is None else how.ack + how.save
    return Instant(began + min(bound, lasts))


async def _until_none(runs: Callable[[], list[Run]], lives: Lives, clock: Clock, bound: Seconds) -> None:
    until = Instant(clock.now() + bound)
    while alive(runs()) and clock.now() < until:
        await _until_less(lives(), clock, until)


async def _until_less(lives: Collection[asyncio.Task[None]], clock: Clock, until: Instant) -> None:
    """Until one of them ends, a fifth of a second has passed (a word may have come), or the instant."""
    look = min(until, Instant(clock.now() + 0.2))
    late = asyncio.get_running_loop().create_task(clock.sleep_until(look))
    await asyncio.wait({*lives, late}, return_when=asyncio.FIRST_COMPLETED)
    late.cancel()
