"""A user's own policy: `module.path:function`, called with what was needed in each past grain, oldest first.

    def hold(past: Sequence[int]) -> int

It may do what it likes but break the others: whatever goes wrong in it names it, and ends only the replay.
"""

from __future__ import annotations

import importlib
import reprlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from autoscaler.own import words_of
from events.types.replicas import MAX_REPLICAS

Function = Callable[[Sequence[int]], object]
Whole = tuple[int, ...]


class BrokenPolicy(Exception):
    """A user's policy cannot be had, raised an error, or answered what is no number of replicas."""


@dataclass(frozen=True, slots=True)
class OwnPolicy:
    """It is found by its path in each process, so that it need not travel."""

    path: str

    def begin(self) -> Whole:
        """Nothing was needed."""
        return ()

    def after(self, state: Whole, needed: int) -> Whole:
        """The whole past."""
        return (*state, needed)

    def hold(self, state: Whole) -> int:
        """What it answers. Raises BrokenPolicy."""
        function = found(self.path)
        try:
            held = function(state)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise BrokenPolicy(f"policy {self.path} after {len(state)} grains raised {words_of(error)}") from error
        if isinstance(held, bool) or not isinstance(held, int) or not 0 <= held <= MAX_REPLICAS:
            raise BrokenPolicy(
                f"policy {self.path} answered {reprlib.repr(held)} after {len(state)} grains; "
                f"it must answer a whole number from 0 to {MAX_REPLICAS}"
            )
        return held


@lru_cache(maxsize=64)
def found(path: str) -> Function:
    """The function of this path; modules beside the working folder are found, as with `python -m`."""
    module, _, name = path.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        function: object = getattr(importlib.import_module(module), name, None)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise BrokenPolicy(f"policy {path} cannot be imported: {words_of(error)}") from error
    if not callable(function):
        raise BrokenPolicy(f"policy {path}: {module} has no function {name!r}")
    return function
