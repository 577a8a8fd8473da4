"""`relume plan -f`: what would become of models in a running relume."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from deploy.cli.checking import read_files
from deploy.cli.connection import Connection, Question
from deploy.cli.output import number, say, show_json
from deploy.spec.kinds import Document
from deploy.spec.training import TrainingJob

_FITS: Final = frozenset({"fits", "reclaims"})

_WORDS: Final = {
    "fits": "fits now",
    "reclaims": "fits once training has yielded",
    "waits_for_yielding": "fits as soon as those who were told to yield have gone",
    "waits_for_coming": "fits as soon as what comes anyway is free",
    "infeasible": "does not fit",
}


def ask_models(connection: Connection, files: Sequence[str], replicas: int, output: str) -> int:
    """Ask, show the answers, and say by the exit code whether all fit."""
    documents = [
        model.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)
        for model in _models(read_files(files))
    ]
    body = "\n---\n".join(json.dumps(document) for document in documents)
    answer = connection.ask(
        Question("POST", "/v1alpha1/plan", {"replicas": replicas}, body.encode(), "application/yaml")
    )
    if output == "json":
        show_json(answer)
    else:
        click.echo("\n\n".join(_in_words(item) for item in answer["items"]))
    return 0 if all(item["outcome"] in _FITS for item in answer["items"]) else 1


def _models(documents: Sequence[Document]) -> list[Document]:
    """Those that a plan can be made for; what is left out is said. Without any model it is all: relume refuses them."""
    jobs = [one for one in documents if isinstance(one, TrainingJob)]
    if len(jobs) == len(documents):
        return list(documents)
    if jobs:
        say(f"left out: {', '.join(f'training job {job.metadata.name}' for job in jobs)}; a plan is made for models")
    return [one for one in documents if not isinstance(one, TrainingJob)]


def _in_words(item: Mapping[str, Any]) -> str:
    count = "1 replica" if item["replicas"] == 1 else f"{item['replicas']} replicas"
    lines = [f"model {item['model']}: {count} more: {_WORDS.get(item['outcome'], item['outcome'])}"]
    if item["message"]:
        lines.append(f"  {item['message']}")
    lines += [f"  on {_place(place)}" for place in item["places"]]
    lines.append(f"  room for {item['room']} in all; maxReplicas is {item['maxReplicas']}")
    after = item["fragmentationAfter"]
    before = f"{100 * item['fragmentationBefore']:.1f} %"
    later = "" if after is None else f", then {100 * after:.1f} %"
    lines.append(f"  GPUs that are free and of no use here: {before} now{later}")
    lines += [
        f"  {victim['job']} would yield ({'all of it' if victim['whole'] else str(victim['members']) + ' members'}), "
        f"which costs {victim['cost']:.0f} A100-seconds"
        for victim in item["victims"]
    ]
    lines += [f"  {one['job']}: {one['why']} {_numbers(one['numbers'])}".rstrip() for one in item["verdicts"]]
    return "\n".join(lines)


def _place(place: Mapping[str, Any]) -> str:
    return str(place["node"]) + (f": {', '.join(place['gpus'])}" if place["gpus"] else "")


def _numbers(numbers: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {number(value)}" for name, value in numbers.items())
