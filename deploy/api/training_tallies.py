"""Counts of training and reclaims for ``/metrics``, folded from events. Pure, but for what `families` makes of them.

Counters start at zero with the process: what stood in the log before is only remembered, so that what changes after is
counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from deploy.api.tallies import START_BOUNDS, Histogram
from deploy.api.training_board import MOST_ENDED, TrainingBoard
from deploy.api.trainingshapes import TrainingItem, TrainingState
from events.clock import Clock
from events.envelope import AnyEnvelope
from events.types.reclaims import ReclaimChanged
from events.types.training import CheckpointCommitted, CheckpointFailed
from events.units import Instant
from preemption.core.attempts.states import ENDS, Happened, State
from preemption.core.lending.case import Cause
from preemption.core.reclaim.goodput import Part, Parts, share

JOB_LABELS: Final = 1000
"""Jobs with series of their own, the first by name (see `metrics.MODEL_LABELS`); numbers of jobs do not add up."""

ESCALATIONS: Final = {State.STOPPING: "term", State.KILLING: "kill"}
"""Which states mean that a victim was told harder, and how."""

THRASHES_WITHIN: Final = 3600.0
"""Seconds within which a job that has to yield again counts as thrashing (the budget's hour)."""

PARKED_BOUNDS: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 86400.0)
"""Buckets of the time without cards: from a burst to a day."""

OPEN: Final = tuple(state for state in State if state not in ENDS)


class TrainingTallies:
    """What events about training count up to."""

    def __init__(self) -> None:
        self._last: dict[str, ReclaimChanged] = {}
        self.outcomes: Counter[str] = Counter()
        self.escalations: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.steps_lost = 0
        self.stages: dict[str, Histogram] = {}
        self.claims_expired = 0
        self.thrash = 0
        self.resume_seconds = Histogram(PARKED_BOUNDS)
        self.checkpoints: Counter[str] = Counter()
        self.checkpoint_bytes = 0
        self.save_seconds = Histogram(START_BOUNDS)

    def apply(self, envelope: AnyEnvelope) -> None:
        """Count one event."""
        data = envelope.data
        if isinstance(data, ReclaimChanged):
            if data.shortage:  # else nobody was preempted
                self._count(self._last.get(data.id), data)
            elif data.cause not in ("", Cause.PERSON):  # nor did a person ask for it, so it counts as lost
                self._add_lost(self._last.get(data.id), data)
            self.seed(envelope)
        elif isinstance(data, CheckpointCommitted):
            self.checkpoints["committed"] += 1
            self.checkpoint_bytes += data.checkpoint.size
            self.save_seconds.add(data.checkpoint.seconds)
        elif isinstance(data, CheckpointFailed):
            self.checkpoints["failed"] += 1

    def seed(self, envelope: AnyEnvelope) -> None:
        """Remember a reclaim without counting it."""
        data = envelope.data
        if not isinstance(data, ReclaimChanged):
            return
        self._last.pop(data.id, None)
        self._last[data.id] = data
        while len(self._last) > 2 * MOST_ENDED:  # the one that was told longest ago
            del self._last[next(iter(self._last))]

    def _count(self, before: ReclaimChanged | None, now: ReclaimChanged) -> None:
        """What `now` says more than `before`, the same reclaim as it was."""
        if before is not None and before.ended:
            return
        self._add_lost(before, now)
        seen = {(one.at, one.state) for one in before.history} if before else set()
        for one in now.history:
            if (one.at, one.state) not in seen and one.state in ESCALATIONS:
                self.escalations[ESCALATIONS[State(one.state)]] += 1
        if now.ended:
            self.outcomes[now.state] += 1
        parked_at = _reached(now, State.PARKED)
        if parked_at is not None and (before is None or _reached(before, State.PARKED) is None):
            self._parked(now, parked_at)
        back_at = _reached(now, State.RESUMED)
        if parked_at is not None and back_at is not None:  # an end, so it is counted once
            self.resume_seconds.add(max(0.0, back_at - parked_at))

    def _add_lost(self, before: ReclaimChanged | None, now: ReclaimChanged) -> None:
        """What it has cost since `before`, the same reclaim as it was."""
        if before is not None and before.ended:
            return
        known = before.ledger if before else None
        for cause, seconds in now.ledger.lost.items():
            self.lost[cause] += max(0.0, seconds - (known.lost.get(cause, 0.0) if known else 0.0))  # type: ignore[assignment]  # a Counter adds up floats too
        self.steps_lost += max(0, (now.ledger.steps_lost or 0) - ((known.steps_lost or 0) if known else 0))

    def _parked(self, now: ReclaimChanged, parked_at: float) -> None:
        """The cards have been handed over or given back: all stages are known."""
        for stage, seconds in now.ledger.stages.items():
            self.stages.setdefault(stage, Histogram(START_BOUNDS)).add(seconds)
        last = next(one for one in now.history if one.state == State.PARKED)
        self.claims_expired += last.happened == Happened.TIMEOUT and _reached(now, State.CLAIMED) is not None
        earlier = (
            _reached(one, State.PARKED) for one in self._last.values()
            if one.job_uid == now.job_uid and one.id != now.id and one.shortage
        )  # fmt: skip
        self.thrash += any(at is not None and 0 <= parked_at - at <= THRASHES_WITHIN for at in earlier)


def _reached(reclaim: ReclaimChanged, state: State) -> float | None:
    """When it first came into a state; None: it did not."""
    return next((one.at for one in reclaim.history if one.state == state), None)


