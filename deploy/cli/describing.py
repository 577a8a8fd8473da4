"""`relume describe`: the whole story of one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from deploy.cli.commands import command
from deploy.cli.connection import Connection, segment
from deploy.cli.failing import Refused
from deploy.cli.options import Kind, complete_listed, output, talking
from deploy.cli.output import age, note, number, replicas, seconds, show_json, table_text

DECISIONS: Final = 5
LOG_LINES: Final = 10
BAR: Final = 24
"""Characters of the longest bar of a phase."""

_COLOURS: Final = {"Ready": "green", "Starting": "yellow", "Draining": "yellow", "Failed": "red", "Zero": "cyan"}


@command("describe", (
    "relume describe model llama", "relume describe model llama -o json", "relume describe pool default",
))  # fmt: skip
@click.argument("kind", type=Kind(["model", "models", "pool", "pools"], "model"), metavar="model|pool")
@click.argument("name", shell_complete=complete_listed)
@output("text", "json")
@talking
def describe(connection: Connection, kind: str, name: str, output: str) -> None:
    """Tell the story of a model: what it is, what it is doing, how it started, why, and what its replicas wrote. Of a
    pool of GPUs: what it goes by."""
    if kind.startswith("pool"):
        from deploy.cli.pool_story import tell_pool  # noqa: PLC0415 - only for pools

        tell_pool(connection, name, output)
        return
    story = _gather(connection, name)
    if output == "json":
        show_json(story)
    else:
        click.echo("\n".join(_tell(story)))


def _gather(connection: Connection, name: str) -> dict[str, Any]:
    model = connection.get(f"/v1alpha1/models/{segment(name)}")
    own = model["metadata"]["name"]
    copies = connection.get("/v1alpha1/replicas", {"model": own})["items"]
    return {
        "model": model,
        "replicas": copies,
        "decisions": connection.get("/v1alpha1/decisions", {"model": own, "limit": DECISIONS})["items"],
        "explanation": connection.get(f"/v1alpha1/models/{segment(own)}/explain")["sentences"],
        "log": _log(connection, model, copies),
    }


def _log(connection: Connection, model: Mapping[str, Any], copies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The last lines of the newest replica, also of one that ended."""
    start = model["status"]["lastStart"]
    name = copies[-1]["metadata"]["name"] if copies else start["replica"] if start else None
    if name is None:
        return {"replica": None, "lines": []}
    try:
        lines = connection.lines(f"/v1alpha1/replicas/{segment(name)}/logs", {"tail": LOG_LINES})
        return {"replica": name, "lines": [line.decode("utf-8", "replace") for line in lines]}
    except Refused as refused:
        if refused.name != "replica-not-found":
            raise
        return {"replica": name, "lines": []}


def _tell(story: Mapping[str, Any]) -> list[str]:
    model = story["model"]
    lines = [*_who(model), "", *_state(model["status"])]
    for title, part in (
        ("Replicas", _replicas(story["replicas"])),
        ("Last start", _start(model["status"])),
        ("Why", list(story["explanation"])),
        ("Decisions", _decisions(story["decisions"])),
        ("Conditions", _conditions(model["status"]["conditions"])),
        (f"Log of {story['log']['replica']}", story["log"]["lines"]),
    ):
        if part:
            lines += ["", f"{title}:", *[f"  {line}" for line in part]]
    return lines


def _who(model: Mapping[str, Any]) -> list[str]:
    metadata, spec = model["metadata"], model["spec"]
    scaling, resources = spec.get("scaling", {}), spec.get("resources", {})
    gpus = (
        resources.get("migProfile")
        or resources.get("gpuFraction")
        or resources.get("gpuMemory")
        or resources.get("gpus", 0)
    )
    needs = f"{gpus} GPU, {resources.get('cpu')} CPU, {resources.get('memory')} memory"
    bounds = f"{scaling.get('minReplicas')} to {scaling.get('maxReplicas')} replicas"
    cost = scaling.get("coldStartCost")
    kept = f"kept {scaling.get('keepAlive')}" if cost is None else f"a cold start is worth {cost}"
    rows = [
        ("Name", metadata["name"]),
        ("Aliases", ", ".join(spec.get("aliases", []))),
        ("Revision", f"{metadata['revision']} (generation {metadata['generation']})"),
        ("Engine", spec.get("engine", {}).get("type", "")),
        ("Weights", (spec.get("weights") or {}).get("uri", "")),
        ("Replica", f"{spec.get('slots')} slots, {needs}"),
        ("Scaling", f"{bounds}, {kept}, policy {scaling.get('policy')}"),
        ("Priority", str(spec.get("priority"))),
    ]
    return [f"{name + ':':<10}{value}" for name, value in rows if value]


def _state(status: Mapping[str, Any]) -> list[str]:
    words = f"{status['reason']}: {status['message']}" if status["message"] else status["reason"]
    state = note(status["state"], _COLOURS.get(status["state"], "white"))
    counts = f"{status['readyReplicas']} ready of {status['replicas']}, {status['startingReplicas']} starting, "
    counts += f"{status['drainingReplicas']} draining, {status.get('sleepingReplicas', 0)} asleep; "
    counts += f"wish {number(status['wish'])}, "
    counts += f"granted {number(status['granted'])}, shortage {number(status['shortage'])}"
    lines = [
        f"{'State:':<10}{state}{'  ' + words if words else ''}",
        f"{'Replicas:':<10}{counts}",
        f"{'Requests:':<10}{number(status['runningRequests'])} running, {number(status['heldRequests'])} held",
    ]
    if call := status.get("nodeCall"):
        lines.append(f"{'Nodes:':<10}{call['message']} ({number(call['waiting'])} of {call['replicas']} seen to wait)")
    if status["override"]:
        override = status["override"]
        lines.append(f"{'By hand:':<10}{replicas(override['replicas'])} until {override['until']}")
    return lines


def _replicas(copies: Sequence[Mapping[str, Any]]) -> list[str]:
    if not copies:
        return []
    rows = [
        [item["metadata"]["name"], item["status"]["state"], item["status"]["phase"] or "", item["status"]["address"],
         ",".join(item["spec"]["gpus"]), age(item["status"]["createdAt"]), item["status"]["message"]]
        for item in copies
    ]  # fmt: skip
    return table_text(("NAME", "STATE", "PHASE", "ADDRESS", "GPUS", "AGE", "MESSAGE"), rows).splitlines()


def _start(status: Mapping[str, Any]) -> list[str]:
    start = status["lastStart"]
    if not start:
        return []
    longest = max((phase["seconds"] or 0.0 for phase in start["phases"]), default=0.0) or 1.0
    lines = [f"{start['replica']}: {seconds(start['seconds'])} to ready" if start["readyAt"] else start["replica"]]
    unfinished = "goes on" if status["startingReplicas"] else "not done"
    for phase in start["phases"]:
        took = phase["seconds"]
        bar = "#" * max(1, round(BAR * took / longest)) if took else ""
        lines.append(f"{phase['phase']:<8}{seconds(took) if took is not None else unfinished:>9}  {bar}".rstrip())
    return lines


def _decisions(decisions: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"{age(one['time'])} ago: {replicas(one['replicas'])} ({', '.join(one['reasons'])})" for one in decisions]


def _conditions(conditions: Sequence[Mapping[str, Any]]) -> list[str]:
    if not conditions:
        return []
    rows = [[one["type"], one["status"], one["reason"], one["message"]] for one in conditions]
    return table_text(("TYPE", "STATUS", "REASON", "MESSAGE"), rows).splitlines()
