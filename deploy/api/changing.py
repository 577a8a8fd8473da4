"""What documents change: each kind has a register, which says what its documents make of what is declared."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic

from deploy.api.board import Board, metadata_of
from deploy.api.book import Book, D
from deploy.api.pool_board import PoolBoard, pool_metadata
from deploy.api.shapes import Action, Applied, Metadata
from deploy.api.training_board import TrainingBoard, training_metadata
from deploy.api.writing import AnyChange, Change
from deploy.spec.declare import alias_problems, aliases_of, declare
from deploy.spec.declare_pool import declare_pool
from deploy.spec.declare_training import declare_training
from deploy.spec.kinds import Document
from deploy.spec.model import Model
from deploy.spec.pool import GpuPool
from deploy.spec.problem import SpecProblem
from events.types.models import ModelDeclared
from events.types.pools import PoolDeclared
from events.types.training import TrainingDeclared


@dataclass(frozen=True, slots=True)
class Boards:
    """What is declared: models, training jobs, pools."""

    models: Board
    training: TrainingBoard
    pools: PoolBoard = field(default_factory=PoolBoard)


@dataclass(frozen=True, slots=True)
class Register(Generic[D]):
    """How documents of one kind become declarations. `make`: from the newest one, a document and a uid for a new one;
    `word` for people, `path` in addresses."""

    kind: str
    word: str
    path: str
    book: Book[D]
    names: Callable[[], list[str]]
    make: Callable[[D | None, Document, str], D]
    metadata: Callable[[D], Metadata]

    def applied(self, document: Document) -> Planned:
        """What a document changes."""
        name = document.metadata.name
        previous, base_at = self.book.newest(name), self.book.newest_at(name)
        declared = self.make(previous, document, uuid.uuid4().hex)
        action = Action.UNCHANGED if declared == previous else Action.CONFIGURED
        if previous is None or previous.uid != declared.uid:
            action = Action.CREATED
        change = Change(self.book, declared, base_at, lambda before: self.make(before, document, uuid.uuid4().hex))
        spec, metadata = dict(declared.spec), self.metadata(declared)
        return Planned(Applied(action=action, kind=self.kind, metadata=metadata, spec=spec), change)

    def changed(self, living: D, make: Callable[[D], D]) -> Change[D] | None:
        """What `make` changes of a declaration; None when that is nothing."""
        declared = make(living)
        if declared is living:
            return None

        def redo(previous: D | None) -> D:
            return make(living if previous is None else previous)

        return Change(self.book, declared, self.book.newest_at(self.book.name_of(living)), redo)


@dataclass(frozen=True, slots=True)
class Planned:
    """What becomes of one document, and what is written for it unless nothing changes."""

    told: Applied
    change: AnyChange


@dataclass(frozen=True, slots=True)
class Registers:
    """One of each kind."""

    models: Register[ModelDeclared]
    training: Register[TrainingDeclared]
    pools: Register[PoolDeclared]

    def of(self, document: Document) -> Register[ModelDeclared] | Register[TrainingDeclared] | Register[PoolDeclared]:
        """The register of a document."""
        if isinstance(document, GpuPool):
            return self.pools
        return self.models if isinstance(document, Model) else self.training


def registers(boards: Boards) -> Registers:
    """The registers over the boards' books."""
    return Registers(
        Register("Model", "model", "models", boards.models.book, boards.models.names, declare, metadata_of),
        Register(
            "TrainingJob", "training job", "training", boards.training.book, boards.training.names, declare_training,
            training_metadata,
        ),
        Register("GpuPool", "pool", "pools", boards.pools.book, boards.pools.names, declare_pool, pool_metadata),
    )  # fmt: skip


class Words:
    """Names and aliases of declared models, by word: only models that share a word can collide."""

    def __init__(self, declared: Iterable[ModelDeclared]) -> None:
        self._owners: dict[str, ModelDeclared] = {}
        for one in declared:
            self.add(one)

    @classmethod
    def beside(cls, board: Board, documents: Sequence[Document]) -> Words:
        """Those of all models but the ones that `documents` declare anew."""
        applied = {document.metadata.name for document in documents if isinstance(document, Model)}
        declared = (board.declared(name) for name in board.names() if name not in applied)
        return cls(one for one in declared if one is not None)

    def add(self, declared: ModelDeclared) -> None:
        """They are taken from now on."""
        if not declared.deleted:
            for word in (declared.model, *aliases_of(declared)):
                self._owners.setdefault(word, declared)

    def problems(self, model: Model) -> list[SpecProblem]:
        """What `model` would take away from others. An alias means one model only, and never the name of another."""
        words = (model.metadata.name, *model.spec.aliases)
        found = {self._owners[word].model: self._owners[word] for word in words if word in self._owners}
        return alias_problems(model, found.values())
