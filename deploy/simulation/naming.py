"""Policies as they are typed: `NAME`, `NAME(value)`, `NAME:key=value,…`, and `module.path:function` for one's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from autoscaler.core.grains.histogram import HybridHistogram
from autoscaler.core.grains.peers import Concurrency, Hpa, Keda, KeepAlive, Knative
from autoscaler.core.grains.policy import GrainPolicy, Relume, RelumeByMemory
from deploy.simulation.budgeting import RelumeWithin
from deploy.simulation.own import OwnPolicy
from events.units import Seconds, parse_duration

AnyPolicy = GrainPolicy[Any]
"""Each has a state of its own, which only itself looks into."""


class BadPolicy(ValueError):
    """It cannot be read as a policy. The message says what would be right."""


@dataclass(frozen=True, slots=True)
class Foreseeing:
    """The oracle, which is made anew for each model: it must know what will be needed."""


Made = AnyPolicy | Foreseeing | RelumeByMemory
"""The last two are made anew for each model, of what is known of it."""

Named = Made | RelumeWithin
"""Whatever can be typed. A budget is over all models, so it is no policy of one."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A policy that has a name: how it is made from its options, and which option `NAME(value)` sets."""

    make: Callable[..., Named]
    options: Mapping[str, str]
    main: str = ""


def _ours(
    cold_start_cost: Seconds | None = None, idle_gb: Seconds | None = None, budget: float | None = None,
    keep_alive: Seconds | None = None,
) -> Named:  # fmt: skip
    if sum(one is not None for one in (cold_start_cost, idle_gb, budget)) > 1:
        raise ValueError("coldStartCost, idleGb and budget each say how much is held; leave the others out")
    if budget is not None:
        return RelumeWithin(budget) if keep_alive is None else RelumeWithin(budget, keep_alive)
    if keep_alive is not None:
        raise ValueError("keepAlive is what a budget is a share of; write relume:budget=0.6,keepAlive=5m")
    if cold_start_cost is not None:
        return Relume(cold_start_cost)
    return RelumeByMemory() if idle_gb is None else RelumeByMemory(idle_gb)


_OURS: Final = {"coldStartCost": "cold_start_cost", "idleGb": "idle_gb", "budget": "budget", "keepAlive": "keep_alive"}

KNOWN: Final[Mapping[str, _Known]] = {
    "relume": _Known(_ours, _OURS, "coldStartCost"),
    "keepalive": _Known(KeepAlive, {"keep": "keep"}, "keep"),
    "kpa": _Known(Knative, {"stableWindow": "stable_window", "grace": "grace"}, "stableWindow"),
    "keda": _Known(Keda, {"cooldown": "cooldown"}, "cooldown"),
    "hpa": _Known(Hpa, {"stabilisation": "stabilisation"}, "stabilisation"),
    "hybrid-histogram": _Known(HybridHistogram, {}),
    "concurrency": _Known(Concurrency, {"window": "window"}, "window"),
    "oracle": _Known(Foreseeing, {}),
}
"""All options are durations, but for those of `_SHARES`."""

_SHARES: Final = frozenset({"budget"})

SHAPE: Final = re.compile(r"(?P<name>[a-z][a-z0-9-]*)(?:\((?P<value>[^()]*)\)|:(?P<pairs>[^:()]*=[^()]*))?")
_OWN: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_NEEDS_VALUE: Final = frozenset({"keepalive"})


def read_policy(text: str) -> Named:
    """The policy that is meant. Raises BadPolicy."""
    if _OWN.fullmatch(text):
        return OwnPolicy(text)
    shape = SHAPE.fullmatch(text)
    if shape is None:
        raise BadPolicy(f"{text!r} is not a policy; write NAME, NAME(value), NAME:key=value,… or module.path:function")
    name = shape["name"]
    if name not in KNOWN:
        raise BadPolicy(f"{text!r}: there is no policy {name!r}; one of {', '.join(KNOWN)}, or module.path:function")
    known = KNOWN[name]
    given = _given(text, known, shape)
    if name in _NEEDS_VALUE and not given:
        raise BadPolicy(f"{text!r} does not say how long; write {name}(5m)")
    try:
        return known.make(**given)
    except ValueError as error:
        raise BadPolicy(f"{text!r}: {error}") from error


def _given(text: str, known: _Known, shape: re.Match[str]) -> dict[str, float]:
    if shape["value"] is not None:
        if not known.main:
            raise BadPolicy(f"{text!r}: {shape['name']} takes no value; write {shape['name']}")
        return {known.options[known.main]: _duration(text, known.main, shape["value"])}
    given: dict[str, float] = {}
    for pair in (shape["pairs"] or "").split(","):
        if not pair and not shape["pairs"]:
            continue
        key, _, value = pair.partition("=")
        if key not in known.options:
            options = ", ".join(known.options) or "none"
            raise BadPolicy(f"{text!r}: {shape['name']} has no option {key!r}; it has {options}")
        if known.options[key] in given:
            raise BadPolicy(f"{text!r} sets {key} twice; leave one out")
        given[known.options[key]] = _share(text, key, value) if key in _SHARES else _duration(text, key, value)
    return given


def _duration(text: str, key: str, value: str) -> Seconds:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise BadPolicy(f"{text!r}: {key}: {error}") from error


def _share(text: str, key: str, value: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?", value):
        raise BadPolicy(f"{text!r}: {key}: {value!r} is not a number such as 0.96")
    return float(value)
