"""Preemption's slice of the declaration of a pool: how its GPUs are lent to training and taken back."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import AfterValidator, Field

from events.spec import Duration, Spec
from events.units import Seconds
from preemption.core.calling import CallPolicy
from preemption.core.lending.policy import LendingPolicy
from preemption.core.reclaim.pool_policy import PoolPolicy

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
    """Of the cards that are given out in parts."""
    whole_cards: Share = 0.2
    """Of the cards that are given out whole, rounded down: of eight cards one, of four none."""


class ReclaimSpec(Spec):
    """How often training may be made to yield."""

    budget_per_hour: Annotated[int, Field(ge=0, le=100_000)] = 120
    """Jobs of the whole pool that may be made to yield within an hour. 0: none ever is."""
    cool_down: Duration = 60.0
    """How long a job is left alone after it had to yield."""


class SettlingSpec(Spec):
    """How long there must have been room before a job that had to yield within the last hour is started in it."""

    first: Duration = 5.0
    """If it had to yield once."""
    growth: Annotated[float, Field(ge=1, le=100)] = 4.0
    """For each further time, so many times as long."""
    longest: Duration = 1200.0
    """And never longer than this."""


class EstimatesSpec(Spec):
    """What is assumed of jobs that have not shown it yet."""

    save: Annotated[Duration, Field(gt=0)] = 30.0
    """How long a save takes."""
    restore: Annotated[Duration, Field(gt=0)] = 30.0
    """How long it takes to come back."""


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
    """How the GPUs of a pool are lent to training and taken back."""

    reserve: ReserveSpec = ReserveSpec()
    """What training cannot take."""
    reclaim: ReclaimSpec = ReclaimSpec()
    """How often training may be made to yield."""
    settling: SettlingSpec = SettlingSpec()
    """When training comes back."""
    estimates: EstimatesSpec = EstimatesSpec()
    """What is assumed where nothing was measured."""
    card_units: Annotated[
        dict[str, Annotated[float, Field(gt=0, le=1000)]], Field(max_length=64), AfterValidator(_products)
    ] = Field(default_factory=dict)
    """What cards are worth in A100s, by product or a part of its name, such as H100: 3.2; it prices a card's seconds
    when jobs are compared. Of others the data sheets say."""
    node_calls: NodeCallsSpec | None = None
    """How models that find no room call for more nodes. Left out, none does. On one machine it does nothing."""

    def resolve(self) -> PoolPolicy:
        """Plain numbers."""
        known = LendingPolicy()
        lending = replace(
            known,
            reclaim=replace(
                known.reclaim, pool_budget=self.reclaim.budget_per_hour, cool_down=Seconds(self.reclaim.cool_down)
            ),
            reserve_shared=self.reserve.shared_cards,
            reserve_whole=self.reserve.whole_cards,
            settle=Seconds(self.settling.first),
            settle_growth=self.settling.growth,
            most_settle=Seconds(self.settling.longest),
            save=Seconds(self.estimates.save),
            restore=Seconds(self.estimates.restore),
        )
        calls = None if self.node_calls is None else self.node_calls.resolve()
        return PoolPolicy(lending, dict(self.card_units), calls)
