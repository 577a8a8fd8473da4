"""Keras 3, on any of its backends: `fit`, made safe to interrupt.

    told = SaveWhenTold("checkpoints", model, batches)
    told.fit(epochs=10, callbacks=[...])

`batches` has a length and items: ``batches[i]`` is a batch, the same each time. Saved: all variables of the model and
of the optimizer (seed generators included), the place in the data, and the global generators. An epoch that was broken
off is a `fit` of its own when it goes on, so its metrics are of its rest, and other callbacks see two beginnings.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from preemption.trainer.adapters import randomness
from preemption.trainer.adapters.needing import need
from preemption.trainer.board import Ranks
from preemption.trainer.guard import CheckpointGuard
from preemption.trainer.settings import GuardSettings

keras = need("keras", "keras")
numpy = need("numpy", "keras")
PyDataset: Any = keras.utils.PyDataset
Callback: Any = keras.callbacks.Callback


class BatchesByNumber(Protocol):
    """A `keras.utils.PyDataset`, a list, or anything like it."""

    def __len__(self) -> int:
        """Batches in an epoch."""

    def __getitem__(self, index: int) -> Any:
        """One batch: the same each time it is asked for."""


class Rest(PyDataset):  # type: ignore[misc] # its base is not known where we check types
    """What is left of an epoch: the batches from `first` on, in the epoch's own order."""

    def __init__(self, batches: BatchesByNumber, seed: int | None, first: int) -> None:
        super().__init__()
        self._batches = batches
        self._seed = seed
        self._first = first
        self._order = list(range(len(batches)))

    def go_to(self, epoch: int) -> None:
        """Shuffle for that epoch."""
        if self._seed is not None:
            order = list(range(len(self._batches)))
            random.Random(f"{self._seed} {epoch}").shuffle(order)  # noqa: S311 - an order to repeat, not a secret
            self._order = order

    def __len__(self) -> int:
        """Batches left."""
        return len(self._batches) - self._first

    def __getitem__(self, index: int) -> Any:
        """The batch that comes as number `index` from here."""
        return self._batches[self._order[self._first + index]]


class SaveWhenTold(Callback):  # type: ignore[misc] # its base is not known where we check types
    """See the module. `model`: built and compiled. `seed`: shuffles the batches of each epoch; None leaves them.

    Raises ValueError for a model that cannot be resumed exactly.
    """

    def __init__(
        self,
        folder: str | Path,
        model: Any,
        batches: BatchesByNumber,
        *,
        seed: int | None = None,
        settings: GuardSettings | None = None,
    ) -> None:
        super().__init__()
        if not model.built or model.optimizer is None:
            raise ValueError("model: build and compile it first, so that there are variables to load")
        if getattr(model.optimizer, "use_ema", False):
            raise ValueError("model: an optimizer with use_ema puts the averages in at the end of each fit; use none")
        model.optimizer.build(model.trainable_variables)
        self._trained = model
        self._batches = batches
        self._seed = seed
        self._ranks = Ranks.from_environment()
        self._guard = CheckpointGuard(folder, save=self._save, load=self._load, settings=settings, ranks=self._ranks)
        self._rest = Rest(batches, seed, 0)
        self._begun = 0
        self._generators: Mapping[str, Any] | None = None
        """What the generators are to be when the next batch begins: on torch, Keras draws between epochs."""

    def fit(self, *, epochs: int, callbacks: list[Any] | None = None, **arguments: Any) -> list[Any]:
        """As `model.fit`, from the newest checkpoint on; the `History` of each part. Raises Preempted, RankLost."""
        self._generators = randomness.capture()
        epoch, batch = divmod(self._guard.resume(), len(self._batches))
        arguments["callbacks"] = [*(callbacks or []), self]
        histories = []
        if batch:
            histories.append(self._fit(epoch, epoch + 1, batch, arguments))
            epoch, batch = epoch + 1, 0
        if epoch < epochs and not (histories and self._trained.stop_training):
            histories.append(self._fit(epoch, epochs, 0, arguments))
        self._guard.finish()
        return histories

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Put the batches in this epoch's order."""
        self._rest.go_to(epoch)
        self._begun = epoch * len(self._batches) + (len(self._batches) - len(self._rest))

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """The generators are where the batch before left them, whatever was drawn to prepare this epoch."""
        if self._generators is not None:
            randomness.restore(self._generators)
            self._generators = None

    def place(self, batch: int) -> int:
        """Batches trained on since the first epoch, when this epoch's `fit` has done its batch number `batch`."""
        return self._begun + batch + 1

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """A step is done. Raises Preempted, RankLost."""
        done = self.place(batch)
        if done % len(self._batches) == 0:
            self._generators = randomness.capture()
        self._guard.step(done)

    def on_test_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Evaluation can be left too. Raises Preempted, RankLost."""
        self._guard.poll()

    def _fit(self, first: int, end: int, batch: int, arguments: Mapping[str, Any]) -> Any:
        self._rest = Rest(self._batches, self._seed, batch)
        return self._trained.fit(self._rest, initial_epoch=first, epochs=end, shuffle=False, **arguments)

    def _variables(self) -> list[Any]:
        """In an order that the model's architecture fixes."""
        if keras.backend.backend() == "jax":
            self._trained.jax_state_sync()  # while `fit` runs, JAX's trainer holds the values itself
        return [*self._trained.variables, *self._trained.optimizer.variables]

    def _save(self, folder: Path) -> None:
        if self._ranks.leads:
            index = []
            with (folder / "variables.bin").open("wb") as file:
                for variable in self._variables():
                    array = keras.ops.convert_to_numpy(variable)
                    index.append([variable.path, str(array.dtype), list(array.shape)])
                    file.write(array.tobytes())
            (folder / "variables.json").write_text(json.dumps(index), encoding="utf-8")
        randomness.write(folder / f"random-{self._ranks.rank}.json")

    def _load(self, folder: Path) -> None:
        variables = self._variables()
        index = json.loads((folder / "variables.json").read_text(encoding="utf-8"))
        if [path for path, _, _ in index] != [variable.path for variable in variables]:
            raise ValueError("the checkpoint is of another model: its variables have other names")
        with (folder / "variables.bin").open("rb") as file:
            for variable, (_, name, shape) in zip(variables, index):
                kind = numpy.dtype(name)
                count = int(numpy.prod(shape, dtype=numpy.int64))
                variable.assign(numpy.frombuffer(file.read(count * kind.itemsize), dtype=kind).reshape(shape))
        self._generators = randomness.read(folder / f"random-{self._ranks.rank}.json")
