"""What other autoscalers hold, at the grain of a minute: the shadow that their rules leave there.

What happens within a minute (panic windows, polling, votes for fewer replicas, grace of half a minute) does not show at
this grain. `needed`, the most replicas at once within a minute, stands for the signal that they average.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from autoscaler.core.forecast.hold import GRAIN
from events.units import Seconds

Recent = tuple[int, ...]
"""What was needed in the last grains, newest last."""


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """`keepalive(t)`: hold the most that was needed in the last `t`. Less than a grain is a grain."""

    keep: Seconds

    def begin(self) -> Recent:
        """Nothing was needed."""
        return ()

    def after(self, state: Recent, needed: int) -> Recent:
        """The last grains."""
        return (*state, needed)[-grains(self.keep) :]

    def hold(self, state: Recent) -> int:
        """Their most."""
        return max(state, default=0)


@dataclass(frozen=True, slots=True)
class Knative:
    """`kpa`: a stable window of 60 s and a grace of 30 s to zero, as Knative is delivered.

    A minute that needed n replicas fills the stable window, so n are there as the next one begins; within it the
    average and then the grace run out. Whole grains of window and grace are held, and the rest does not show. With the
    defaults this is `keepalive(1m)`, which comes within 0.03 % of the cold starts that a simulation of Knative
    published for the same trace.
    """

    stable_window: Seconds = Seconds(60.0)
    grace: Seconds = Seconds(30.0)

    def begin(self) -> Recent:
        """Nothing was needed."""
        return ()

    def after(self, state: Recent, needed: int) -> Recent:
        """The grains of the window, and those of the grace."""
        return (*state, needed)[-grains(Seconds(self.stable_window + self.grace)) :]

    def hold(self, state: Recent) -> int:
        """The average of the window, rounded up, is asked for each grain; the last replica goes after the grace."""
        window = grains(self.stable_window)
        average = ceil(sum(state[-window:]) / window - 1e-9)
        return max(average, 1 if any(state) else 0)


@dataclass(frozen=True, slots=True)
class Concurrency:
    """`concurrency`: KubeAI's mean of active requests over ten minutes, rounded up.

    It takes a replica away after 30 s of votes, which does not show here. Source: kubeai, `config/system.go`.
    """

    window: Seconds = Seconds(600.0)

    def begin(self) -> Recent:
        """Nothing was needed."""
        return ()

    def after(self, state: Recent, needed: int) -> Recent:
        """The grains of the window."""
        return (*state, needed)[-grains(self.window) :]

    def hold(self, state: Recent) -> int:
        """Their mean. What was not seen yet counts as nothing: its samples begin as zeros."""
        return ceil(sum(state) / grains(self.window) - 1e-9)


@dataclass(frozen=True, slots=True)
class Stabilised:
    """What the Horizontal Pod Autoscaler remembers: replicas now, and what it wanted in the stabilisation window."""

    current: int
    wanted: Recent = ()
    quiet: int = 0


@dataclass(frozen=True, slots=True)
class Hpa:
    """`hpa`: desired = needed within a tolerance of 10 %, the most of the last 300 s, never fewer than one."""

    tolerance: float = 0.1
    stabilisation: Seconds = Seconds(300.0)

    def begin(self) -> Stabilised:
        """One replica: it cannot be fewer."""
        return Stabilised(1)

    def after(self, state: Stabilised, needed: int) -> Stabilised:
        """One step of the loop."""
        same = abs(needed / state.current - 1.0) <= self.tolerance if state.current else not needed
        wanted = (*state.wanted, max(1, state.current if same else needed))[-grains(self.stabilisation) :]
        return Stabilised(max(wanted), wanted, 0 if needed else state.quiet + 1)

    def hold(self, state: Stabilised) -> int:
        """What is there."""
        return state.current


@dataclass(frozen=True, slots=True)
class Keda:
    """`keda`: from zero to one when anything is asked, to zero after a cooldown of 300 s, between them as `hpa`."""

    cooldown: Seconds = Seconds(300.0)
    hpa: Hpa = Hpa()

    def begin(self) -> Stabilised:
        """Zero."""
        return Stabilised(0)

    def after(self, state: Stabilised, needed: int) -> Stabilised:
        """Active is the HPA's; inactive for the cooldown is zero, and forgets what was wanted."""
        if not needed and (not state.current or state.quiet + 1 >= grains(self.cooldown)):
            return Stabilised(0, (), state.quiet + 1)
        return self.hpa.after(state, needed)

    def hold(self, state: Stabilised) -> int:
        """What is there."""
        return state.current


def grains(span: Seconds) -> int:
    """Whole grains of a span, at least one."""
    return max(1, int(span / GRAIN + 1e-9))