class TrainingFamilies:
    """The metrics of training, now."""

    def __init__(self, board: TrainingBoard, tallies: TrainingTallies, clock: Clock) -> None:
        self._board = board
        self._tallies = tallies
        self._clock = clock

    async def families(self) -> Sequence[Metric]:
        """All of them; whole values that nothing changes any more."""
        now = self._clock.now()
        items = [item async for item in self._board.items(now)]
        whole = await self._board.goodput(now)
        return [
            *self._jobs(items, now), *_goodput(items[:JOB_LABELS], whole), *self._reclaims(), *self._cost(),
            *self._checkpoints(),
        ]  # fmt: skip

    def _jobs(self, items: Sequence[TrainingItem], now: Instant) -> Iterator[Metric]:
        states = Counter(item.status.state for item in items)
        yield _gauge("relume_training_jobs", "Training jobs by state.", "state",
                     ((state.value, states[state]) for state in TrainingState))  # fmt: skip
        own = [(item.metadata.name, item.status) for item in items[:JOB_LABELS]]
        yield _gauge("relume_training_step", "Completed steps, as far as the trainer has told.", "job",
                     ((job, status.step) for job, status in own))  # fmt: skip
        yield _gauge("relume_training_members", "Processes that run.", "job",
                     ((job, status.ready_members) for job, status in own))  # fmt: skip
        yield _gauge("relume_training_failed_in_a_row", "Runs that failed in a row.", "job",
                     ((job, status.failures) for job, status in own))  # fmt: skip
        yield _gauge("relume_training_checkpoint_step", "Step of the newest committed checkpoint.", "job",
                     ((job, status.checkpoint.step if status.checkpoint else None) for job, status in own))  # fmt: skip
        committed = ((job, self._committed_at(job)) for job, _ in own)
        yield _gauge("relume_training_last_commit_age_seconds", "Since the newest committed checkpoint.", "job",
                     ((job, None if at is None else max(0.0, now - at)) for job, at in committed))  # fmt: skip

    def _committed_at(self, job: str) -> float | None:
        entry = self._board.entry(job)
        observed = entry.observed if entry else None
        return observed.checkpoint.at if observed and observed.checkpoint else None

    def _reclaims(self) -> Iterator[Metric]:
        states = Counter(one.state for one in self._board.reclaims() if one.shortage and not one.ended)
        yield _gauge("relume_preempt_reclaims", "Reclaims that go on, by state.", "state",
                     ((state.value, states[state]) for state in OPEN))  # fmt: skip
        yield _gauge_alone("relume_preempt_claims_active", "Reclaims whose cards are set aside for a shortage.",
                           states[State.CLAIMED])  # fmt: skip
        yield _counter("relume_preempt_preemptions", "Reclaims that ended, by outcome.", "outcome",
                       self._tallies.outcomes)  # fmt: skip
        yield CounterMetricFamily("relume_preempt_claims_expired", "Claims that nobody took.",
                                  value=self._tallies.claims_expired)  # fmt: skip
        yield CounterMetricFamily("relume_preempt_thrash", "Jobs that had to yield again within an hour.",
                                  value=self._tallies.thrash)  # fmt: skip
        yield _counter("relume_preempt_escalations", "Victims that were told harder: SIGTERM, SIGKILL.", "to",
                       self._tallies.escalations)  # fmt: skip

    def _cost(self) -> Iterator[Metric]:
        yield _counter("relume_preempt_gpu_seconds_lost", "GPU-seconds that reclaims cost, by cause.", "cause",
                       self._tallies.lost)  # fmt: skip
        yield CounterMetricFamily(
            "relume_preempt_steps_lost", "Training steps done again after reclaims.", value=self._tallies.steps_lost
        )
        stages = HistogramMetricFamily("relume_preempt_reclaim_seconds", "From the demand to the usable GPU, by stage.",
                                       labels=["stage"])  # fmt: skip
        for stage, histogram in sorted(self._tallies.stages.items()):
            stages.add_metric([stage], histogram.cumulative(), histogram.sum)
        yield stages
        resumes = HistogramMetricFamily(
            "relume_preempt_resume_seconds", "Without cards, until a step beyond the checkpoint."
        )
        resumes.add_metric([], self._tallies.resume_seconds.cumulative(), self._tallies.resume_seconds.sum)
        yield resumes

    def _checkpoints(self) -> Iterator[Metric]:
        yield _counter("relume_preempt_checkpoints", "Checkpoints by outcome: committed, failed.", "outcome",
                       self._tallies.checkpoints)  # fmt: skip
        yield CounterMetricFamily(
            "relume_preempt_checkpoint_bytes", "Bytes of committed checkpoints.", value=self._tallies.checkpoint_bytes
        )
        saves = HistogramMetricFamily("relume_preempt_checkpoint_seconds", "How long committed saves took.")
        saves.add_metric([], self._tallies.save_seconds.cumulative(), self._tallies.save_seconds.sum)
        yield saves


def _goodput(items: Sequence[TrainingItem], whole: Parts) -> Iterator[Metric]:
    yield _gauge("relume_training_gpu_seconds", "GPU-seconds that the listed jobs held, by what they were used for.",
                 "part", ((part.value, whole.get(part, 0) / 1e6) for part in Part))  # fmt: skip
    ratio = share(whole)
    if ratio is not None:
        yield _gauge_alone("relume_training_goodput_ratio", "The share of those that went into steps which are kept.",
                           ratio)  # fmt: skip
    yield _gauge("relume_training_job_goodput_ratio", "The same of one job.", "job",
                 ((item.metadata.name, item.status.goodput.ratio) for item in items))  # fmt: skip


def _gauge(name: str, text: str, label: str, values: Iterable[tuple[str, float | None]]) -> Metric:
    """A gauge by one label; what is unknown has no series."""
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values:
        if value is not None:
            family.add_metric([key], value)
    return family


def _gauge_alone(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, label: str, counts: Counter[str]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for key, count in sorted(counts.items()):
        family.add_metric([key], count)
    return family
