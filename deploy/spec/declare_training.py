"""From one declaration of a training job to the next: which uid, revision and generation. Pure.

A name keeps its uid until it is deleted; declared again after that, it is another job, with the next revision. What was
cancelled stays so, whatever is declared, until it is resumed. A pause outlives changes of the document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pydantic import JsonValue

from deploy.spec.check import check_as
from deploy.spec.document import API_VERSION
from deploy.spec.kinds import Document
from deploy.spec.revising import revises
from deploy.spec.training import TrainingJob
from events.types.training import TrainingDeclared

REVISED_BY: Final = ("command", "environment", "folder", "resources", "members", "pod")
"""The parts of the spec that the processes of a run are made of: the next run has them."""


def declare_training(
    previous: TrainingDeclared | None, document: Document | Mapping[str, object], new_uid: str
) -> TrainingDeclared:
    """The declaration that `document` makes of `previous` (the newest one of this name, deleted ones too).

    Returns `previous` itself when nothing changes. Raises SpecRefused when the document is wrong.
    """
    job = document if isinstance(document, TrainingJob) else check_as(TrainingJob, document)
    spec, metadata = written_training(job), job.metadata
    if previous is None or previous.deleted:
        return TrainingDeclared(
            job=metadata.name, uid=new_uid, revision=1 if previous is None else previous.revision + 1, generation=1,
            spec=spec, labels=dict(metadata.labels), annotations=dict(metadata.annotations),
        )  # fmt: skip
    if previous.job != metadata.name:
        raise ValueError(f"{metadata.name} cannot follow {previous.job}; give the newest declaration of this name")
    return _next(
        previous,
        replace(
            previous, spec=spec, labels=dict(metadata.labels), annotations=dict(metadata.annotations),
            revision=previous.revision + revises(REVISED_BY, previous.spec, spec, lambda: _rewritten(previous)),
        ),
    )  # fmt: skip


def _rewritten(previous: TrainingDeclared) -> Mapping[str, JsonValue]:
    return written_training(check_as(TrainingJob, document_of_training(previous)))


def pause(previous: TrainingDeclared, *, paused: bool) -> TrainingDeclared:
    """Let it save and give its cards back until it is resumed; or take that back. Raises ValueError when it has no more
    life to pause."""
    if previous.deleted or previous.cancelled:
        what = "deleted" if previous.deleted else "cancelled"
        raise ValueError(f"training job {previous.job} is {what}; it can be neither paused nor resumed")
    return _next(previous, replace(previous, paused=paused))


def resume(previous: TrainingDeclared, *, forgiven: int = 0) -> TrainingDeclared:
    """Let it go on where it was: paused, cancelled, or failed too often. `forgiven`: failures of runs up to this one
    count no more. Raises ValueError when it is deleted."""
    if previous.deleted:
        raise ValueError(f"training job {previous.job} is deleted; it cannot be resumed")
    after = replace(previous, paused=False, cancelled=False, forgiven=max(previous.forgiven, forgiven))
    return _next(previous, after)


def cancel(previous: TrainingDeclared) -> TrainingDeclared:
    """End it; it stays listed, and may be resumed. One that was deleted stays as it is."""
    return previous if previous.deleted else _next(previous, replace(previous, cancelled=True))


def delete_training(previous: TrainingDeclared, *, purge: bool = False) -> TrainingDeclared:
    """End it for good, and forget it; with `purge` its own folder too. (What is purged stays so.)"""
    return _next(previous, replace(previous, deleted=True, purge=previous.purge or purge))


def written_training(job: TrainingJob) -> dict[str, JsonValue]:
    """The spec as YAML would say it, defaults filled in; fields without a value are left out."""
    return job.spec.model_dump(mode="json", by_alias=True, exclude_none=True)


def document_of_training(declared: TrainingDeclared) -> dict[str, JsonValue]:
    """The document that would declare this job: what `relume get -o yaml` prints and `apply` takes."""
    metadata: dict[str, JsonValue] = {"name": declared.job}
    if declared.labels:
        metadata["labels"] = dict(declared.labels)
    if declared.annotations:
        metadata["annotations"] = dict(declared.annotations)
    return {"apiVersion": API_VERSION, "kind": "TrainingJob", "metadata": metadata, "spec": declared.spec}


def _next(previous: TrainingDeclared, declared: TrainingDeclared) -> TrainingDeclared:
    """`declared` as the next generation; `previous` itself when they say the same."""
    return previous if declared == previous else replace(declared, generation=previous.generation + 1)
