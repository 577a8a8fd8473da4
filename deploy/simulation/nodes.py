"""Where simulated replicas are: nodes with GPUs, one replica on one node. Without nodes the GPUs are one heap."""

from __future__ import annotations

from deploy.simulation.setting import Setting


class Nodes:
    """What is free. The node with the fewest free GPUs that still fits is taken: it leaves the large gaps whole."""

    def __init__(self, setting: Setting) -> None:
        self._each = setting.gpus_each
        self._named = bool(setting.nodes)
        self._free = list(setting.nodes) if setting.nodes else [setting.gpus]

    @property
    def room(self) -> bool:
        """Whether one more replica fits somewhere."""
        return any(free is None or free >= self._each for free in self._free)

    def take(self) -> int | None:
        """Its place; None where nodes are not told apart. There must be room."""
        fits = [(free or 0, node) for node, free in enumerate(self._free) if free is None or free >= self._each]
        _, node = min(fits)
        free = self._free[node]
        if free is not None:
            self._free[node] = free - self._each
        return node if self._named else None

    def give(self, node: int | None) -> None:
        """One that was there is gone."""
        free = self._free[node or 0]
        if free is not None:
            self._free[node or 0] = free + self._each
