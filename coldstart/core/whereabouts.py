"""Where a model's weights are, by what the nodes' agents tell: what a start that begins now has to fetch. Pure.

Nobody knows yet on which node the start will be. Where one node has the weights nothing is to be fetched, since
replicas go where they answer first; else the least of all nodes counts, if all know it: unknown is not zero, nor is it
long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from coldstart.core.budget import Tier
from events.types.caches import CacheObserved, ModelWarmth
from events.units import Instant, Seconds

STALE: Final = Seconds(180.0)
"""A node's word counts for so long: its agent says it again each minute, so one that is silent for three is gone."""

MOST_NODES: Final = 1000
"""Nodes of which one model's word is kept; the one that spoke longest ago goes first."""


@dataclass(frozen=True, slots=True)
class ToFetch:
    """What a start has to fetch. `least`: seconds that it takes at least; 0: the weights are there; None: not known."""

    least: Seconds | None


HERE: Final = ToFetch(Seconds(0.0))


@dataclass(frozen=True, slots=True)
class _Word:
    at: Instant
    revision: int
    fetch: ToFetch


class Whereabouts:
    """One model's weights, over all nodes."""

    __slots__ = ("_words",)

    def __init__(self) -> None:
        self._words: dict[str, _Word] = {}

    def hear(self, node: CacheObserved, model: ModelWarmth, at: Instant) -> None:
        """What a node's agent told at `at`."""
        self._words.pop(node.node, None)
        self._words[node.node] = _Word(at, model.revision, _to_fetch(node, model))
        while len(self._words) > MOST_NODES:
            del self._words[next(iter(self._words))]

    def to_fetch(self, revision: int, now: Instant) -> ToFetch | None:
        """What a start of this revision would have to fetch now; None: no node has told it lately."""
        fresh = [one.fetch for one in self._words.values() if one.revision in (0, revision) and now < one.at + STALE]
        if not fresh or HERE in fresh:
            return HERE if fresh else None
        known = [one.least for one in fresh if one.least is not None]
        return ToFetch(min(known) if len(known) == len(fresh) else None)


def _to_fetch(node: CacheObserved, model: ModelWarmth) -> ToFetch:
    if model.tier != Tier.REMOTE:
        return HERE
    if not node.network or model.missing is None:
        return ToFetch(None)
    return ToFetch(Seconds(model.missing / node.network))
