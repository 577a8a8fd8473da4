"""`relume describe pool`: what a pool of GPUs goes by, and what it has left of its budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from deploy.cli.connection import Connection, segment
from deploy.cli.output import counted, show_json

_STEPS: Final = ("stall", "exit", "cancel", "kill", "empty", "quarantine", "lost", "resume")


def tell_pool(connection: Connection, name: str, output: str) -> None:
    """Print the story of one pool."""
    pool = connection.get(f"/v1alpha1/pools/{segment(name)}")
    if output == "json":
        show_json({"pool": pool})
    else:
        click.echo("\n".join(_tell(pool)))


def _tell(pool: Mapping[str, Any]) -> list[str]:
    metadata, status = pool["metadata"], pool["status"]
    settings = dict(status["settings"])
    yielded = counted(status["yieldedLastHour"], "job")
    worth = {name.removeprefix("a100s "): settings.pop(name) for name in list(settings) if name.startswith("a100s ")}
    rows = [
        ("Name", metadata["name"]),
        ("Revision", f"{metadata['revision']} (generation {metadata['generation']})"),
        ("Leader", status["leader"] or "nobody yet; the settings wait for one who leads it"),
        ("Budget", (f"{settings['budgetPerHour']:g} an hour; {yielded} had to yield in the last, "
                   f"{status['budgetLeft']} more may")),
        ("Cool-down", f"{settings['coolDownSeconds']:g} s after a job had to yield"),
        ("Reserve", (f"{100 * settings['reserveWholeCards']:g} % of a node's whole cards, "
                    f"{100 * settings['reserveSharedCards']:g} % of its shared ones")),
        ("Settling", (f"{settings['settleFirstSeconds']:g} s of room, times {settings['settleGrowth']:g} for each "
                     f"further time, {settings['settleLongestSeconds']:g} s or {settings['patience']:g} times "
                     "what giving it back costs at most")),
        ("Aging", (f"one more of priority for each {settings['ageEverySeconds']:g} s of waiting, "
                  f"{settings['ageMost']:g} at most")),
        ("Prices", (f"{settings['waiting']:g} A100-seconds for each second that a model's A100 is waited for; of a "
                   f"job's work {settings['thrashSeconds']:g} s for each time within "
                   f"{settings['thrashWindowSeconds']:g} s that it had to yield, {settings['shrinkSeconds']:g} s for a "
                   "member alone")),
        ("Estimates", (f"a save {settings['saveSeconds']:g} s, coming back {settings['restoreSeconds']:g} s, all else "
                      f"of a reclaim {settings['reclaimSeconds']:g} s; a drain {settings['drainSeconds']:g} s, or "
                      f"{settings['drainLongestSeconds']:g}")),
        ("Attempts", ", ".join(f"{step} {settings[step + 'Seconds']:g} s" for step in _STEPS)),
        ("Calls", _calls(settings)),
        ("Cards", ", ".join(f"{product} {units:g} A100s" for product, units in worth.items()) or "by the data sheets"),
    ]  # fmt: skip
    return [f"{name + ':':<11}{value}" for name, value in rows]


def _calls(settings: Mapping[str, float]) -> str:
    """How models that find no room call for nodes."""
    if "callsMost" not in settings:
        return "nobody calls for nodes"
    return (
        f"for {settings['callsMost']:g} replicas at once at most, after {settings['callsAfterSeconds']:g} s without "
        f"room, for {settings['callsDeadlineSeconds']:g} s, again {settings['callsPauseSeconds']:g} s after that"
    )
