"""How much of a card somebody takes: one rule, by which the allocator's ledger, the planner's arrays and the limits of
programs all go. Without numpy.

Who asks for whole cards takes cards that nobody else is on. Who asks for a share (`milli`) or for bytes takes a part of
a card that is given out in parts: of its *usable* bytes, not of those that its label names. So bytes are a larger part
of a smaller card, rounded up to thousandths, and the bytes of all who are on a card are never more than it has.

A time-sliced card has a fixed number of *turns*, each an entry of its own in the inventory. A turn is an equal share of
the card, is given to one who asks for no more than that share, and taken whole: who has two gets no more time for it,
and which card a turn is of the device plugin decides. So equal turns are what keeps the sum within each card.
(https://github.com/NVIDIA/k8s-device-plugin, "Shared Access to GPUs".)
"""

from __future__ import annotations

from typing import Final, NamedTuple

from events.types.replicas import Card
from preemption.core.gpus.mig_names import family_of
from preemption.core.gpus.mig_table import PROFILES
from preemption.core.gpus.shapes import MILLI

NEVER: Final = 1 << 40
"""More thousandths than any card has: it must not be used."""

KEPT: Final = 0.02
"""Share of a card's memory that driver and firmware keep, where its own number is not known: rounded up from the 1.9 %
of an A100 with 40 GB (40,192 of 40,960 MiB are left, by its whole-card MIG profile) and the 0.5 % of an H100."""

MEBIBYTE: Final = 1 << 20

TURN: Final = "::"
"""Between a card's id and the number of its turn, as the device plugin writes it."""


class Kind(NamedTuple):
    """What of a card decides how much of it somebody takes. `usable`: bytes that programs can have of the whole card, 0
    when unknown. `turns`: this is one of so many turns of a card; 0: the card itself."""

    usable: int = 0
    turns: int = 0

    @property
    def size(self) -> int:
        """Thousandths of the card that there are of it: of a turn its share, rounded down."""
        return max(1, MILLI // self.turns) if self.turns else MILLI


WHOLE: Final = Kind()


def kind_of(card: Card) -> Kind:
    """The kind of a card that is no MIG instance."""
    return Kind(usable_bytes(card), card.turns)


def part_of(milli: int, gpu_bytes: int, kind: Kind) -> int:
    """Thousandths that are taken of such a card; `NEVER` where it must not be used. `milli` 1000 is the whole card, or,
    with `gpu_bytes`, no share but the bytes alone; with less, the larger of both."""
    whole = milli == MILLI and not gpu_bytes
    if gpu_bytes and not kind.usable:
        return NEVER
    if kind.turns:
        shared = not whole and (milli == MILLI or milli * kind.turns <= MILLI)
        return kind.size if shared and gpu_bytes * kind.turns <= kind.usable else NEVER
    part = -(-gpu_bytes * MILLI // kind.usable) if gpu_bytes else milli
    part = part if milli == MILLI else max(part, milli)
    return part if part <= MILLI else NEVER


def bytes_of(milli: int, gpu_bytes: int, kind: Kind) -> int:
    """Bytes that whoever asks for a part may use of such a card; 0 when that is unknown. What was asked for in bytes,
    else the share of what is usable, rounded down."""
    if kind.turns:
        return kind.usable // kind.turns
    return gpu_bytes or kind.usable * milli // MILLI


def usable_bytes(card: Card) -> int:
    """The bytes that programs can have of a card, 0 when unknown: what its whole-card MIG profile has where that is
    known, else what it reports less 2 %. Of a virtual card: what was declared. Of a turn: those of its card."""
    if card.virtual:
        return card.memory_bytes
    known = family_of(card.product, card.memory_bytes)
    whole = PROFILES[known][-1][3] if known else 0
    reported = int(card.memory_bytes * (1 - KEPT))
    return min(whole * MEBIBYTE, card.memory_bytes) if whole and card.memory_bytes else whole * MEBIBYTE or reported


def card_of(name: str) -> str:
    """The card that a turn is of; any other card is itself."""
    return name.partition(TURN)[0]
