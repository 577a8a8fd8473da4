"""The reserve for latency-critical work, which training cannot take.

By default a fifth of the thousandths of a node's shared and time-sliced cards, and a fifth of its whole cards, rounded
down: of eight cards one, of four none. MIG instances are parts of cards that cannot be divided: of each profile a
fifth, rounded down, of seven one. A node keeps its reserve whoever uses it: what latency-critical work holds counts
towards it, so training may fill the rest of the node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from preemption.core.gpus.mig import INSTANCE, family
from preemption.core.gpus.shapes import MILLI, Mode
from preemption.core.gpus.space import Flags, Ints, Space


@dataclass(frozen=True, slots=True)
class Reserve:
    """Shares of a node that training cannot take."""

    shared: float = 0.2
    whole: float = 0.2


def for_training(space: Space, training: Ints, partial: Ints, reserve: Reserve) -> Space:
    """The space as training may see it: a copy in which what is reserved is taken.

    `training` are, by card, the thousandths that training holds now. `partial` is 1 for cards that are given out in
    parts (by anyone, now) and 0 for those that are given out whole.
    """
    seen = space.copy()
    card = space.mode == Mode.SHARED
    shared, whole = (card & (partial > 0)) | (space.mode == Mode.SLICED), card & (partial == 0)
    _withhold_parts(seen, shared, _allowed(np.where(shared, space.size, 0), training, reserve.shared))
    _withhold_cards(seen, whole, _allowed_cards(whole, training, reserve.whole))
    for name, cards in space.families.items():
        if name.startswith(INSTANCE):
            _withhold_instances(seen, name, _allowed_cards(cards, training, reserve.shared))
    seen.version += 1
    return seen


def _allowed(sizes: Ints, training: Ints, kept: float) -> Ints:
    """By node: how many thousandths more training may take of cards of these sizes (0: not of this one)."""
    total = sizes.sum(axis=1)
    held = np.where(sizes > 0, training, 0).sum(axis=1)
    return np.asarray(np.maximum(0, total - np.ceil(np.round(total * kept, 6)).astype(np.int64) - held))


def _allowed_cards(cards: Flags, training: Ints, share: float) -> Ints:
    """By node: how many whole cards more training may take."""
    total = cards.sum(axis=1)
    held = (np.where(cards, training, 0) > 0).sum(axis=1)
    return np.asarray(np.maximum(0, total - np.floor(np.round(total * share, 6)).astype(np.int64) - held))


def _withhold_parts(seen: Space, cards: Flags, allowed: Ints) -> None:
    """Leave of the shared cards' free parts no more than is allowed; the last cards give first."""
    free = np.where(cards, np.maximum(seen.free, 0), 0)
    before = np.cumsum(free, axis=1) - free
    left = np.clip(allowed[:, None] - before, 0, free)
    seen.free = np.where(cards, np.minimum(seen.free, left), seen.free)


def _withhold_cards(seen: Space, cards: Flags, allowed: Ints) -> None:
    """Leave of the whole cards that are free no more than is allowed; the last give first."""
    free = cards & (seen.free == MILLI)
    rank = np.cumsum(free, axis=1)
    seen.free = np.where(free & (rank > allowed[:, None]), 0, seen.free)


def _withhold_instances(seen: Space, name: str, allowed: Ints) -> None:
    """Leave of the free MIG instances of one profile no more than is allowed; the last give first."""
    (profile,) = family(name).profiles.values()
    bits = profile.bits(profile.starts[0])
    free = seen.families[name] & ((seen.state & bits) == 0)
    kept = free & (np.cumsum(free, axis=1) > allowed[:, None])
    seen.state = np.where(kept, seen.state | bits, seen.state)
    seen.free = np.where(kept, 0, seen.free)
