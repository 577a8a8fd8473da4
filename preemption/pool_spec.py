"""Preemption's slice of the declaration of a pool: how its GPUs are lent to training and taken back."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import AfterValidator, Field

from events.spec import Duration, Spec
from events.units import Seconds
from preemption.core.attempts.attempt import AttemptPolicy
from preemption.core.calling import CallPolicy
from preemption.core.lending.policy import LendingPolicy
from preemption.core.reclaim.pool_policy import PoolPolicy
from preemption.core.reclaim.values import ReclaimPolicy

Share = Annotated[float, Field(ge=0, le=1)]
"""A part of a whole."""


def _products(units: dict[str, float]) -> dict[str, float]:
    for name in units:
        if not name.strip():
            raise ValueError("a product's name is empty; write it as `relume gpus` shows it, such as H100")
    return units


class ReserveSpec(Spec):
    """What of each node training cannot take, so that models find it free."""

    shared_cards: Share = 0.2
    """Of the cards that are given out in parts; of the MIG instances of each profile, rounded down."""
    whole_cards: Share = 0.2
    """Of the cards that are given out whole, rounded down: of eight cards one, of four none."""


class ReclaimSpec(Spec):
    """How often training may be made to yield."""

    budget_per_hour: Annotated[int, Field(ge=0, le=100_000)] = 120
    """Jobs of the whole pool that may be made to yield within an hour. 0: none ever is."""
    cool_down: Duration = 60.0
    """How long a job is left alone after it had to yield."""
    thrash: Duration = 300.0
    """So much of its own work it costs more to take a job again, for each time that it had to yield lately."""
    thrash_window: Annotated[Duration, Field(gt=0)] = 3600.0
    """How long ago is lately."""
    shrink: Duration = 60.0
    """So much of its work it costs more to take a member of an elastic job, which then waits for the shortage's end."""
    waiting: Annotated[float, Field(ge=0, le=1_000_000)] = 10.0
    """What a second that a model waits costs for each A100 that it would have, in A100-seconds of training. With more,
    rather victims are taken; with less, rather what is coming is waited for."""


class AgingSpec(Spec):
    """How a job that waits for cards gains on others."""

    every: Annotated[Duration, Field(gt=0)] = 600.0
    """Each time that it has waited so long its priority counts as one more, and it waits half as long for room to
    last."""
    most: Annotated[int, Field(ge=0, le=1_000_000)] = 50
    """Its priority never counts as more than so much more. 0: age counts for nothing there."""


class SettlingSpec(Spec):
    """How long there must have been room before a job that had to yield within the last hour is started in it."""

    first: Duration = 5.0
    """If it had to yield once."""
    growth: Annotated[float, Field(ge=1, le=100)] = 4.0
    """For each further time, so many times as long."""
    longest: Duration = 1200.0
    """And never longer than this."""
    patience: Annotated[float, Field(ge=0, le=1000)] = 4.0
    """Nor longer than so many times what it costs to give the room back once more: its save and restore, and the wait
    for its save and the rest of a reclaim. 0: it comes back at once."""


class EstimatesSpec(Spec):
    """What is assumed of jobs that have not shown it yet."""

    save: Annotated[Duration, Field(gt=0)] = 30.0
    """How long a save takes."""
    restore: Annotated[Duration, Field(gt=0)] = 30.0
    """How long it takes to come back."""
    reclaim: Duration = 5.0
    """What a reclaim takes beside the save: hearing the notice, ending, seeing the cards empty."""
    drain: Duration = 5.0
    """When a replica that drains is expected to be gone."""
    drain_longest: Duration = 300.0
    """When it is expected to be gone if it was not by then."""


class AttemptsSpec(Spec):
    """How long each step may take when cards are taken back, beside what a job declares of its own checkpoint."""

    stall: Annotated[Duration, Field(gt=0)] = 30.0
    """A save that tells no progress for so long is given up, once the time that its trainer promised is over."""
    exit: Annotated[Duration, Field(gt=0)] = 5.0
    """From a committed checkpoint to the end of the processes; then they get SIGTERM."""
    cancel: Annotated[Duration, Field(gt=0)] = 60.0
    """From a notice that is withdrawn to a sign that the job goes on; then it is ended after all."""
    kill: Annotated[Duration, Field(gt=0)] = 15.0
    """From SIGKILL to the end; then the run counts as lost, and its cards are cordoned."""
    empty: Annotated[Duration, Field(gt=0)] = 60.0
    """From the end to cards that are seen empty; then they go to quarantine."""
    quarantine: Annotated[Duration, Field(gt=0)] = 300.0
    """How long cards that are not empty are watched; then they are cordoned until a person says otherwise."""
    lost: Annotated[Duration, Field(gt=0)] = 60.0
    """How long after that the job is given up and waits to be started elsewhere."""
    resume: Annotated[Duration, Field(gt=0)] = 900.0
    """From the start of a job that had to yield to its first step; then it counts as waiting again."""


