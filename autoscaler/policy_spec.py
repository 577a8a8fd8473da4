"""What users may set of each policy: `scaling.policyOptions`, and schedules. Defaults of others' are the originals'."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import Field, ValidationError, field_validator

from autoscaler.core.peers import ConcurrencyOptions, HpaOptions, KedaOptions, KpaOptions, Options, RelumeOptions
from autoscaler.core.policy import SchedulePolicy
from events.spec import Duration, Spec
from events.types.replicas import MAX_REPLICAS
from events.units import Seconds

POLICIES: Final = ("relume", "kpa", "keda", "hpa", "keepalive", "concurrency", "hybrid-histogram")
"""The policies that a model may name; or one's own, by its import path."""

OWN_PATTERN: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
"""``path.to.module:function``."""

SCHEDULES_MOST: Final = 16

_CHECKED_FROM: Final = "2000-01-01T00:00:00+00:00"


class RelumeSpec(Spec):
    """What only ours has."""

    keep_extra: Annotated[Duration, Field(ge=0, le=86400)] | None = None
    """How long replicas beyond the first live after they were needed; left out, as long as the first: `keepAlive`."""

    def resolve(self) -> RelumeOptions | None:
        """Plain numbers; None: nothing is set."""
        return None if self.keep_extra is None else RelumeOptions(keep_extra=Seconds(self.keep_extra))


class KpaSpec(Spec):
    """Knative's settings, under its words; windows are `stableWindow` and `panicWindow`, bounds those of the model."""

    target_utilisation: Annotated[float, Field(gt=0, le=1)] = 0.7
    """The part of the target that is aimed at."""
    panic_threshold: Annotated[float, Field(ge=1.1, le=10)] = 2.0
    """Panic begins when demand needs so many times the ready replicas."""
    max_scale_up_rate: Annotated[float, Field(gt=1)] = 1000.0
    """The most that one decision multiplies the ready replicas by."""
    max_scale_down_rate: Annotated[float, Field(gt=1)] = 2.0
    """The most that one decision divides the ready replicas by."""
    activation_scale: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = 1
    """Replicas that there are at least, once there are any."""
    target_burst_capacity: Annotated[float, Field(ge=-1)] = 211.0
    """Requests that must fit at once before the hold queue counts as out of the path; -1: never."""
    scale_to_zero_grace: Annotated[Duration, Field(ge=0, le=3600)] = 30.0
    """How long the last replica stays after it was found idle, unless the hold queue has been in the path as long."""
    last_replica_retention: Annotated[Duration, Field(ge=0, le=3600)] = 0.0
    """How long it stays in any case."""
    scale_down_delay: Annotated[Duration, Field(ge=0, le=3600)] = 0.0
    """Fewer only after fewer were wanted for so long."""

    def resolve(self) -> KpaOptions:
        """Plain numbers."""
        return KpaOptions(
            utilisation=self.target_utilisation, panic_threshold=self.panic_threshold, up_rate=self.max_scale_up_rate,
            down_rate=self.max_scale_down_rate, activation_scale=self.activation_scale,
            burst=self.target_burst_capacity, grace=Seconds(self.scale_to_zero_grace),
            retention=Seconds(self.last_replica_retention), delay=Seconds(self.scale_down_delay),
        )  # fmt: skip


class HpaSpec(Spec):
    """Kubernetes' HorizontalPodAutoscaler on concurrency."""

    sync_period: Annotated[Duration, Field(ge=1, le=600)] = 15.0
    """How often it looks."""
    tolerance: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """A need within this part of what there is changes nothing."""
    stabilisation: Annotated[Duration, Field(ge=0, le=3600)] = 300.0
    """Down only to the most that was wanted in so long."""

    def resolve(self) -> HpaOptions:
        """Plain numbers."""
        return HpaOptions(
            sync=Seconds(self.sync_period), tolerance=self.tolerance, stabilisation=Seconds(self.stabilisation)
        )


