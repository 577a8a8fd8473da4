"""Which free cards of a node a task gets that takes several: those that reach each other best."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

from preemption.core.gpus.shapes import CardSpec


def pick_cards(cards: Sequence[CardSpec], free: Sequence[int], count: int) -> tuple[int, ...]:
    """`count` of the `free` cards (columns, ascending): within one NVLink island if one has enough, else on one NUMA
    node, else across as few NUMA nodes as possible. Among islands that have enough the one with least to spare, so that
    larger islands stay whole; ties take the first cards. ValueError: fewer are free."""
    if len(free) < count:
        raise ValueError(f"{count} cards are wanted and {len(free)} are free")
    for domain in ([cards[c].link for c in free], [cards[c].numa for c in free]):
        groups = _groups(free, domain)
        able = [group for group in groups if len(group) >= count]
        if able:
            return tuple(min(able, key=lambda group: (len(group), group))[:count])
    groups = _groups(free, [cards[c].numa for c in free])
    spread = sorted(groups, key=lambda group: (-len(group), group)) if groups else [list(free)]
    known = [column for group in spread for column in group]
    rest = [column for column in free if column not in known]
    return tuple(sorted([*known, *rest][:count]))


def _groups(free: Sequence[int], domain: Sequence[Hashable]) -> list[list[int]]:
    """The free cards by domain; those of an unknown domain are in none."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for column, key in zip(free, domain, strict=True):
        if key is not None:
            groups[key].append(column)
    return list(groups.values())
