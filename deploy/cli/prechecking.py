"""`relume plan -f`: what would become of models and training jobs in a running relume."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from deploy.cli.checking import read_files
from deploy.cli.connection import Connection, Question
from deploy.cli.output import counted, number, show_json, until

_FITS: Final = frozenset({"fits", "reclaims"})

_WORDS: Final = {
    "fits": "fits now",
    "reclaims": "fits once training has yielded",
    "waits_for_yielding": "fits as soon as those who were told to yield have gone",
    "waits_for_coming": "fits as soon as what comes anyway is free",
    "infeasible": "does not fit",
}


_STARTS: Final = {
    "now": "would be started now",
    "when_others_have_yielded": "would be started once jobs of lower priority have yielded",
    "when_others_have_gone": "would be started as soon as those who were told to yield have gone",
    "when_models_have_theirs": "would wait: models that lack the same come first",
    "when_there_is_room": "would wait until there is room",
    "never": "would never be started",
}


_WAITS: Final = frozenset({"when_others_have_gone", "when_there_is_room", "when_models_have_theirs"})

_GOES: Final = {
    "has_ended": "has ended", "ends": "ends", "yields": "yields to others", "drains": "drains",
    "idles_out": "idles out", "trains": "trains until it is done", "serves": "serves while it is asked",
}  # fmt: skip


def ask_plan(connection: Connection, files: Sequence[str], replicas: int, output: str) -> int:
    """Ask, show the answers, and say by the exit code whether all fit."""
    documents = [
        one.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True) for one in read_files(files)
    ]
    body = "\n---\n".join(json.dumps(document) for document in documents)
    answer = connection.ask(
        Question("POST", "/v1alpha1/plan", {"replicas": replicas}, body.encode(), "application/yaml")
    )
    if output == "json":
        show_json(answer)
    else:
        told = [(item["order"], _in_words(item)) for item in answer["items"]]
        told += [(item["order"], _job_in_words(item)) for item in answer["jobs"]]
        click.echo("\n\n".join(words for _, words in sorted(told)))
    fits = [item["outcome"] in _FITS for item in answer["items"]]
    free = [not item.get("limit") for item in (*answer["items"], *answer["jobs"])]
    return 0 if all([*fits, *free, *(item["startedMembers"] > 0 for item in answer["jobs"])]) else 1


def _in_words(item: Mapping[str, Any]) -> str:
    count = "1 replica" if item["replicas"] == 1 else f"{item['replicas']} replicas"
    lines = [f"model {item['model']}: {count} more: {_WORDS.get(item['outcome'], item['outcome'])}"]
    if item["message"]:
        lines.append(f"  {item['message']}")
    lines += _limit(item)
    lines += _when(item, waits=item["outcome"] not in _FITS)
    lines += [f"  on {_place(place)}" for place in item["places"]]
    lines += [_soon(node) for node in item["nodes"] if node["tier"] is not None]
    lines.append(f"  room for {item['room']} in all; maxReplicas is {item['maxReplicas']}")
    return "\n".join([*lines, *_effects(item)])


def _soon(node: Mapping[str, Any]) -> str:
    """How soon it would answer on a node that has room, and why."""
    tiers = {"memory": "its weights are in memory", "disk": "its weights are on the disk", "remote": "they are fetched"}
    first = "first token at an unknown time" if node["seconds"] is None else f"first token in {node['seconds']:.1f} s"
    return f"  {node['node']} has room for {node['room']}: {first}; {tiers.get(node['tier'], node['tier'])}"


def _job_in_words(item: Mapping[str, Any]) -> str:
    gang = "1 member" if item["members"] == 1 else f"{item['members']} members"
    lines = [f"training job {item['job']}: {gang}: {_STARTS.get(item['starts'], item['starts'])}"]
    if item["message"]:
        lines.append(f"  {item['message']}")
    lines += _limit(item)
    lines += _when(item, waits=item["starts"] in _WAITS)
    if item["waitsBehind"]:
        lines.append(f"  jobs that wait already come first: {', '.join(item['waitsBehind'])}")
    if 0 < item["startedMembers"] < item["members"]:
        lines.append(f"  with {item['startedMembers']} of them")
    lines += [f"  on {_place(place)}" for place in item["places"]]
    lines.append(f"  training has room for {item['room']} such members")
    return "\n".join([*lines, *_effects(item)])


def _limit(item: Mapping[str, Any]) -> list[str]:
    """Which quota says no, whatever is free."""
    return [f"  not all would be made: {item['limit']}"] if item.get("limit") else []


def _when(item: Mapping[str, Any], *, waits: bool) -> list[str]:
    """When there will be room, and who makes it; or that nobody can tell, and who would have to."""
    who = [
        f"{one['name']} {_GOES.get(one['goes'], one['goes'])}" + (f" (in {until(one['at'])})" if one["at"] else "")
        for one in item["roomFrom"]
    ]
    if item["roomAt"] is not None:
        return [f"  there is room in {until(item['roomAt'])}, if nobody else takes it: {', '.join(who)}"]
    if not waits:
        return []
    return ["  when there is room nobody can tell" + (f": {', '.join(who)}" if who else "")]


def _effects(item: Mapping[str, Any]) -> list[str]:
    """What it fragments, and who would yield."""
    after = item["fragmentationAfter"]
    before = f"{100 * item['fragmentationBefore']:.1f} %"
    later = "" if after is None else f", then {100 * after:.1f} %"
    return [
        f"  GPUs that are free and of no use here: {before} now{later}",
        *(
            f"  {victim['job']} would yield "
            f"({'all of it' if victim['whole'] else counted(victim['members'], 'member')})"
            f", which costs {victim['cost']:.0f} A100-seconds"
            for victim in item["victims"]
        ),
        *(f"  {one['job']}: {one['why']} {_numbers(one['numbers'])}".rstrip() for one in item["verdicts"]),
    ]


def _place(place: Mapping[str, Any]) -> str:
    return str(place["node"]) + (f": {', '.join(place['gpus'])}" if place["gpus"] else "")


def _numbers(numbers: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {number(value)}" for name, value in numbers.items())