class KedaSpec(HpaSpec):
    """KEDA, and the HPA that it drives."""

    polling_interval: Annotated[Duration, Field(ge=0.1, le=600)] = 0.5
    """How often activity is looked at: the HTTP add-on's 500 ms; 30 s is KEDA's own for other sources."""
    activation: Annotated[float, Field(ge=0)] = 0.0
    """Requests above which the model is active."""
    cooldown: Annotated[Duration, Field(ge=0, le=86400)] = 300.0
    """From the last activity to `minReplicas`."""

    def resolve(self) -> KedaOptions:  # type: ignore[override] # another policy's options
        """Plain numbers."""
        return KedaOptions(
            polling=Seconds(self.polling_interval), activation=self.activation, cooldown=Seconds(self.cooldown),
            hpa=super().resolve(),
        )  # fmt: skip


class ConcurrencySpec(Spec):
    """KubeAI's moving average of active requests."""

    interval: Annotated[Duration, Field(ge=1, le=600)] = 10.0
    """How often they are counted."""
    window: Annotated[Duration, Field(ge=1, le=3600)] = 600.0
    """Over how long their mean is taken."""
    scale_down_delay: Annotated[Duration, Field(ge=0, le=3600)] = 30.0
    """How long fewer must be wanted."""

    def resolve(self) -> ConcurrencyOptions:
        """Plain numbers."""
        window = max(self.window, self.interval)
        return ConcurrencyOptions(
            interval=Seconds(self.interval), window=Seconds(window), delay=Seconds(self.scale_down_delay)
        )


OptionsSpec = RelumeSpec | KpaSpec | HpaSpec | KedaSpec | ConcurrencySpec

OPTIONS: Final[Mapping[str, type[OptionsSpec]]] = {
    "relume": RelumeSpec, "kpa": KpaSpec, "hpa": HpaSpec, "keda": KedaSpec, "concurrency": ConcurrencySpec,
}  # fmt: skip
"""The options of the policies that have some."""


def read_options(policy: str, given: Mapping[str, Any]) -> Options | None:
    """Plain numbers of a policy's options. ValueError names the option, its rule and what there is."""
    spec = OPTIONS.get(policy)
    if spec is None:
        if given:
            raise ValueError(f"policyOptions: {policy} has none; leave them out, or name another policy")
        return None
    known = [field.alias or name for name, field in spec.model_fields.items()]
    unknown = next((key for key in given if key not in known), None)
    if unknown is not None:
        raise ValueError(f"policyOptions: {policy} has no {unknown}; it has {', '.join(known)}")
    try:
        return spec.model_validate(given).resolve()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"policyOptions: {first['loc'][0]} (is {first['input']!r}): {first['msg']}") from error


class ScheduleSpec(Spec):
    """At certain times there are at least so many replicas."""

    cron: Annotated[str, Field(max_length=200)]
    """When it begins: minute, hour, day of the month, month, day of the week, such as ``0 8 * * MON-FRI``."""
    timezone: Annotated[str, Field(max_length=64)] = "UTC"
    """Whose clock that is: an IANA name such as Europe/Berlin."""
    min_replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)]
    """Replicas that there are at least."""
    duration: Annotated[Duration, Field(ge=60, le=604800)]
    """For how long from then."""

    @field_validator("cron")
    @classmethod
    def _is_cron(cls, text: str) -> str:
        if len(text.split()) != 5:
            raise ValueError(f"{text!r} has {len(text.split())} fields; cron has five: minute hour day month weekday")
        try:
            next(CronSim(text, datetime.fromisoformat(_CHECKED_FROM)))
        except (CronSimError, StopIteration) as error:
            why = str(error) or "it never comes"
            raise ValueError(f"{text!r} is no time of cron: {why}; write such as 0 8 * * MON-FRI") from error
        return text

    @field_validator("timezone")
    @classmethod
    def _is_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError(f"there is no time zone {name!r}; write an IANA name such as Europe/Berlin") from error
        return name

    def resolve(self) -> SchedulePolicy:
        """Plain numbers."""
        return SchedulePolicy(
            cron=self.cron, timezone=self.timezone, min_replicas=self.min_replicas, duration=Seconds(self.duration)
        )
