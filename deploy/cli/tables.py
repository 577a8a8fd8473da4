"""What lists look like: one table a kind, and what of it is told with `-o wide`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from deploy.cli.output import UNKNOWN, age, number

Item = Mapping[str, Any]
Row = Callable[[Item], list[str]]


def _nothing(_: Item) -> list[str]:
    return []


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of one kind. `document`: the kind of the documents that declare its items, if any do. `single`:
    whether one can be asked for by its name."""

    headers: Sequence[str]
    row: Row
    wide_headers: Sequence[str] = ()
    wide_row: Row = _nothing
    document: str = ""
    single: bool = False

    def rows(self, items: Sequence[Item], *, wide: bool) -> tuple[Sequence[str], list[list[str]]]:
        """Headers and rows."""
        if not wide:
            return self.headers, [self.row(item) for item in items]
        return (*self.headers, *self.wide_headers), [[*self.row(item), *self.wide_row(item)] for item in items]

    def document_of(self, item: Item) -> dict[str, Any]:
        """The document that declares an item."""
        metadata = {"name": item["metadata"]["name"]}
        for part in ("labels", "annotations"):
            if item["metadata"].get(part):
                metadata[part] = item["metadata"][part]
        return {
            "apiVersion": "relume.dev/v1alpha1", "kind": self.document, "metadata": metadata, "spec": item["spec"],
        }  # fmt: skip


def _model_row(item: Item) -> list[str]:
    status = item["status"]
    return [
        item["metadata"]["name"], status["state"], f"{status['readyReplicas']}/{status['replicas']}",
        number(status["wish"]), number(status["heldRequests"]), number(status["runningRequests"]), status["reason"],
    ]  # fmt: skip


def _model_wide(item: Item) -> list[str]:
    metadata, spec, status = item["metadata"], item["spec"], item["status"]
    return [
        number(status["granted"]), number(status["shortage"]), str(metadata["revision"]),
        spec.get("engine", {}).get("type", ""), ",".join(spec.get("aliases", [])), status["message"],
    ]  # fmt: skip


def _replica_row(item: Item) -> list[str]:
    status = item["status"]
    return [
        item["metadata"]["name"], item["spec"]["model"], status["state"], status["phase"] or "", str(status["slots"]),
        age(status["createdAt"]), status["reason"],
    ]  # fmt: skip


def _replica_wide(item: Item) -> list[str]:
    spec, status = item["spec"], item["status"]
    return [
        str(spec["revision"]), spec["node"], ",".join(spec["gpus"]), status["address"], number(status["pid"]),
        status["message"],
    ]  # fmt: skip


def _decision_row(item: Item) -> list[str]:
    return [item["time"], item["model"], str(item["replicas"]), ", ".join(item["reasons"])]


def _percent(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else f"{100 * ratio:.1f}%"


def _training_row(item: Item) -> list[str]:
    status = item["status"]
    checkpoint = status["checkpoint"]
    return [
        item["metadata"]["name"], status["state"], f"{status['readyMembers']}/{status['members']}",
        number(status["run"]), number(status["step"]), number(checkpoint["step"] if checkpoint else None),
        age(checkpoint["at"] if checkpoint else None), _percent(status["goodput"]["ratio"]), status["reason"],
    ]  # fmt: skip


def _training_wide(item: Item) -> list[str]:
    metadata, spec, status = item["metadata"], item["spec"], item["status"]
    held = status["emptyAt"] is None  # what its last run had is somebody else's
    gpus = [gpu for one in status["processes"] for gpu in one["gpus"]] if held else []
    return [
        number(status["restarts"]), number(status["failures"]), number(status["preemptions"]),
        str(spec.get("priority", 0)), str(metadata["revision"]), ",".join(gpus), status["message"],
    ]  # fmt: skip


_CAUSES: Final = {"person": "(a person)", "grows": "(to grow)", "cards_gone": "(cards gone)"}
"""Why a job had to end for which nothing is short."""


def _reclaim_row(item: Item) -> list[str]:
    status = item["status"]
    why = status["shortage"] or _CAUSES.get(status["cause"], "")
    return [
        item["metadata"]["name"], status["job"], why, status["state"],
        str(len(status["cards"])), number(status["checkpointStep"]), f"{sum(status['ledger']['lost'].values()):.1f}",
        age(status["since"]),
    ]  # fmt: skip


def _reclaim_wide(item: Item) -> list[str]:
    status = item["status"]
    return [
        ",".join(status["cards"]), status["due"], f"{status['cost']:.1f}", number(status["ledger"]["stepsLost"]),
        status["message"],
    ]  # fmt: skip


def _pool_row(item: Item) -> list[str]:
    status = item["status"]
    settings = status["settings"]
    return [
        item["metadata"]["name"], status["leader"] or UNKNOWN,
        f"{status['budgetLeft']}/{settings['budgetPerHour']:g}", f"{settings['coolDownSeconds']:g}s",
        f"{100 * settings['reserveWholeCards']:g}%", f"{100 * settings['reserveSharedCards']:g}%",
    ]  # fmt: skip


def _pool_wide(item: Item) -> list[str]:
    settings = item["status"]["settings"]
    worth = [
        f"{name.removeprefix('a100s ')}={value:g}" for name, value in settings.items() if name.startswith("a100s ")
    ]
    return [
        f"{settings['settleFirstSeconds']:g}s x{settings['settleGrowth']:g} <={settings['settleLongestSeconds']:g}s",
        f"{settings['saveSeconds']:g}s", f"{settings['restoreSeconds']:g}s", ",".join(worth),
        str(item["metadata"]["revision"]),
    ]  # fmt: skip


TABLES: Final[Mapping[str, Table]] = {
    "models": Table(
        ("NAME", "STATE", "READY", "WISH", "HELD", "RUNNING", "REASON"), _model_row,
        ("GRANTED", "SHORTAGE", "REVISION", "ENGINE", "ALIASES", "MESSAGE"), _model_wide, "Model", single=True,
    ),
    "replicas": Table(
        ("NAME", "MODEL", "STATE", "PHASE", "SLOTS", "AGE", "REASON"), _replica_row,
        ("REVISION", "NODE", "GPUS", "ADDRESS", "PID", "MESSAGE"), _replica_wide,
    ),
    "decisions": Table(("TIME", "MODEL", "REPLICAS", "REASONS"), _decision_row),
    "training": Table(
        ("NAME", "STATE", "MEMBERS", "RUN", "STEP", "SAVED", "AGE", "GOODPUT", "REASON"), _training_row,
        ("RESTARTS", "FAILURES", "PREEMPTIONS", "PRIORITY", "REVISION", "GPUS", "MESSAGE"), _training_wide,
        "TrainingJob", single=True,
    ),
    "reclaims": Table(
        ("ID", "JOB", "FOR", "STATE", "GPUS", "SAVED", "LOST", "AGE"), _reclaim_row,
        ("CARDS", "DUE", "COST", "STEPSLOST", "MESSAGE"), _reclaim_wide, single=True,
    ),
    "pools": Table(
        ("NAME", "LEADER", "BUDGET", "COOLDOWN", "RESERVE", "SHARED"), _pool_row,
        ("SETTLES", "SAVE", "RESTORE", "A100S", "REVISION"), _pool_wide, "GpuPool", single=True,
    ),
}  # fmt: skip
"""Every kind that `relume get` lists."""
