"""Which free cards of a node a task gets that takes several: those that reach each other best, and what it costs to
take cards that do not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Final

from preemption.core.gpus.shapes import CardSpec

Domain = tuple[int | None, int | None]
"""Of one card: its NVLink island (of itself alone, where it has no NVLink) and its NUMA node; None: not known."""

OVER_PCIE: Final = 100
"""Thousandths of each card that are lost where cards of one task reach each other over PCIe, on one NUMA node. Chosen:
tensor-parallel engines spend some tenths of a step in all-reduces, which NVLink makes several times as fast."""

OVER_SOCKETS: Final = 250
"""The same where they hang on different NUMA nodes. Chosen."""


def pick_cards(cards: Sequence[CardSpec], free: Sequence[int], count: int) -> tuple[int, ...]:
    """`count` of the `free` cards (columns, ascending). ValueError: fewer are free."""
    return pick([(card.link, card.numa) for card in cards], free, count)


def pick(domains: Sequence[Domain], free: Sequence[int], count: int) -> tuple[int, ...]:
    """`count` of the `free` cards (columns, ascending): within one NVLink island if one has enough, else on one NUMA
    node, else across as few NUMA nodes as possible. Among islands that have enough the one with least to spare, so that
    larger islands stay whole; ties take the first cards. ValueError: fewer are free."""
    if len(free) < count:
        raise ValueError(f"{count} cards are wanted and {len(free)} are free")
    if count == 1:
        return (min(free, key=lambda column: (*_company(domains, free, column), column)),)
    for domain in ([domains[c][0] for c in free], [domains[c][1] for c in free]):
        groups = _groups(free, domain)
        able = [group for group in groups if len(group) >= count]
        if able:
            return tuple(min(able, key=lambda group: (len(group), group))[:count])
    groups = _groups(free, [domains[c][1] for c in free])
    spread = sorted(groups, key=lambda group: (-len(group), group)) if groups else [list(free)]
    known = [column for group in spread for column in group]
    rest = [column for column in free if column not in known]
    return tuple(sorted([*known, *rest][:count]))


def apart(domains: Sequence[Domain], picked: Sequence[int]) -> int:
    """Thousandths of a card that are lost, all together, because `picked` do not reach each other over NVLink. Where it
    is not known how they do, nothing."""
    if len(picked) < 2:
        return 0
    links, numas = {domains[column][0] for column in picked}, {domains[column][1] for column in picked}
    if (len(links) == 1 and None not in links) or (None in links and None in numas):
        return 0
    sockets = len(numas) > 1 and None not in numas
    return (OVER_SOCKETS if sockets else OVER_PCIE) * len(picked)


def _company(domains: Sequence[Domain], free: Sequence[int], column: int) -> tuple[int, int]:
    """How many free cards are in a card's island, and how many on its NUMA node; what is not known is the last."""
    link, numa = domains[column]
    linked = sum(domains[c][0] == link for c in free) if link is not None else len(free) + 1
    near = sum(domains[c][1] == numa for c in free) if numa is not None else len(free) + 1
    return linked, near


def _groups(free: Sequence[int], domain: Sequence[Hashable]) -> list[list[int]]:
    """The free cards by domain; those of an unknown domain are in none."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for column, key in zip(free, domain, strict=True):
        if key is not None:
            groups[key].append(column)
    return list(groups.values())
