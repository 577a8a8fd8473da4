"""The table of kinds: what may be declared. Reading, checking and describing documents all go by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from deploy.spec.model import Model
from deploy.spec.pool import GpuPool
from deploy.spec.training import TrainingJob
from runtime.spec import EngineType

Document = Model | TrainingJob | GpuPool
"""One declaration of any kind."""

StandIns = Mapping[tuple[str | int, ...], Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of document. `word`: what people call it; a name belongs to one document of each kind.

    `stand_ins`: what stands in for a wrong field that is needed, while the rules between the other fields are tried.
    """

    shape: type[Document]
    word: str
    stand_ins: StandIns


_NAME: Final[StandIns] = {("metadata", "name"): {"name": "stand-in"}}
_ENGINE: Final[StandIns] = {("spec", "engine", "type"): {"type": EngineType.SIMULATED, "options": {}}}
"""An engine without rules between its options."""
_COMMAND: Final[StandIns] = {("spec", "command"): {"command": ["stand-in"]}}

KINDS: Final[Mapping[str, Kind]] = {
    "Model": Kind(Model, "model", {**_NAME, **_ENGINE}),
    "TrainingJob": Kind(TrainingJob, "training job", {**_NAME, **_COMMAND}),
    "GpuPool": Kind(GpuPool, "pool", _NAME),
}
"""Every kind, by the word that stands in the document."""


def kind_of(document: Document) -> Kind:
    """The kind of a document."""
    return KINDS[document.kind]
