"""The values of the inventory: what a node has, what a piece of work takes, and where it goes.

Everything is a whole number: thousandths of a core or of a card, bytes, memory slices. So what is given back restores
exactly what was taken, and equal states always get equal scores.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

MILLI = 1000
"""A whole core or card."""

CPU_PER_CARD = 16
"""128 cores and 8 cards count alike (the published baseline), so a thousandth of a card weighs as 16 of a core."""

LEFT_PARTS = 100
"""What a node has left weighs as a hundredth of as much fragmentation."""


class Mode(IntEnum):
    """How a card is shared. A card has one mode at a time."""

    ABSENT = 0
    """There is no card in this place."""
    SHARED = 1
    """Whole, or in fractions that each have a hard limit of memory (HAMi's semantics)."""
    MIG = 2
    """Split by the hardware into MIG instances."""
    SLICED = 3
    """One turn of a time-sliced card: a fixed, equal share, and no limit of memory between the turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSpec:
    """One card of a node.

    `usable_bytes` is what programs can have of it (of a turn: of its whole card), 0 when unknown. `family` names its
    MIG tables (`preemption.core.gpus.mig`); `turns`: it is one of so many turns of a time-sliced card. Cards with the
    same `link` reach each other over NVLink; cards with the same `numa` hang on one socket; None: unknown.
    """

    id: str
    mode: Mode = Mode.SHARED
    usable_bytes: int = 0
    family: str = ""
    turns: int = 0
    link: int | None = None
    numa: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """A node and its cards. `model` is the kind of its cards, as work asks for it (``A100``), or empty. `network`: in
    which parts of it the node is, the widest first, each empty where it is not known."""

    name: str
    cpu_milli: int
    memory_bytes: int
    model: str = ""
    cards: tuple[CardSpec, ...] = ()
    network: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one piece of work takes: a replica, or one member of a training job.

    `gpus` cards, of each `milli` thousandths: 1000 is the whole card; less only with one card. `gpu_bytes` is the least
    memory that each card's part must have, so that the thousandths are more on a smaller card. `profile` is a MIG
    profile instead (then `gpus` is 1 and `milli` means nothing). `models` are the kinds of cards that will do; empty:
    all.
    """

    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    milli: int = MILLI
    gpu_bytes: int = 0
    profile: str = ""
    models: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether it takes whole cards."""
        return self.gpus > 0 and not self.profile and self.milli == MILLI and not self.gpu_bytes

    @property
    def gpu_milli(self) -> int:
        """Thousandths of cards that it asks for, all together. Of MIG profiles and bytes: 0, since it depends on the
        card."""
        by_card = self.profile or (self.gpu_bytes and self.milli == MILLI)
        return 0 if by_card else self.gpus * self.milli


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a task goes: the node's and the cards' indices, how many thousandths of each card, and for MIG the first
    memory slice."""

    node: int
    cards: tuple[int, ...] = ()
    milli: int = 0
    start: int = -1


def check_task(task: Task) -> None:
    """ValueError when a task asks for something that no card could mean."""
    if min(task.cpu_milli, task.memory_bytes, task.gpus, task.gpu_bytes) < 0:
        raise ValueError(f"a task takes nothing negative: {task}")
    if task.gpus and not 0 < task.milli <= MILLI:
        raise ValueError(f"milli is {task.milli}; a task takes 1 to 1000 thousandths of a card")
    if task.gpus > 1 and (task.milli != MILLI or task.gpu_bytes or task.profile):
        raise ValueError("several cards are taken whole; ask for one card, or leave the fraction out")
    if task.profile and task.gpus != 1:
        raise ValueError(f"MIG profile {task.profile} is a part of one card; ask for one card")
