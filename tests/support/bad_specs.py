"""Bad values in the full document of `tests.support.specs`: (path, value, where it is told, rule, remedy, id).

A rule or remedy of None is not compared. `BEYOND_SCHEMA` are those that only the program sees, not the JSON Schema.
"""

from __future__ import annotations

import pytest

NAME = "use lower case letters, digits and hyphens, at most 63, beginning and ending with a letter or digit"
FORM = "the text has a form that is not allowed here"
_DURATION = "write a number and a unit, such as 500ms, 90s, 5m, 1h30m"
_ALIAS = "use letters, digits and . _ : - in parts joined by single slashes"
_ENGINES = "must be 'llamacpp', 'simulated' or 'command'"

Row = tuple[str, object, str, str | None, str | None]

ROWS: dict[str, Row] = {
    "version": (
        "apiVersion",
        "v1",
        "apiVersion",
        "this apiVersion is not known",
        "write apiVersion: relume.dev/v1alpha1",
    ),
    "kind": ("kind", "Modle", "kind", "there is no kind 'Modle'", "write kind: Model"),
    "name": ("metadata.name", "Echo", "metadata.name", FORM, NAME),
    "metadata-field": ("metadata.nam", "x", "metadata.nam", "there is no field nam here", "did you mean name?"),
    "label": ("metadata.labels", {"a": 1}, "metadata.labels.a", "must be text", "put it in quotes"),
    "label-key": (
        "metadata.labels",
        {"a b": "c"},
        "metadata.labels.a b",
        FORM,
        "use Kubernetes' form: letters, digits and . _ -, at most 63",
    ),
    "engine": ("spec.engine.type", "llamacp", "spec.engine.type", _ENGINES, "did you mean llamacpp?"),
    "sleep": (
        "spec.coldStart.sleep",
        {"level": 1},
        "spec.coldStart.sleep.level",
        "this engine, as it is declared, cannot sleep at level 1",
        "leave coldStart.sleep out",
    ),
    "adapters": (
        "spec.engine",
        {"type": "command", "options": {"command": ["serve", "{port}"]}},
        "spec.weights.adapters",
        "the command is not given them",
        "name {adapters} in it, as in --lora-modules {adapters}",
    ),
    "engine-type": ("spec.engine.type", 7, "spec.engine.type", _ENGINES, "write one of these"),
    "option": (
        "spec.engine.options.thread",
        1,
        "spec.engine.options.thread",
        "there is no field thread here",
        "did you mean threads?",
    ),
    "option-bound": (
        "spec.engine.options.threads",
        0,
        "spec.engine.options.threads",
        "must be at least 1",
        "write 1 or more",
    ),
    "weights-user": (
        "spec.weights.uri",
        "https://me:word@host/m.gguf",
        "spec.weights.uri",
        "an address holds no user and no password",
        "write credentials: env:NAME or file:/path",
    ),
    "weights": ("spec.weights.uri", "", "spec.weights.uri", "must have at least 1 characters", "write it out"),
    "no-such-field": ("spec.replicas", 3, "spec.replicas", "there is no field replicas here", None),
    "near": (
        "spec.scaling.maxReplica",
        3,
        "spec.scaling.maxReplica",
        "there is no field maxReplica here",
        "did you mean maxReplicas?",
    ),
    "snake": (
        "spec.scaling.max_replicas",
        3,
        "spec.scaling.max_replicas",
        "there is no field max_replicas here",
        "did you mean maxReplicas?",
    ),
    "min-max": (
        "spec.scaling.minReplicas",
        6,
        "spec.scaling",
        "minReplicas 6 is above maxReplicas 5",
        "lower one or raise the other",
    ),
    "fraction": (
        "spec.scaling.minReplicas",
        1.5,
        "spec.scaling.minReplicas",
        "must be a whole number",
        "write digits only, without quotes, point or unit",
    ),
    "negative": ("spec.scaling.minReplicas", -1, "spec.scaling.minReplicas", "must be at least 0", "write 0 or more"),
    "target": (
        "spec.scaling.target",
        9,
        "spec.scaling.target",
        "target is above slots (8): no replica could ever carry it",
        "write 8 or less, or raise spec.slots",
    ),
    "policy": (
        "spec.scaling.policy",
        "kpa2",
        "spec.scaling.policy",
        "there is no policy of this name",
        "write relume, kpa, keda, hpa, keepalive, concurrency, hybrid-histogram, or module:function",
    ),
    "unit": ("spec.scaling.keepAlive", 300, "spec.scaling.keepAlive", "300 has no unit", "write 300s for seconds"),
    "duration": (
        "spec.scaling.keepAlive",
        "5 minutes",
        "spec.scaling.keepAlive",
        "'5 minutes' is not a duration",
        _DURATION,
    ),
    "duration-of-ages": (
        "spec.scaling.keepAlive",
        "999999999d",
        "spec.scaling.keepAlive",
        "'999999999d' is longer than ten years",
        "write 3650d or less",
    ),
    "windows": (
        "spec.scaling.stableWindow",
        "5s",
        "spec.scaling",
        "panicWindow is longer than stableWindow",
        "make it shorter",
    ),
    "quantity": (
        "spec.resources.memory",
        "16GB",
        "spec.resources.memory",
        "'16GB' is not a quantity",
        "write a number and a unit, such as 512Mi, 16Gi, 2G",
    ),
    "two-kinds-of-gpu": (
        "spec.resources.gpuFraction",
        0.5,
        "spec.resources",
        "gpus and gpuFraction are given together",
        "keep one",
    ),
    "mig-profile": (
        "spec.resources",
        {"migProfile": "1g.11gb"},
        "spec.resources.migProfile",
        "no known card has such a MIG profile",
        (
            "did you mean 1g.10gb (A100-40GB, A100-80GB, H100-80GB)? nvidia-smi mig -lgip lists a card's own; "
            "one that relume does not know yet is taken where a node's card has it (relume gpus)"
        ),
    ),
    "text-is-no-number": ("spec.slots", "4", "spec.slots", "must be a whole number", None),
    "bool-is-no-number": ("spec.resources.cpu", True, "spec.resources.cpu", "must be a number", None),
    "negative-bytes": (
        "spec.coldStart.hold.maxBytes",
        -5,
        "spec.coldStart.hold.maxBytes",
        "must be at least 0",
        "write 0 or more",
    ),
    "no-heartbeat": ("spec.coldStart.heartbeat", "0s", "spec.coldStart.heartbeat", "must be more than 0", "write more"),
    "no-time": ("spec.timeouts.total", "0s", "spec.timeouts.total", "must be more than 0", "write more"),
    "idle": (
        "spec.timeouts.idle",
        "9m",
        "spec.timeouts.idle",
        "idle is longer than timeouts.total, so it can never run out",
        "make it shorter, or timeouts.total longer",
    ),
    "slo": (
        "spec.slo.latency.p50",
        "25s",
        "spec.slo.latency.p50",
        "p50 is longer than p95, which cannot be",
        "let the promises grow with the percentile",
    ),
    "availability": ("spec.slo.availability", 100, "spec.slo.availability", "must be less than 100", "write less"),
    "alias-list": ("spec.aliases", "gpt", "spec.aliases", "must be a list", "write [a, b] or one `- item` a line"),
    "alias-form": ("spec.aliases", ["a//b"], "spec.aliases[0]", FORM, _ALIAS),
    "alias-own": ("spec.aliases", ["full"], "spec.aliases[0]", "this alias is the model's own name", "leave it out"),
    "alias-twice": ("spec.aliases", ["a", "b", "a"], "spec.aliases[2]", "this alias is given twice", "keep one"),
    "spec-list": ("spec", [1], "spec", "must be a mapping of fields", "write fields below it, indented"),
}

BEYOND_SCHEMA = frozenset(
    {
        "duration-of-ages",
        "mig-profile",
        "min-max",
        "target",
        "policy",
        "windows",
        "idle",
        "no-time",
        "no-heartbeat",
        "slo",
        "weights-user",
        "alias-own",
        "alias-twice",
        "two-kinds-of-gpu",
        "sleep",
        "adapters",
    }
)
"""Rules between fields, and bounds of durations: JSON Schema cannot say them of text."""

BAD = [pytest.param(*row, id=name) for name, row in ROWS.items()]
