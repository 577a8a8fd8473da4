"""`relume train describe`: the whole story of one training job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from deploy.cli.commands import command
from deploy.cli.connection import Connection, segment
from deploy.cli.failing import Refused
from deploy.cli.options import complete_training, output, talking
from deploy.cli.output import age, counted, note, number, seconds, show_json, table_text, times
from deploy.cli.tables import TABLES
from deploy.cli.training import members_of

RECLAIMS: Final = 5
LOG_LINES: Final = 10
COMMAND: Final = 100
"""Characters of a command that are shown."""

_PARTS: Final = {
    "going": "not committed yet", "since_commit": "lost steps", "save": "saving", "barrier": "waiting to save",
    "stop": "ending", "drain": "waiting for empty GPUs", "restore": "coming back",
}  # fmt: skip
"""Where the word is not enough."""

_COLOURS: Final = {
    "Running": "green", "Finished": "green", "Starting": "yellow", "Saving": "yellow", "Parked": "yellow",
    "Pending": "yellow", "Failed": "red", "Cancelled": "red", "Paused": "cyan",
}  # fmt: skip


@command("describe", ("relume train describe tune", "relume train describe tune -o json"))
@click.argument("name", shell_complete=complete_training)
@output("text", "json")
@talking
def describe(connection: Connection, name: str, output: str) -> None:
    """Tell the story of a training job: what it is, what it is doing, what it saved, when it had to yield."""
    story = _gather(connection, name)
    if output == "json":
        show_json(story)
    else:
        click.echo("\n".join(_tell(story)))


def _gather(connection: Connection, name: str) -> dict[str, Any]:
    job = connection.get(f"/v1alpha1/training/{segment(name)}")
    reclaims = connection.get("/v1alpha1/reclaims", {"job": name, "limit": RECLAIMS})["items"]
    return {"training": job, "reclaims": reclaims, "log": _log(connection, name, members_of(job)[0])}


def _log(connection: Connection, job: str, member: str) -> dict[str, Any]:
    """The last lines of the first member, where they are kept."""
    try:
        lines = connection.lines(f"/v1alpha1/training/{segment(job)}/logs", {"member": member, "tail": LOG_LINES})
        return {"member": member, "lines": [line.decode("utf-8", "replace") for line in lines]}
    except Refused as refused:
        if refused.name not in {"no-output", "not-kept", "member-not-found"}:
            raise
        return {"member": member, "lines": []}


def _tell(story: Mapping[str, Any]) -> list[str]:
    job = story["training"]
    lines = [*_who(job), "", *_state(job["status"])]
    for title, part in (
        ("Members", _members(job["status"]["processes"])),
        ("Notice", _notice(job["status"]["notice"])),
        ("Reclaims", _reclaims(story["reclaims"])),
        ("How it failed", job["status"]["logTail"]),
        (f"Log of {story['log']['member']}", story["log"]["lines"]),
    ):
        if part:
            lines += ["", f"{title}:", *[f"  {line}" for line in part]]
    return lines


def _who(job: Mapping[str, Any]) -> list[str]:
    metadata, spec = job["metadata"], job["spec"]
    resources, contract, rules = spec.get("resources", {}), spec.get("checkpoint", {}), spec.get("preemption", {})
    gpus = (
        resources.get("migProfile")
        or resources.get("gpuFraction")
        or resources.get("gpuMemory")
        or resources.get("gpus", 0)
    )
    least = spec.get("elasticity", {}).get("minMembers")
    gang = counted(spec.get("members", 1), "member") + (f", {least} at least" if least else "")
    yields = f"at most {rules.get('budgetPerHour')} times an hour, after {rules.get('minRuntime')} of a run"
    told = ", ".join(contract.get("channels", [])) or "SIGTERM only"
    times = f"answer within {contract.get('ackTimeout')}, save within {contract.get('saveTimeout')}"
    rows = [
        ("Name", metadata["name"]),
        ("Revision", f"{metadata['revision']} (generation {metadata['generation']})"),
        ("Command", _short(" ".join(spec.get("command", [])))),
        ("Gang", f"{gang}; each {gpus} GPU, {resources.get('cpu')} CPU, {resources.get('memory')} memory"),
        ("Priority", str(spec.get("priority"))),
        ("Yields", "never (protected)" if rules.get("protected") else yields),
        ("Told by", f"{told}; {times}, {contract.get('grace')} from SIGTERM to SIGKILL"),
    ]
    if folder := job["status"]["folder"]:
        own = "" if spec.get("folder") else "; stays when the job is deleted, unless with --purge"
        rows.append(("Folder", f"{folder}{own}"))
    return [f"{name + ':':<12}{value}" for name, value in rows]


def _short(command: str) -> str:
    """On one line; `-o json` has all of it."""
    line = " ".join(command.split())
    return line if len(line) <= COMMAND else line[: COMMAND - 1] + "…"


def _state(status: Mapping[str, Any]) -> list[str]:
    words = f"{status['reason']}: {status['message']}" if status["message"] else status["reason"]
    state = note(status["state"], _COLOURS.get(status["state"], "white"))
    steps = f"{number(status['step'])} done"
    if status["resumedStep"]:
        steps += f", this run began at {status['resumedStep']}"
    if status["readyMembers"] and not status["reports"]:
        steps += " (its trainer tells nothing: all work of a run is lost when it ends)"
    yields = f"made to yield {times(status['preemptions'])}" if status["preemptions"] else "never made to yield"
    runs = f"{status['run']}, {counted(status['restarts'], 'restart')}, {status['failures']} failed in a row, {yields}"
    return [
        f"{'State:':<12}{state}{'  ' + words if words else ''}",
        f"{'Run:':<12}{runs}",
        f"{'Started:':<12}{age(status['startedAt']) + ' ago' if status['startedAt'] else 'not yet'}",
        f"{'Steps:':<12}{steps}",
        f"{'Checkpoint:':<12}{_checkpoint(status['checkpoint'])}",
        *_usual(status["usualSave"], status["usualRestore"]),
        *goodput(status["goodput"]),
        *_lost(status["gpuSecondsLost"]),
    ]


def _usual(save: Mapping[str, Any] | None, restore: Mapping[str, Any] | None) -> list[str]:
    """What saving and coming back usually take, as far as that was seen."""
    told = [
        f"{what} {seconds(known['seconds'])} ({_seen(known)})"
        for what, known in (("a save", save), ("coming back", restore))
        if known is not None
    ]
    return [f"{'Usually:':<12}{', '.join(told)}"] if told else []


def _seen(known: Mapping[str, Any]) -> str:
    return f"of {counted(known['seen'], 'job')} like it" if known["alike"] else f"seen {times(known['seen'])}"


def goodput(told: Mapping[str, Any]) -> list[str]:
    """The share of GPU-seconds that went into steps that are kept, and what the rest went into."""
    if told["ratio"] is None:
        return []
    parts = ", ".join(f"{value:.1f} {_PARTS.get(part, part)}" for part, value in told["gpuSeconds"].items())
    return [f"{'Goodput:':<12}{100 * told['ratio']:.1f} % of {told['heldGpuSeconds']:.1f} GPU-seconds held: {parts}"]


def _lost(lost: Mapping[str, float]) -> list[str]:
    if not sum(lost.values()):
        return []
    parts = ", ".join(f"{value:.1f} {cause.replace('_', ' ')}" for cause, value in lost.items() if value)
    return [f"{'Lost:':<12}{sum(lost.values()):.1f} GPU-seconds to reclaims: {parts}"]


def _checkpoint(checkpoint: Mapping[str, Any] | None) -> str:
    if checkpoint is None:
        return "none yet"
    sound = "verified" if checkpoint["verified"] else "not verified"
    return (
        f"step {checkpoint['step']}, {age(checkpoint['at'])} ago, {checkpoint['size']} bytes in "
        f"{seconds(checkpoint['seconds'])}, {sound}, {checkpoint['path'] or 'path unknown'}"
    )


def _members(processes: Sequence[Mapping[str, Any]]) -> list[str]:
    if not processes:
        return []
    rows = [
        [one["name"], one["node"], ",".join(one["gpus"]), number(one["pid"]), number(one["exitCode"])]
        for one in processes
    ]
    return table_text(("NAME", "NODE", "GPUS", "PID", "EXIT"), rows).splitlines()


def _notice(notice: Mapping[str, Any] | None) -> list[str]:
    if notice is None:
        return []
    heard = f"heard {age(notice['heardAt'])} ago" if notice["heardAt"] else "not heard yet"
    eta = f", its save takes about {seconds(notice['eta'])}" if notice["eta"] is not None else ""
    lines = [f"{notice['mode']} by {notice['deadline']}: {notice['reason'] or 'no reason given'}", f"{heard}{eta}"]
    if notice["failed"]:
        lines.append(f"it could not save: {notice['failed']}")
    return lines


def _reclaims(items: Sequence[Mapping[str, Any]]) -> list[str]:
    if not items:
        return []
    return table_text(*TABLES["reclaims"].rows(items, wide=False)).splitlines()
