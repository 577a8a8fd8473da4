"""Preemption's slice of the declaration of a pool: how its GPUs are lent to training and taken back."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import AfterValidator, Field

from events.spec import Duration, Spec
from events.units import Seconds
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
        return PoolPolicy(lending, dict(self.card_units))
