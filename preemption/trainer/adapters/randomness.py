"""The states of the generators that a training step may draw from, as JSON.

Each rank has its own. What is not imported is not saved: numpy and torch only where the program uses them.
"""

from __future__ import annotations

import json
import random
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any


def write(path: Path) -> None:
    """All of this process' global generators, into one file."""
    path.write_text(json.dumps(capture()), encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    """What `write` has written, for `restore`. Raises OSError, ValueError."""
    states: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return states


def capture() -> dict[str, object]:
    """Python's generator, and those of numpy and torch (CPU and every visible GPU) where they are in use."""
    states: dict[str, object] = {"python": random.getstate()}
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        name, keys, *rest = numpy.random.get_state()
        states["numpy"] = [name, keys.tolist(), *rest]
    if torch is not None:
        states["torch"] = _hex(torch.get_rng_state())
        states["cuda"] = [_hex(state) for state in torch.cuda.get_rng_state_all()]
    return states


def restore(states: Mapping[str, Any]) -> None:
    """Set the generators. Warns when GPUs are more or fewer than when it was saved: those draw otherwise from here."""
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and "numpy" in states:
        name, keys, *rest = states["numpy"]
        numpy.random.set_state((name, numpy.array(keys, dtype=numpy.uint32), *rest))
    if torch is not None and "torch" in states:
        torch.set_rng_state(_tensor(torch, states["torch"]))
        cards, here = states["cuda"], torch.cuda.device_count()
        if len(cards) != here:
            warnings.warn(f"saved with {len(cards)} GPUs visible, {here} are now: random numbers differ", stacklevel=2)
        for card, state in enumerate(cards[:here]):
            torch.cuda.set_rng_state(_tensor(torch, state), card)


def _hex(state: Any) -> str:
    """A tensor of bytes."""
    return bytes(state.tolist()).hex()


def _tensor(torch: ModuleType, text: str) -> Any:
    return torch.tensor(list(bytes.fromhex(text)), dtype=torch.uint8)
