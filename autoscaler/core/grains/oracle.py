"""`oracle`: knows the future. No policy has fewer cold starts, and none without cold starts holds less: the bound."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Oracle:
    """`needed`: what will be needed in each grain, from the first."""

    needed: tuple[int, ...]

    def begin(self) -> int:
        """Grains that have ended."""
        return 0

    def after(self, state: int, needed: int) -> int:  # noqa: ARG002 - the shape of a policy; this one knows already
        """One more."""
        return state + 1

    def hold(self, state: int) -> int:
        """Exactly what will be needed."""
        return self.needed[state] if state < len(self.needed) else 0
