"""Parts that several events share: constrained numbers, resources, a latency sketch."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Gt

from events.kinds import value

Count = Annotated[int, Ge(0)]
"""A number of things, never negative."""

Amount = Annotated[float, Ge(0)]
"""A measured quantity, never negative."""

At = Annotated[float, Gt(0)]
"""An instant: seconds since the Unix epoch. (Inside `data` instants travel as numbers; the envelope's as RFC 3339.)"""


@value
class Resources:
    """What one replica needs: whole GPUs, a fraction of one, bytes of one's memory, or a MIG profile; cores; bytes of
    main memory."""

    gpus: Count = 0
    gpu_fraction: Amount = 0.0
    mig_profile: str = ""
    cpu: Amount = 0.0
    memory_bytes: Count = 0
    gpu_bytes: Count = 0


@value
class Sketch:
    """Counts of latencies by logarithmic bucket (DDSketch, VLDB 2019, relative accuracy 5 %).

    Bucket `i` holds values in (g^(i-1), g^i] seconds with g = (1 + 0.05) / (1 - 0.05). Two sketches add bucket by
    bucket.
    """

    buckets: tuple[tuple[int, Count], ...] = ()
    count: Count = 0
    sum: Amount = 0.0
