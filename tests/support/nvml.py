"""The driver's library for tests: `fake_nvml.c` as a shared object, which NVIDIA's Python half loads as the real one.

It is loaded by its name, so in a process of its own whose loader finds this one first.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("fake_nvml.c")
COMPILERS: Final = ("cc", "gcc", "clang")


@dataclass
class FakeCard:
    """A card as its driver tells of it. `total` None: its memory is the machine's own."""

    uuid: str
    name: str = "NVIDIA H200"
    total: int | None = 140 << 30
    reserved: int = 600 << 20
    used: int = 0
    busy: int = 0
    remap_failed: bool = False
    lost: bool = False
    processes: Sequence[int] = ()
    parts: Sequence[tuple[str, str, int, int]] = ()
    """MIG instances: UUID, name, bytes, bytes in use."""


@dataclass
class FakeNvml:
    """The library in `folder`, and what it says. Change it, then `say`."""

    folder: Path
    cards: list[FakeCard] = field(default_factory=list)
    xids: list[tuple[int, int]] = field(default_factory=list)
    """Card, counted from 0, and XID: each is told once."""
    driver: bool = True

    def build(self) -> Mapping[str, str]:
        """Compile it; the environment of a process that shall find it."""
        compiler = next(filter(None, map(shutil.which, COMPILERS)))
        self.folder.mkdir(exist_ok=True)
        made = self.folder / "libnvidia-ml.so.1"
        words = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(made), str(SOURCE)]
        subprocess.run(words, check=True, timeout=60)
        self.say()
        before = os.environ.get("LD_LIBRARY_PATH")
        return {
            "LD_LIBRARY_PATH": f"{self.folder}:{before}" if before else str(self.folder),
            "FAKE_NVML": str(self.folder / "said"),
        }

    def say(self) -> None:
        """From now on this."""
        lines = [] if self.driver else ["nodriver"]
        for index, one in enumerate(self.cards):
            total = "-" if one.total is None else one.total
            lines.append(
                f"card|{one.uuid}|{one.name}|{total}|{one.reserved}|{one.used}|{one.busy}|{one.remap_failed:d}|"
                f"{one.lost:d}|{bool(one.parts):d}"
            )
            lines += [f"proc|{index}|{pid}" for pid in one.processes]
            lines += [f"mig|{index}|{uuid}|{name}|{size}|{used}" for uuid, name, size, used in one.parts]
        lines += [f"xid|{card}|{number}" for card, number in self.xids]
        partial = self.folder / "said.partial"
        partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
        partial.replace(self.folder / "said")


def there() -> bool:
    """Whether it can be compiled."""
    return any(map(shutil.which, COMPILERS))
