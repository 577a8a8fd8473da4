"""The document that declares a model: the packages' slices put together, and the rules between them."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, ValidationError, ValidationInfo, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from autoscaler.policy_spec import OWN_PATTERN
from autoscaler.policy_spec import POLICIES as POLICIES  # noqa: PLC0414 - who checks declarations elsewhere has it from here
from autoscaler.spec import ScalingSpec
from coldstart.spec import ColdStartSpec, WeightsSpec
from deploy.spec.document import MetadataSpec, broken_rule
from deploy.spec.mig import mig_rules
from deploy.spec.pod import PodSpec, ScaleTargetSpec
from deploy.spec.policy import ModelPolicy, Objectives, Percentiles
from events.names import ModelName, ReplicaName
from events.spec import Duration, Spec
from events.units import Seconds
from preemption.spec import Priority, ResourcesSpec
from runtime.adapters.registry import engine_for, options_model
from runtime.ports import LaunchRequest
from runtime.spec import BatchingSpec, EngineSpec, EngineType, Slots, TimeoutsSpec

ALIAS_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:-]*(/[A-Za-z0-9][A-Za-z0-9._:-]*)*$"
"""Names as hubs and clients write them: ``gpt-4o``, ``HuggingFaceTB/SmolLM2-135M-Instruct``."""

Alias = Annotated[str, StringConstraints(pattern=ALIAS_PATTERN, max_length=200)]
PositiveDuration = Annotated[Duration, Field(gt=0)]


class PercentilesSpec(Spec):
    """Most seconds that the given share of requests may take."""

    p50: PositiveDuration | None = None
    """Half of the requests."""
    p95: PositiveDuration | None = None
    """95 of 100 requests."""
    p99: PositiveDuration | None = None
    """99 of 100 requests."""

    def resolve(self) -> Percentiles:
        """Plain numbers."""
        given = ((0.5, self.p50), (0.95, self.p95), (0.99, self.p99))
        return tuple((quantile, Seconds(most)) for quantile, most in given if most is not None)


class SloSpec(Spec):
    """What the owner promises. Measured against it in `relume explain` and in the metrics."""

    time_to_first_token: PercentilesSpec = PercentilesSpec()
    """Arrival to the first byte of the answer."""
    latency: PercentilesSpec = PercentilesSpec()
    """Arrival to the last byte of the answer."""
    availability: Annotated[float, Field(gt=0, lt=100)] | None = None
    """Percent of requests that are answered without an error of ours, such as 99.9."""

    def resolve(self) -> Objectives:
        """Plain numbers; availability as a fraction."""
        return Objectives(
            time_to_first_token=self.time_to_first_token.resolve(),
            latency=self.latency.resolve(),
            availability=None if self.availability is None else round(self.availability / 100, 9),
        )


def _engine_with_options(engine: EngineSpec) -> EngineSpec:
    """Let the engine check its own options, and keep them as it writes them (``0.5s`` becomes ``500ms``)."""
    try:
        checked = options_model(engine.type).model_validate_json(json.dumps(engine.options), strict=True)
    except ValidationError as error:
        details = [_below(("options",), one) for one in error.errors(include_url=False)]
        raise ValidationError.from_exception_data("options", details) from None
    written = checked.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return engine.model_copy(update={"options": written})


def _below(prefix: tuple[str | int, ...], error: object) -> InitErrorDetails:
    """One of pydantic's errors again, `prefix` further down."""
    assert isinstance(error, dict)
    return InitErrorDetails(
        type=PydanticCustomError(error["type"], "{text}", {**error.get("ctx", {}), "text": error["msg"]}),
        loc=(*prefix, *error["loc"]),
        input=error["input"],
    )