class NodeCallsSpec(Spec):
    """How models that find no room call for more nodes (on Kubernetes, by pods that wait)."""

    most: Annotated[int, Field(ge=1, le=1000)] = 4
    """Replicas of all models together that are called for at once."""
    after: Duration = 5.0
    """How long a replica has had no room before it is called for."""
    deadline: Annotated[Duration, Field(gt=0)] = 900.0
    """How long a call stands without any replica finding room; then it is taken back. (As long as the cluster
    autoscaler of Kubernetes waits for a node.)"""
    pause: Annotated[Duration, Field(gt=0)] = 300.0
    """Before the next call after one was taken back; each further time twice as long, at most an hour."""

    def resolve(self) -> CallPolicy:
        """Plain numbers."""
        return CallPolicy(
            most=self.most, after=Seconds(self.after), within=Seconds(self.deadline), pause=Seconds(self.pause)
        )


class PoolSpec(Spec):
    """How the GPUs of a pool are lent to training and taken back, and what a cold start is worth."""

    cold_start_cost: Annotated[Duration, Field(ge=1, le=604800)] | None = None
    """What a cold start of any model is worth, in seconds of one GPU: of a model of four GPUs a fourth of it, in
    seconds of its replica. It holds for models of the policy relume that set neither scaling.coldStartCost nor another
    scaling.keepAlive. Left out, for none."""
    reserve: ReserveSpec = ReserveSpec()
    """What training cannot take."""
    reclaim: ReclaimSpec = ReclaimSpec()
    """How often training may be made to yield."""
    settling: SettlingSpec = SettlingSpec()
    """When training comes back."""
    aging: AgingSpec = AgingSpec()
    """What waiting is worth."""
    estimates: EstimatesSpec = EstimatesSpec()
    """What is assumed where nothing was measured."""
    attempts: AttemptsSpec = AttemptsSpec()
    """How long the steps of taking cards back may last."""
    card_units: Annotated[
        dict[str, Annotated[float, Field(gt=0, le=1000)]], Field(max_length=64), AfterValidator(_products)
    ] = Field(default_factory=dict)
    """What cards are worth in A100s, by product or a part of its name, such as H100: 3.2; it prices a card's seconds
    when jobs are compared. Of others the data sheets say."""
    node_calls: NodeCallsSpec | None = None
    """How models that find no room call for more nodes. Left out, none does. On one machine it does nothing."""

    def resolve(self) -> PoolPolicy:
        """Plain numbers."""
        known, settling, estimates = LendingPolicy(), self.settling, self.estimates
        lending = replace(
            known,
            reclaim=self._reclaim(known.reclaim),
            attempts=self._attempts(known.attempts),
            reserve_shared=self.reserve.shared_cards,
            reserve_whole=self.reserve.whole_cards,
            settle=Seconds(settling.first),
            settle_growth=settling.growth,
            most_settle=Seconds(settling.longest),
            patience=settling.patience,
            save=Seconds(estimates.save),
            restore=Seconds(estimates.restore),
            drains=Seconds(estimates.drain),
            drain_bound=Seconds(estimates.drain_longest),
        )
        calls = None if self.node_calls is None else self.node_calls.resolve()
        cost = None if self.cold_start_cost is None else Seconds(self.cold_start_cost)
        return PoolPolicy(lending, dict(self.card_units), calls, cost)

    def _reclaim(self, known: ReclaimPolicy) -> ReclaimPolicy:
        said = self.reclaim
        return replace(
            known, pool_budget=said.budget_per_hour, cool_down=Seconds(said.cool_down), thrash=Seconds(said.thrash),
            window=Seconds(said.thrash_window), shrink=Seconds(said.shrink), waiting=said.waiting,
            yield_time=Seconds(self.estimates.reclaim), age_every=Seconds(self.aging.every), most_boost=self.aging.most,
        )  # fmt: skip

    def _attempts(self, known: AttemptPolicy) -> AttemptPolicy:
        said = self.attempts
        return replace(
            known, stall=Seconds(said.stall), exit=Seconds(said.exit), cancel=Seconds(said.cancel),
            kill=Seconds(said.kill), drain=Seconds(said.empty), quarantine=Seconds(said.quarantine),
            lost=Seconds(said.lost), resume=Seconds(said.resume),
        )  # fmt: skip
