"""What training jobs did with the cards that they held. Written by the allocator, on `relume.reclaims`."""

from __future__ import annotations

from dataclasses import field

from events.kinds import event, value
from events.names import Topic
from events.types.shared import Count


@value
class OpenRun:
    """A run whose cards are not seen empty yet, as far as it is accounted for. Times in milliseconds since the epoch.

    `since`: up to here all is settled. `milli`: thousandths of cards that it holds. `trained`: when its training began,
    `heard`: when it heard the notice that stands; None: not yet. `pending`: GPU-microseconds of training that no
    checkpoint has yet. `reports`: its trainer tells something. `saved`: it has saved for the notice. `ended`: its
    processes have ended.
    """

    since: Count
    milli: Count
    trained: Count | None = None
    heard: Count | None = None
    pending: Count = 0
    reports: bool = False
    saved: bool = False
    ended: bool = False


@value
class KeptAt:
    """What was kept when the checkpoint of `step` had been committed, GPU-microseconds."""

    step: Count
    kept: Count


@event("relume.training.accounted", Topic.RECLAIMS)
class TrainingAccounted:
    """What a training job has done with the cards that it held. State of key ``training/NAME``.

    `parts` are GPU-microseconds by the words of `preemption.core.reclaim.goodput.Part`; together they are all that the
    job, of this `uid`, has held up to now. `run`: the newest run; `open`: what is not settled of it, None: nothing.
    """

    job: str
    uid: str
    run: Count
    parts: dict[str, Count] = field(default_factory=dict)
    open: OpenRun | None = None
    commits: tuple[KeptAt, ...] = ()
