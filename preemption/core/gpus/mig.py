"""MIG on one card: which instances may stand beside each other, and where the next one should start.

A set of instances is legal when every start is listed for its profile, no two overlap in memory slices, their compute
slices are no more than the card has, and at most one has media engines (``+me``). (NVIDIA MIG user guide, r580.)

What is used of a card is one small number, its *state*: a bit for each used memory slice, and bit 8 when a ``+me``
instance exists. On all known cards the intervals alone keep the compute slices within bounds: a profile never has more
compute than memory slices, and nothing but the half and the whole card covers the eighth memory slice (a test walks all
layouts). So whether a profile fits is a table by state, and asking it for ten thousand cards is one look-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from preemption.core.gpus.mig_names import MOST_SLICES, instance_milli
from preemption.core.gpus.mig_table import PROFILES, SLICES
from preemption.core.gpus.shapes import MILLI

MEDIA = 1 << 8
"""The bit of a state that says: a ``+me`` instance exists."""

STATES = 1 << 9
"""How many states there are."""


INSTANCE = "instance:"
"""A family that begins so is one instance that exists already, of the profile that follows: it can hold that and no
other."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One MIG profile of one family. `mebibytes` 0: not known."""

    name: str
    compute: int
    size: int
    mebibytes: int
    starts: tuple[int, ...]

    @property
    def media(self) -> bool:
        """Whether it has the media engines, of which a card has one set to give."""
        return self.name.endswith("+me")

    def bits(self, start: int) -> int:
        """The state's bits that an instance at `start` uses."""
        return ((1 << self.size) - 1) << start | (MEDIA if self.media else 0)


@dataclass(frozen=True, slots=True)
class Instance:
    """One MIG instance: its profile, and its first memory slice."""

    profile: str
    start: int


class Family:
    """The MIG tables of one kind of card."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.compute, self.slices = (1, 1) if name.startswith(INSTANCE) else SLICES.get(name, MOST_SLICES)
        self.milli = instance_milli(name.removeprefix(INSTANCE)) if name.startswith(INSTANCE) else MILLI
        """Thousandths of a card that there are of it."""
        rows = ((name.removeprefix(INSTANCE), 1, 1, 0, (0,)),) if name.startswith(INSTANCE) else PROFILES[name]
        self.profiles = {row[0]: Profile(*row) for row in rows}
        self._fits = {name: self._table(profile) for name, profile in self.profiles.items()}
        self._starts = {name: self._best_starts(profile) for name, profile in self.profiles.items()}

    def fits(self, profile: str) -> NDArray[np.bool_]:
        """By state: whether one more instance of `profile` has a legal start. KeyError: no profile of this card."""
        return self._fits[profile]

    def start(self, profile: str, state: int) -> int | None:
        """Where the next instance should start: where most of what may come after it still fits; None: nowhere."""
        best = int(self._starts[profile][state])
        return None if best < 0 else best

    def starts(self, profile: str, state: int) -> list[int]:
        """All legal starts."""
        return _legal_starts(self.profiles[profile], state)

    def state(self, instances: Iterable[Instance]) -> int:
        """The state that these instances make. ValueError names the rule that they break together."""
        state = compute = 0
        for one in instances:
            profile = self.profiles.get(one.profile)
            if profile is None:
                known = ", ".join(self.profiles)
                raise ValueError(f"{self.name} has no MIG profile {one.profile}; it has {known}")
            if one.start not in profile.starts:
                listed = ", ".join(map(str, profile.starts))
                raise ValueError(f"{one.profile} cannot start at memory slice {one.start} of {self.name}; at {listed}")
            bits = profile.bits(one.start)
            if state & bits & MEDIA:
                raise ValueError(f"{one.profile} is the second +me instance on one {self.name}; one is the most")
            if state & bits:
                raise ValueError(f"{one.profile} at memory slice {one.start} overlaps another instance")
            state, compute = state | bits, compute + profile.compute
        if compute > self.compute:
            raise ValueError(f"the instances need {compute} compute slices; {self.name} has {self.compute}")
        return state

    def free_slices(self, state: int) -> int:
        """Memory slices that no instance covers."""
        return self.slices - (state & (MEDIA - 1)).bit_count()

    def free_milli(self, state: int) -> int:
        """Thousandths of a card that no instance covers, by memory slices."""
        return self.free_slices(state) * self.milli // self.slices

    def room(self, profile: str, state: int) -> int:
        """How many more instances of `profile` fit."""
        count = 0
        while (start := self.start(profile, state)) is not None:
            state |= self.profiles[profile].bits(start)
            count += 1
        return count

    def _table(self, profile: Profile) -> NDArray[np.bool_]:
        return np.array([bool(_legal_starts(profile, state)) for state in range(STATES)])

    def _best_starts(self, profile: Profile) -> NDArray[np.int64]:
        return np.array([self._best_start(profile, state) for state in range(STATES)])

    def _best_start(self, profile: Profile, state: int) -> int:
        """The start that leaves most starts to all profiles; of equals the highest.

        The highest, since only a ``3g`` and the low ones compete for slice 0, where a ``4g`` must start.
        """
        able = _legal_starts(profile, state)
        left = {start: self._openness(state | profile.bits(start)) for start in able}
        return max(able, key=lambda start: (left[start], start), default=-1)

    def _openness(self, state: int) -> int:
        """How much may still come: legal starts of all profiles, each as often as it is large."""
        return sum(profile.size * len(_legal_starts(profile, state)) for profile in self.profiles.values())


@lru_cache(maxsize=128)
def family(name: str) -> Family:
    """The tables of a family. KeyError: there is none of that name."""
    return Family(name)


def create_order(profiles: Sequence[str]) -> list[str]:
    """The order in which several instances are created in one call: the driver picks the places by itself, and finds
    them for all only when halves come first (``nvidia-smi mig -cgi`` with 3g before the others)."""
    return sorted(profiles, key=lambda name: (not name.startswith("3g"), -int(name.partition("g")[0])))


def _legal_starts(profile: Profile, state: int) -> list[int]:
    return [start for start in profile.starts if not state & profile.bits(start)]
