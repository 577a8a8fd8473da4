"""Live policies as they are typed: `NAME`, `NAME(value)`, `NAME:key=value,…`, and `module.path:function`.

What a key may be is what `spec.scaling` and its `policyOptions` have; so what is simulated can be declared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from autoscaler.core.policy import Objective, ScalingPolicy
from autoscaler.policy_spec import OPTIONS, OWN_PATTERN, POLICIES
from autoscaler.slo_spec import promising
from autoscaler.spec import ScalingSpec
from deploy.simulation.naming import SHAPE, BadPolicy
from deploy.simulation.setting import Setting
from events.units import Seconds, parse_duration

ORACLE: Final = "oracle"

MAIN: Final[Mapping[str, str]] = {
    "relume": "coldStartCost", "keepalive": "keepAlive", "kpa": "stableWindow", "keda": "cooldown",
    "hpa": "stabilisation", "concurrency": "window",
}  # fmt: skip
"""What `NAME(value)` sets."""

FIELDS: Final = (
    "minReplicas", "maxReplicas", "target", "keepAlive", "coldStartCost", "stableWindow", "panicWindow", "slo",
)  # fmt: skip
"""Of `spec.scaling`, what any policy may be given; and `slo`, the promised time to the first token of 95 of 100."""

PROMISED: Final = 0.95
"""The part of answers for which the simulation's `slo` is promised: as `slo.timeToFirstToken.p95` would."""


@dataclass(frozen=True, slots=True)
class Typed:
    """A policy as it was typed, and the part of a declaration that it means."""

    text: str
    name: str
    scaling: Mapping[str, object]

    def resolve(self, setting: Setting, priority: int = 100) -> ScalingPolicy:
        """Plain numbers. Raises BadPolicy."""
        given = {"maxReplicas": setting.max_replicas, **self.scaling, "policy": self.name}
        slo = self._slo(given.pop("slo", None), setting)
        if self.name == ORACLE:
            given["policy"] = "relume"
        try:
            policy = ScalingSpec.model_validate(given).resolve(slots=setting.slots, priority=priority)
        except ValidationError as error:
            raise BadPolicy(f"{self.text!r}: {_words(error)}") from error
        if policy.target > setting.slots:
            raise BadPolicy(f"{self.text!r}: target {policy.target:g} is above slots {setting.slots}")
        objectives = (Objective(part=PROMISED, within=slo),) if slo else ()
        return replace(promising(policy, objectives, target_given="target" in given), name=self.name)

    def _slo(self, given: object, setting: Setting) -> Seconds:
        if given is None:
            return setting.slo
        try:
            return parse_duration(str(given))
        except ValueError as error:
            raise BadPolicy(f"{self.text!r}: slo: {error}") from error


def read_typed(text: str) -> Typed:
    """The policy that is meant. Raises BadPolicy."""
    if OWN_PATTERN.fullmatch(text):
        return Typed(text, text, {})
    shape = SHAPE.fullmatch(text)
    if shape is None:
        raise BadPolicy(f"{text!r} is not a policy; write NAME, NAME(value), NAME:key=value,… or module.path:function")
    name = shape["name"]
    if name not in (*POLICIES, ORACLE):
        known = ", ".join((*POLICIES, ORACLE))
        raise BadPolicy(f"{text!r}: there is no policy {name!r}; one of {known}, or module.path:function")
    scaling: dict[str, object] = {}
    options: dict[str, object] = {}
    for key, value in _pairs(text, name, shape["value"], shape["pairs"]):
        where = scaling if key in FIELDS else options
        if key not in FIELDS and key not in option_names(name):
            every = ", ".join((*FIELDS, *option_names(name)))
            raise BadPolicy(f"{text!r}: {name} has no option {key!r}; it has {every}")
        if key in where:
            raise BadPolicy(f"{text!r} sets {key} twice; leave one out")
        where[key] = number_or_text(value)
    if options:
        scaling["policyOptions"] = options
    return Typed(text, name, scaling)


def option_names(policy: str) -> tuple[str, ...]:
    """What `policyOptions` of this policy may have."""
    spec = OPTIONS.get(policy)
    return () if spec is None else tuple(to_camel(name) for name in spec.model_fields)


def number_or_text(value: str) -> object:
    """A number where it is one; durations stay as they are written."""
    try:
        number = float(value)
    except ValueError:
        return value
    return int(number) if number.is_integer() and "." not in value else number


def _pairs(text: str, name: str, value: str | None, pairs: str | None) -> list[tuple[str, str]]:
    if value is not None:
        if name not in MAIN:
            raise BadPolicy(f"{text!r}: {name} takes no value; write {name}")
        return [(MAIN[name], value)]
    found: list[tuple[str, str]] = []
    for pair in (pairs or "").split(","):
        if pair:
            key, _, given = pair.partition("=")
            found.append((key, given))
    return found


def _words(error: ValidationError) -> str:
    first: Any = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else str(first["msg"])
