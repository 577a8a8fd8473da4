"""What the nodes' agents tell of weights, and how soon a model would answer on each node. Pure.

Seconds that a node knows count as told. A node that has the weights and does not know its seconds counts like the
slowest that has them and does; where none does, like the quickest that must fetch. A node that must fetch, or says
nothing, and does not know comes after all that know: unknown is not zero. What a node said too long ago counts as
nothing: its agent may be gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from events.types.caches import CacheObserved, ModelWarmth
from events.units import Instant
from preemption.core.view import Declared, Locality

REMOTE: Final = "remote"
"""The tier of weights that are not on the node (`coldstart.core.budget.Tier`)."""


@dataclass(frozen=True, slots=True)
class Soon:
    """Seconds to the first token by node; a node that is not here comes after all that are. `least`, `share`: the
    tolerance; nodes below `enough` seconds are as good as each other."""

    by_node: Mapping[str, float]
    order: tuple[tuple[float, str], ...]
    """The same, the earliest first."""
    least: float
    share: float
    enough: float = 0.0

    def limit(self, earliest: float) -> float:
        """Up to here a node is as good as the earliest."""
        return max(self.enough, earliest + max(self.least, self.share * earliest))


class Nearness:
    """The newest word of each node."""

    def __init__(self, locality: Locality) -> None:
        self._locality = locality
        self._at: dict[str, Instant] = {}
        """When each node spoke last; the longest ago first."""
        self._models: dict[str, tuple[str, ...]] = {}
        self._by_model: dict[str, dict[str, ModelWarmth]] = {}

    @property
    def locality(self) -> Locality:
        """How what it tells counts."""
        return self._locality

    def hear(self, seen: CacheObserved, at: Instant) -> set[str]:
        """A node's weights, as it told them at `at`. The models that it speaks of, or did until now."""
        changed = self._forget(seen.node)
        self._at[seen.node] = at
        self._models[seen.node] = tuple(dict.fromkeys(one.model for one in seen.models))
        for one in seen.models:
            self._by_model.setdefault(one.model, {})[seen.node] = one
        while len(self._at) > 1:  # bounded by the nodes that have spoken lately
            node, spoke = next(iter(self._at.items()))
            if spoke + self._locality.stale > at:
                break
            changed |= self._forget(node)
        return changed | set(self._models[seen.node])

    def _forget(self, node: str) -> set[str]:
        self._at.pop(node, None)
        models = self._models.pop(node, ())
        for model in models:
            told = self._by_model[model]
            del told[node]
            if not told:
                del self._by_model[model]
        return set(models)

    def soon(self, declared: Declared, now: Instant, *, hurried: bool) -> Soon | None:
        """How soon a replica of this model would answer on each node; None: nobody knows anything."""
        told = self._fresh(declared.model, declared.revision, now)
        if not told:
            return None
        here = [one.seconds for one in told.values() if one.tier != REMOTE and one.seconds is not None]
        away = [one.seconds for one in told.values() if one.tier == REMOTE and one.seconds is not None]
        usual = max(here) if here else min(away, default=0.0)
        by_node = {
            node: usual if one.seconds is None else one.seconds
            for node, one in told.items()
            if one.seconds is not None or one.tier != REMOTE
        }
        locality = self._locality
        least = locality.hurried if hurried else locality.unhurried
        order = tuple(sorted((late, node) for node, late in by_node.items()))
        enough = locality.promised * (declared.promise or 0.0)
        return Soon(by_node, order, least, locality.share, enough) if by_node else None

    def _fresh(self, model: str, revision: int, now: Instant) -> dict[str, ModelWarmth]:
        told = self._by_model.get(model, {})
        stale = self._locality.stale
        return {
            node: one for node, one in told.items()
            if now < self._at[node] + stale and one.revision in (0, revision)
        }  # fmt: skip

    def lacks_weights(self, node: str, model: str, revision: int, now: Instant) -> Instant | None:
        """Until when this node's word counts that it does not have the weights of this revision (or has not heard of
        it yet); None: it has them, or nothing is known."""
        one = self._by_model.get(model, {}).get(node)
        if one is None or one.revision == 0:
            return None
        until = Instant(self._at[node] + self._locality.stale)
        waits = one.revision < revision or (one.revision == revision and one.tier == REMOTE)
        return until if waits and now < until else None
