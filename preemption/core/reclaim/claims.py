"""Claims: cards that are set aside for a shortage, visible to every plan, alive as long as the wish behind them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from preemption.core.gpus.space import Space
from preemption.core.reclaim.values import Held, Shortage


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Places that a shortage has a right to: held already, or coming from a victim. `uid` is the model's: a model that
    was deleted and declared anew has no right to its predecessor's."""

    shortage: str
    uid: str
    priority: int
    places: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a model still lacks: its wish less what it was granted. `backs_off`: its starts fail, so it could use
    nothing now."""

    uid: str
    replicas: int
    backs_off: bool = False


def live(claims: Iterable[Claim], wanted: dict[str, Wanted]) -> list[Claim]:
    """The claims that still stand, cut to what is still wanted; the first places are kept."""
    left = dict(wanted)
    kept = []
    for claim in claims:
        want = left.get(claim.shortage)
        if want is None or want.uid != claim.uid or want.backs_off or want.replicas <= 0:
            continue
        places = claim.places[: want.replicas]
        left[claim.shortage] = replace(want, replicas=want.replicas - len(places))
        kept.append(replace(claim, places=places))
    return kept


def for_shortage(space: Space, claims: Sequence[Claim], shortage: Shortage) -> Space:
    """What a shortage may count on: what is free less what others claim, whatever their priority.

    A claim's places are free cards that are not anybody's to give: so freed pieces are never taken by another before
    the shortage for which somebody yielded has them all.
    """
    seen = space.copy()
    for claim in claims:
        if claim.shortage != shortage.name:
            for held in claim.places:
                seen.take(held.task, held.spot)
    return seen
