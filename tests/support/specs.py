"""Documents for tests of the declaration: the smallest, and one that says everything."""

from __future__ import annotations

import copy
from typing import Any

Document = dict[str, Any]


def smallest(name: str = "echo") -> Document:
    """A document with nothing but what is needed."""
    return {
        "apiVersion": "relume.dev/v1alpha1",
        "kind": "Model",
        "metadata": {"name": name},
        "spec": {"engine": {"type": "simulated"}},
    }


FULL: Document = {
    "apiVersion": "relume.dev/v1alpha1",
    "kind": "Model",
    "metadata": {"name": "full", "labels": {"team": "search"}, "annotations": {"relume.dev/note": "by hand"}},
    "spec": {
        "engine": {"type": "llamacpp", "options": {"contextPerSlot": 4096, "threads": 2}},
        "weights": {
            "uri": "s3://models/full/", "digest": f"sha256:{'1' * 64}", "include": ["*.gguf"], "exclude": ["old/"],
            "credentials": "env:MODELS_KEY", "headers": {"X-Team": "file:/run/team"}, "endpoint": "http://store:9000",
            "region": "here", "cache": True, "adapters": [{"name": "sql", "uri": "hf://org/sql-lora@main"}],
        },
        "resources": {"gpus": 1, "cpu": 2.5, "memory": "16Gi"},
        "priority": 120,
        "slots": 8,
        "batching": {"rule": "fixed", "window": "30ms", "maxSize": 16, "latency": "2s"},
        "scaling": {
            "minReplicas": 1, "maxReplicas": 5, "target": 6, "keepAlive": "7m", "stableWindow": "90s",
            "panicWindow": "9s", "policy": "kpa", "policyOptions": {"panicThreshold": 1.5}, "mode": "recommend",
            "schedules": [{"cron": "0 8 * * 1-5", "timezone": "Europe/Berlin", "minReplicas": 2, "duration": "10h"}],
            "signals": [{"name": "queue", "target": 3}, {"kafkaLag": {"topic": "orders", "group": "workers"}}],
        },
        "coldStart": {
            "sla": "4s", "hold": {"maxRequests": 500, "maxBytes": "32Mi", "maxWait": "3m"}, "heartbeat": "6s",
        },
        "timeouts": {"firstByte": "50s", "idle": "70s", "total": "8m"},
        "slo": {
            "timeToFirstToken": {"p50": "1s", "p95": "2s", "p99": "3s"},
            "latency": {"p50": "10s", "p95": "20s", "p99": "30s"},
            "availability": 99.9,
        },
        "aliases": ["org/full", "gpt-4o"],
    },
}  # fmt: skip


def full() -> Document:
    """A copy of FULL to change."""
    return copy.deepcopy(FULL)


FULL_TRAINING: Document = {
    "apiVersion": "relume.dev/v1alpha1",
    "kind": "TrainingJob",
    "metadata": {"name": "full", "labels": {"team": "search"}, "annotations": {"relume.dev/note": "by hand"}},
    "spec": {
        "command": ["torchrun", "train.py"],
        "environment": {"LR": "3e-4"},
        "folder": "/data/runs",
        "resources": {"gpus": 1, "cpu": 4, "memory": "16Gi"},
        "members": 8,
        "elasticity": {"minMembers": 4},
        "priority": 10,
        "preemption": {"protected": True, "minRuntime": "10m", "budgetPerHour": 2},
        "maxFailures": 3,
        "checkpoint": {
            "channels": ["file", "signal"], "signal": "SIGUSR2", "ackTimeout": "5s", "saveTimeout": "3m",
            "grace": "1m",
        },
    },
}  # fmt: skip


def smallest_training(name: str = "tune") -> Document:
    """A training job with nothing but what is needed."""
    return {
        "apiVersion": "relume.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {"command": ["python", "train.py"]},
    }


def full_training() -> Document:
    """A copy of FULL_TRAINING to change."""
    return copy.deepcopy(FULL_TRAINING)


FULL_POOL: Document = {
    "apiVersion": "relume.dev/v1alpha1",
    "kind": "GpuPool",
    "metadata": {"name": "full", "labels": {"team": "search"}, "annotations": {"relume.dev/note": "by hand"}},
    "spec": {
        "reserve": {"sharedCards": 0.1, "wholeCards": 0.3},
        "reclaim": {
            "budgetPerHour": 12, "coolDown": "2m", "thrash": "4m", "thrashWindow": "2h", "shrink": "50s", "waiting": 8,
        },
        "settling": {"first": "6s", "growth": 3, "longest": "10m", "patience": 3},
        "aging": {"every": "5m", "most": 20},
        "estimates": {"save": "10s", "restore": "40s", "reclaim": "4s", "drain": "6s", "drainLongest": "4m"},
        "attempts": {
            "stall": "20s", "exit": "4s", "cancel": "50s", "kill": "10s", "empty": "50s", "quarantine": "4m",
            "lost": "50s", "resume": "10m",
        },
        "coldStartCost": "10m",
        "cardUnits": {"H100": 3.5},
        "nodeCalls": {"most": 3, "after": "6s", "deadline": "11m", "pause": "4m"},
    },
}  # fmt: skip


def smallest_pool(name: str = "default") -> Document:
    """A pool with nothing but what is needed."""
    return {"apiVersion": "relume.dev/v1alpha1", "kind": "GpuPool", "metadata": {"name": name}}


def full_pool() -> Document:
    """A copy of FULL_POOL to change."""
    return copy.deepcopy(FULL_POOL)


def put(document: Document, path: str, value: object) -> Document:
    """A copy of `document` with `value` at ``spec.scaling.target``; parents are made as needed."""
    changed = copy.deepcopy(document)
    *parents, last = path.split(".")
    here = changed
    for part in parents:
        here = here.setdefault(part, {})
    here[last] = value
    return changed


def leaves(value: object, path: str = "") -> list[str]:
    """The paths of everything that is not a mapping."""
    if not isinstance(value, dict):
        return [path]
    return [leaf for key, inner in value.items() for leaf in leaves(inner, f"{path}.{key}" if path else key)]
