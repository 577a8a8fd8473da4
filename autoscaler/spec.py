"""The autoscaler's slice of the declaration: bounds, target, keep-alive, policy, objectives."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, JsonValue, model_validator

from autoscaler.core.policy import COST_MOST, KEEP_ALIVE, Mode, ScalingPolicy
from autoscaler.policy_spec import POLICIES, SCHEDULES_MOST, ScheduleSpec, read_options
from autoscaler.signals_spec import SIGNALS_MOST, SignalSpec
from events.spec import Duration, Spec
from events.types.replicas import MAX_REPLICAS
from events.units import Seconds, format_duration


class ScalingSpec(Spec):
    """How many replicas, and how they follow demand."""

    min_replicas: Annotated[int, Field(ge=0, le=MAX_REPLICAS)] = 0
    """Replicas that stay when nobody asks; 0 lets the model go to zero."""
    max_replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = 1
    """Most replicas."""
    target: Annotated[float, Field(gt=0)] | None = None
    """Wanted concurrent requests a replica; default: its slots, or with a promise of latency what is learned that a
    replica bears."""
    keep_alive: Duration = KEEP_ALIVE
    """How long an idle replica lives after the last request."""
    cold_start_cost: Annotated[Duration, Field(ge=1, le=COST_MOST)] | None = None
    """What a cold start is worth, in seconds of one idle replica. Given, a forecast decides instead of `keepAlive` how
    long idle replicas live, and starts them ahead of demand. Left out, the GpuPool's coldStartCost says it, if set."""
    stable_window: Annotated[Duration, Field(ge=1, le=3600)] = 60.0
    """Demand is averaged over this long before replicas are taken away."""
    panic_window: Annotated[Duration, Field(ge=1, le=3600)] = 6.0
    """Demand is averaged over this long before replicas are added."""
    policy: Annotated[str, Field(max_length=253)] = "relume"
    """Which policy decides: relume, kpa, keda, hpa, keepalive, concurrency, hybrid-histogram, or your own by its import
    path, such as mypolicies.batch:decide."""
    policy_options: Annotated[dict[str, JsonValue], Field(max_length=32)] = Field(default_factory=dict)
    """Settings of that policy, where it has some."""
    mode: Mode = Mode.AUTO
    """Whether decisions are acted on: auto; recommend records them and changes nothing; paused decides nothing."""
    schedules: Annotated[tuple[ScheduleSpec, ...], Field(max_length=SCHEDULES_MOST)] = ()
    """Times at which there are at least so many replicas."""
    signals: Annotated[tuple[SignalSpec, ...], Field(max_length=SIGNALS_MOST)] = ()
    """Numbers from outside that the model follows too; the one that needs most replicas counts."""

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                f"minReplicas {self.min_replicas} is above maxReplicas {self.max_replicas}; "
                "lower one or raise the other"
            )
        if self.cold_start_cost is not None and self.keep_alive != KEEP_ALIVE:
            raise ValueError(
                f"keepAlive {format_duration(self.keep_alive)} and coldStartCost "
                f"{format_duration(self.cold_start_cost)} both say how long idle replicas live; leave one out"
            )
        if self.panic_window > self.stable_window:
            raise ValueError("panicWindow is longer than stableWindow; make it shorter")
        if self.cold_start_cost is not None and self.policy == "relume" and "keepExtra" in self.policy_options:
            raise ValueError("policyOptions.keepExtra and coldStartCost both say how long replicas live; leave one out")
        if self.policy in POLICIES:
            read_options(self.policy, self.policy_options)
        elif self.policy_options and ":" in self.policy:
            raise ValueError("policyOptions are for the policies that have a name; leave them out")
        above = next((one for one in self.schedules if one.min_replicas > self.max_replicas), None)
        if above is not None:
            raise ValueError(
                f"a schedule wants {above.min_replicas} replicas and maxReplicas is {self.max_replicas}; "
                "lower one or raise the other"
            )
        names = [signal.known_as for signal in self.signals]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two signals are called {twice}; give each its own name")
        return self

    def resolve(self, *, slots: int, priority: int) -> ScalingPolicy:
        """Plain numbers."""
        return ScalingPolicy(
            name=self.policy,
            min_replicas=self.min_replicas,
            max_replicas=self.max_replicas,
            target=float(slots) if self.target is None else self.target,
            slots=slots,
            keep_alive=Seconds(self.keep_alive),
            stable_window=Seconds(self.stable_window),
            panic_window=Seconds(self.panic_window),
            priority=priority,
            cold_start_cost=None if self.cold_start_cost is None else Seconds(self.cold_start_cost),
            signals=tuple(signal.resolve() for signal in self.signals),
            options=read_options(self.policy, self.policy_options) if self.policy in POLICIES else None,
            mode=self.mode,
            schedules=tuple(one.resolve() for one in self.schedules),
        )