class ModelSpec(Spec):
    """How the model runs and scales."""

    engine: Annotated[EngineSpec, AfterValidator(_engine_with_options)]
    """What runs the model."""
    weights: WeightsSpec | None = None
    """Where its weights are; llamacpp needs them."""
    resources: ResourcesSpec = ResourcesSpec()
    """What one replica needs of the machine."""
    priority: Priority = 100
    """Who goes first when there is too little; only strictly lower ones yield."""
    slots: Slots = 4
    """Requests that one replica runs at the same time; sets the engine's parallelism."""
    batching: BatchingSpec | None = None
    """Single requests are gathered into batches before the engine; left out: they are not. On a local cluster only."""
    scaling: ScalingSpec = ScalingSpec()
    """How many replicas, and how they follow demand."""
    cold_start: ColdStartSpec = ColdStartSpec()
    """What a request that finds no replica may expect."""
    timeouts: TimeoutsSpec = TimeoutsSpec()
    """Budgets of one request, from its dispatch to a replica."""
    slo: SloSpec = SloSpec()
    """What the owner promises."""
    aliases: Annotated[tuple[Alias, ...], Field(max_length=100)] = ()
    """Other names that requests may use, also with slashes; never the name of a model."""
    pod: PodSpec | None = None
    """On Kubernetes: how a replica becomes a pod. Not read elsewhere."""
    scale_target_ref: ScaleTargetSpec | None = None
    """On Kubernetes: an object that exists already, such as a Deployment, is scaled instead. Not read elsewhere."""


class Model(Spec):
    """A model that relume serves: declared once, woken by its first request."""

    api_version: Literal["relume.dev/v1alpha1"]
    """The version of this document's form."""
    kind: Literal["Model"]
    """What is declared."""
    metadata: MetadataSpec
    """Who the model is."""
    spec: ModelSpec
    """How the model runs and scales."""

    @model_validator(mode="after")
    def _rules_between_fields(self, info: ValidationInfo) -> Self:
        broken = [
            *_engine_rules(self.spec),
            *_adapter_rules(self.spec),
            *_sleep_rules(self.spec),
            *mig_rules(self.spec.resources, info),
            *_pod_rules(self.spec),
            *_scaling_rules(self.spec),
            *_time_rules(self.spec),
            *_alias_rules(self),
        ]
        if broken:
            raise ValidationError.from_exception_data("Model", broken)
        return self

    def resolve(self) -> ModelPolicy:
        """Plain numbers, all of them."""
        spec = self.spec
        return ModelPolicy(
            model=ModelName(self.metadata.name),
            labels=self.metadata.labels,
            annotations=self.metadata.annotations,
            engine=spec.engine.type,
            options=spec.engine.options,
            weights=None if spec.weights is None else spec.weights.resolve_all(),
            resources=spec.resources.resolve(),
            priority=spec.priority,
            slots=spec.slots,
            batching=None if spec.batching is None else spec.batching.resolve(),
            scaling=spec.scaling.resolve(slots=spec.slots, priority=spec.priority),
            cold_start=spec.cold_start.resolve(),
            timeouts=spec.timeouts.resolve(),
            objectives=spec.slo.resolve(),
            aliases=spec.aliases,
        )


def _engine_rules(spec: ModelSpec) -> list[InitErrorDetails]:
    if spec.engine.type is EngineType.LLAMACPP and spec.weights is None:
        rule = "engine llamacpp loads a file and none is named"
        return [broken_rule(("spec", "weights"), None, rule, "add weights: {uri: /path/to/model.gguf}")]
    return []


def _adapter_rules(spec: ModelSpec) -> list[InitErrorDetails]:
    """What is declared is given to the engine: a command names its adapters where there are any."""
    command = spec.engine.options.get("command", ())
    given = "{adapters}" in command
    has = spec.weights is not None and bool(spec.weights.adapters)
    if spec.engine.type is not EngineType.COMMAND or given is has:
        return []
    if has:
        path: tuple[str | int, ...] = ("spec", "weights", "adapters")
        rule, remedy = "the command is not given them", "name {adapters} in it, as in --lora-modules {adapters}"
    else:
        path = ("spec", "engine", "options", "command")
        rule, remedy = "it names {adapters}, and the model has none", "add weights.adapters, or leave it out"
    return [broken_rule(path, None, rule, remedy, "spec.engine" if has else "spec.weights")]


