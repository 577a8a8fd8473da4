"""Replicas of several pods: one serves, and is placed and granted; its workers run wherever there is room. Pure.

Where workers run their object's own scheduler says. So room for all of them is asked for when the replica is granted,
and from then on their pods hold it, as those of others do. Until they are bound somebody else may be given it.
"""

from __future__ import annotations

from typing import Final

from preemption.core.inventory import Holding, Ledger, Need, need_of
from preemption.core.placement import Lack, kinds_of, place
from preemption.core.terms import Terms
from preemption.core.view import Declared

Ask = tuple[Need, int]
"""What some pods take each, and how many they are."""

_OF_A_ROUND: Final = "group/"
"""What names begin with that are in the ledger only while a round goes on."""


def workers_of(declared: Declared) -> Ask | None:
    """The pods of a replica beside the one that serves; None: there are none."""
    workers = declared.workers
    return None if workers is None or not workers.count else (need_of(workers.resources), workers.count)


def hold_workers(ledger: Ledger, replica: str, workers: Ask, terms: Terms) -> list[str]:
    """Hold room for all workers of a replica whose leader is held already; by which names, to be released when the
    round ends. Empty when there is not room for all: then nothing is held."""
    need, count = workers
    held: list[str] = []
    for index in range(count):
        found = place(ledger, need, terms)
        if found is None:
            for name in held:
                ledger.release(name)
            return []
        held.append(f"{_OF_A_ROUND}{replica}/{index}")
        ledger.hold(held[-1], Holding(found, need))
    return held


def has_room(ledger: Ledger, leader: Holding, workers: Ask, terms: Terms) -> bool:
    """Whether all workers find room beside their leader. The ledger is left as it was."""
    version = ledger.version
    ledger.hold(_OF_A_ROUND, leader)
    held = hold_workers(ledger, "", workers, terms)
    for name in (_OF_A_ROUND, *held):
        ledger.release(name)
    ledger.version = version
    return bool(held)


def lack_of_workers(workers: Ask) -> Lack:
    """Why a replica has no place though its leader would have one. Training that yields could not be told for how much
    room: who plans that knows of one pod a replica."""
    need, count = workers
    kinds = kinds_of(need)
    beside = "its worker" if count == 1 else f"all of its {count} workers"
    message = f"there is room for the pod that serves, and not for {beside}"
    return Lack(kinds, kinds, ever=True, message=message, narrow=True)
