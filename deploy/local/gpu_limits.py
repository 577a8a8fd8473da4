"""Who keeps a replica to its part of a card: HAMi-core's library, where its path is given, and nobody otherwise.

The library (``libvgpu.so``, https://github.com/Project-HAMi/HAMi-core) is loaded before the engine and refuses what
CUDA would allocate beyond a limit of bytes, for all processes together that share its file. It limits programs that do
not mean to get round it. Cores are not limited: `gpuFraction` is a share of the memory that programs can have of the
card, so that all who are on it fit. Only a part of a real card whose memory is known can be limited; MIG instances are
by the hardware.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from events.types.replicas import Card
from events.types.shared import Resources
from preemption.core.gpus.parts import Kind, bytes_of, kind_of
from preemption.core.inventory import need_of

LOCKS: Final = Path("/tmp/vgpulock")  # noqa: S108 - the library's own place, which it does not make
MEBIBYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class GpuLimits:
    """The library, where the files of its limits are, and the kind of each real card that is given out in parts."""

    library: Path
    folder: Path
    cards: Mapping[str, Kind]

    def environment(
        self, replica: str, resources: Resources, devices: Sequence[str], own: Mapping[str, str]
    ) -> dict[str, str]:
        """The variables of a replica (or member) that has a part of one card; none where nothing is limited. `own`: its
        other variables. The file of an earlier start is removed: the library goes by what stands in it."""
        kind, need = self.cards.get(devices[0]) if len(devices) == 1 else None, need_of(resources)
        if kind is None or not need.shares:
            return {}
        most = bytes_of(need.gpu_milli, need.gpu_bytes, kind)
        self.folder.mkdir(parents=True, exist_ok=True)
        LOCKS.mkdir(parents=True, exist_ok=True)
        shared = self.folder / f"{replica.replace('/', '-')}.cache"
        shared.unlink(missing_ok=True)
        return {
            "LD_PRELOAD": ":".join(filter(None, (str(self.library), own.get("LD_PRELOAD", "")))),
            "CUDA_DEVICE_MEMORY_LIMIT": f"{max(1, most // MEBIBYTE)}m",
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(shared),
        }


def limits_of(library: Path | None, folder: Path, cards: Iterable[Card]) -> GpuLimits | None:
    """The limits of a node with these cards; None where nothing keeps them."""
    if library is None:
        return None
    return GpuLimits(library, folder, {card.id: kind_of(card) for card in cards if _in_parts(card)})


def _in_parts(card: Card) -> bool:
    return not card.virtual and not card.profile and card.memory_bytes > 0
