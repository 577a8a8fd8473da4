"""Whether anything of a run is still there: processes with its marks, and processes on its real cards.

The driver gives a card's memory back some time after a process has ended, and a process may have hidden from its shim.
So before a card goes to somebody else it is looked at: no process on it may be younger than the run, unless it is known
to be another's of this relume. (Older ones were there before: a desktop, or what a person runs beside.)
"""

from __future__ import annotations

import asyncio
import csv
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import psutil

from deploy.local.environment import MARK_DATA, MARK_REPLICA
from deploy.local.inventory import InventoryFailed, ask_nvidia
from deploy.local.stale import find_named
from events.clock import Clock
from events.units import Instant, Seconds

logger = logging.getLogger(__name__)

NVIDIA_APPS: Final = ("--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader,nounits")
LOOK_AGAIN: Final = Seconds(1.0)
"""Between two looks."""
SKEW: Final = 2.0
"""Seconds that a process's start may be told too early: the kernel counts from the boot, in ticks."""


@dataclass(frozen=True, slots=True)
class Left:
    """What is looked for: of which folder, under which names, on which real cards, since when."""

    data_dir: str
    names: frozenset[str]
    cards: frozenset[str]
    since: Instant


@dataclass(frozen=True, slots=True)
class Fact:
    """A process that is on a card. `name`: its mark, empty when it has none of this folder."""

    started: float
    name: str = ""


async def until_empty(left: Left, clock: Clock) -> None:
    """Return once nothing is left."""
    said = ""
    while what := await what_is_left(left):
        if what != said:
            said = what
            logger.warning("a run has ended (%s), but %s", ", ".join(sorted(left.names)), what)
        await clock.sleep_until(Instant(clock.now() + LOOK_AGAIN))


async def what_is_left(left: Left) -> str:
    """What of a run is still there, in words; empty: nothing."""
    pids = await asyncio.to_thread(find_named, left.data_dir, left.names)
    if pids:
        return f"processes {', '.join(map(str, pids))} still run"
    if not left.cards:
        return ""
    try:
        on_cards = parse_apps(await ask_nvidia(NVIDIA_APPS), left.cards)
    except (InventoryFailed, OSError) as error:
        logger.warning("the cards of an ended run cannot be looked at: %s", error)
        return "nvidia-smi does not tell who is on its cards"
    facts = await asyncio.to_thread(_facts, left.data_dir, on_cards)
    users = users_of(on_cards, facts, left)
    return f"processes {', '.join(map(str, users))} are still on its cards" if users else ""


def parse_apps(text: str, cards: Collection[str]) -> tuple[int, ...]:
    """The pids on these cards in the answer to `NVIDIA_APPS`."""
    pids = set()
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(row) == 2 and row[0].strip() in cards and row[1].strip().isdigit():
            pids.add(int(row[1]))
    return tuple(sorted(pids))


def users_of(on_cards: Collection[int], facts: Mapping[int, Fact], left: Left) -> tuple[int, ...]:
    """Who is in the way. One that the driver knows and the system does not has ended, and the driver still holds it."""
    return tuple(
        pid
        for pid in on_cards
        if (fact := facts.get(pid)) is None
        or fact.name in left.names
        or (not fact.name and fact.started > left.since - SKEW)
    )


def _facts(data_dir: str, pids: Collection[int]) -> dict[int, Fact]:
    found = {}
    for pid in pids:
        try:
            process = psutil.Process(pid)
            started = process.create_time()
        except psutil.Error:
            continue
        try:
            marks = process.environ()
        except (psutil.Error, OSError):  # another user's
            marks = {}
        found[pid] = Fact(started, marks.get(MARK_REPLICA, "") if marks.get(MARK_DATA) == data_dir else "")
    return found
