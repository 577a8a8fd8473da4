"""Numbers of the autoscaler's process. What belongs to a model is in its declaration."""

from __future__ import annotations

from dataclasses import dataclass

from events.units import Seconds


@dataclass(frozen=True, slots=True)
class AutoscalerSettings:
    """Settings of an `Autoscaler`. `owner` is the name under which it takes ownership."""

    owner: str = "autoscaler"
    pool: str = "default"
    """The pool whose settings count (`spec.coldStartCost` of a GpuPool)."""
    tick: Seconds = Seconds(2.0)
    """A model whose ordinary windows arrive is decided this often (Knative's `tickInterval`); an edge does not wait."""
    reasons_every: Seconds = Seconds(10.0)
    """A decision that changes the reasons but not the number is recorded this often at most: reasons may flicker."""
    read_back_most: Seconds = Seconds(600.0)
    """At start demand is read back over the longest keep-alive and stable window there is, and over this at most. A
    model with a longer keep-alive is held as if its last request came at the beginning of what was read."""
    retry_first: Seconds = Seconds(0.1)
    retry_most: Seconds = Seconds(5.0)
    """Pauses between tries while the log cannot be written or read: doubling from the first to the most."""
    start_most: Seconds = Seconds(30.0)
    """`Autoscaler.start` gives up after so long without a word from the log."""
    retake_first: Seconds = Seconds(0.5)
    retake_most: Seconds = Seconds(5.0)
    """Pauses before a partition that another autoscaler has taken is taken again, if it is assigned to us still:
    doubling. A process that was stopped and goes on believes in its old share until its group says otherwise; two that
    took at once would take from one another until then."""