def _sleep_rules(spec: ModelSpec) -> list[InitErrorDetails]:
    """The engine, as it is declared, can sleep at that level."""
    if spec.cold_start.sleep is None:
        return []
    level = spec.cold_start.sleep.level
    resources = spec.resources.resolve()
    part = resources.gpu_fraction or resources.gpu_bytes or resources.mig_profile
    cards = max(resources.gpus, 1 if part else 0)
    adapters = tuple((one.name, "") for one in spec.weights.adapters) if spec.weights is not None else ()
    asked = LaunchRequest(
        ModelName("any"), ReplicaName("any-r1-0"), "localhost", 1, spec.slots, gpus=("0",) * cards,
        options=spec.engine.options, adapters=adapters,
    )  # fmt: skip
    levels = [way.level for way in engine_for(spec.engine.type).abilities(asked).sleeps]
    if level in levels:
        return []
    rule = f"this engine, as it is declared, cannot sleep at level {level}"
    remedy = f"write level: {' or '.join(map(str, levels))}" if levels else "leave coldStart.sleep out"
    return [broken_rule(("spec", "coldStart", "sleep", "level"), level, rule, remedy, "spec.engine")]


def _pod_rules(spec: ModelSpec) -> list[InitErrorDetails]:
    if spec.pod is not None and spec.scale_target_ref is not None:
        rule = "pod and scaleTargetRef both say what a replica is on Kubernetes"
        return [broken_rule(("spec", "scaleTargetRef"), spec.scale_target_ref.name, rule, "keep one", "spec.pod")]
    return []


def _scaling_rules(spec: ModelSpec) -> list[InitErrorDetails]:
    broken, scaling = [], spec.scaling
    if scaling.target is not None and scaling.target > spec.slots:
        rule = f"target is above slots ({spec.slots}): no replica could ever carry it"
        remedy = f"write {spec.slots} or less, or raise spec.slots"
        broken.append(broken_rule(("spec", "scaling", "target"), scaling.target, rule, remedy, "spec.slots"))
    if scaling.policy not in POLICIES and OWN_PATTERN.fullmatch(scaling.policy) is None:
        rule = "there is no policy of this name"
        remedy = f"write {', '.join(POLICIES)}, or module:function"
        broken.append(broken_rule(("spec", "scaling", "policy"), scaling.policy, rule, remedy))
    untold = spec.engine.type is EngineType.COMMAND and not spec.engine.options.get("metricsPath")
    for index, signal in enumerate(scaling.signals if untold else ()):
        if signal.engine is not None:
            where = ("spec", "scaling", "signals", index, "engine", "metric")
            rule = "the engine, as it is declared, tells no numbers"
            remedy = "name its metricsPath in spec.engine.options"
            broken.append(broken_rule(where, signal.engine.metric.value, rule, remedy, "spec.engine"))
    return broken


def _time_rules(spec: ModelSpec) -> list[InitErrorDetails]:
    broken, timeouts = [], spec.timeouts
    for field, name in (("first_byte", "firstByte"), ("idle", "idle")):
        seconds = getattr(timeouts, field)
        if field in timeouts.model_fields_set and seconds > timeouts.total:
            rule = f"{name} is longer than timeouts.total, so it can never run out"
            remedy = "make it shorter, or timeouts.total longer"
            broken.append(broken_rule(("spec", "timeouts", name), seconds, rule, remedy, "spec.timeouts.total"))
    for field, name in (("time_to_first_token", "timeToFirstToken"), ("latency", "latency")):
        promised = getattr(spec.slo, field).resolve()
        for (low, less), (high, more) in pairwise(promised):
            if less > more:
                rule = f"p{low * 100:g} is longer than p{high * 100:g}, which cannot be"
                remedy = "let the promises grow with the percentile"
                broken.append(broken_rule(("spec", "slo", name, f"p{low * 100:g}"), less, rule, remedy))
    return broken


def _alias_rules(model: Model) -> list[InitErrorDetails]:
    broken, seen = [], set()
    for index, alias in enumerate(model.spec.aliases):
        path = ("spec", "aliases", index)
        if alias == model.metadata.name:
            broken.append(broken_rule(path, alias, "this alias is the model's own name", "leave it out"))
        elif alias in seen:
            broken.append(broken_rule(path, alias, "this alias is given twice", "keep one"))
        seen.add(alias)
    return broken
