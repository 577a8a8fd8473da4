"""What quotas leave: whether one more replica or member may be made, and which limit says no. Pure.

A limit on all together counts everything that the ledger holds for replicas and members; what is only set aside, or out
of use, is no pod and counts nowhere. Nothing is reserved: who comes first in the round takes what a quota leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from events.types.limits import Limit, LimitKind
from events.units import format_quantity
from preemption.core.inventory import MILLI, ROOM, Ledger, Need

_NO_PODS: Final = ("claim/", "cordon/", ROOM)
"""What names in the ledger begin with that are no replicas and no members. (Pods in rooms are others' by a quota's
account until they are replicas.)"""
_SLACK: Final = 1e-9


class Tally:
    """What is left of each limit, as a round goes on."""

    def __init__(self, limits: Sequence[Limit], held: Iterable[Need]) -> None:
        self._each = [one for one in limits if one.each]
        self._all = [one for one in limits if not one.each]
        self._left = [one.most for one in self._all]
        for need in held:
            self.take(need)

    def take(self, need: Need) -> None:
        """One more has it."""
        for index, one in enumerate(self._all):
            self._left[index] -= amount(need, one)

    def refusal(self, need: Need, *others: tuple[Need, int]) -> str:
        """Why one more may not be made, by the limit's name; empty: it may. `others`: what goes with it, and how often
        each."""
        asks = ((need, 1), *others)
        for each, _ in asks:
            if refusal := self._refused_each(each):
                return refusal
        for left, one in zip(self._left, self._all, strict=True):
            takes = sum(count * amount(each, one) for each, count in asks)
            if takes and takes > left + _SLACK:
                return f"{one.source} leaves {_words(one, max(0.0, left))}, and it needs {_words(one, takes)}"
        return ""

    def _refused_each(self, need: Need) -> str:
        for one in self._each:
            takes = amount(need, one)
            bound, needs = _words(one, one.most), _words(one, takes)
            if one.least and takes < one.most - _SLACK and _counts(need, one):
                return f"{one.source} allows no less than {bound} each, and it needs {needs}"
            if not one.least and takes > one.most + _SLACK:
                return f"{one.source} allows at most {bound} each, and it needs {needs}"
        return ""

    def taken(self, need: Need, count: int) -> str:
        """So many more have it; or why not all of them may, by the limit's name."""
        for _ in range(count if self._each or self._all else 0):
            if refusal := self.refusal(need):
                return refusal
            self.take(need)
        return ""

    def room(self, need: Need, most: int) -> int:
        """How many more may be made, at most `most`."""
        if self._refused_each(need):
            return 0
        counts = [int((left + _SLACK) // takes) for left, one in zip(self._left, self._all, strict=True)
                  if (takes := amount(need, one))]  # fmt: skip
        return max(0, min([most, *counts]))


def tally_of(ledger: Ledger) -> Tally | None:
    """What limits leave beside what is held; None: there are none."""
    if not ledger.limits:
        return None
    held = (holding.need for name, holding in ledger.holdings.items() if not name.startswith(_NO_PODS))
    return Tally(ledger.limits, held)


def amount(need: Need, limit: Limit) -> float:
    """What one replica takes of what a limit counts."""
    match limit.kind:
        case LimitKind.GPUS:
            return float(need.gpus or need.shares)
        case LimitKind.MIG:
            return float(need.mig_profile == limit.profile)
        case LimitKind.CPU:
            return need.cpu_milli / MILLI
        case LimitKind.MEMORY:
            return float(need.memory_bytes)
    return 1.0


def _counts(need: Need, limit: Limit) -> bool:
    """Whether a least amount concerns it at all: of cards only who takes some."""
    return limit.kind in (LimitKind.CPU, LimitKind.MEMORY) or amount(need, limit) > 0


def _words(limit: Limit, value: float) -> str:
    number = format_quantity(int(value)) if limit.kind is LimitKind.MEMORY else f"{value:g}"
    return f"{number} of {limit.resource}"
