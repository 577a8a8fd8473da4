"""Keras' fit on the backend that KERAS_BACKEND names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from preemption.trainer.adapters.keras import SaveWhenTold
from tests.trainers.jobs.job import Job, samples

BATCHES = 12


class Tell(keras.callbacks.Callback):
    """Writes the curve."""

    def __init__(self, job: Job, told: SaveWhenTold) -> None:
        super().__init__()
        self.job, self.told = job, told

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        arrays = [keras.ops.convert_to_numpy(variable) for variable in self.model.variables]
        self.job.trained(self.told.place(batch) - 1, arrays)


class Slow(SaveWhenTold):
    """On a slow storage."""

    job: Job

    def _save(self, folder: Any) -> None:
        self.job.slowly(super()._save)(folder)


def run(job: Job) -> None:
    """Train to the end, or until told."""
    keras.utils.set_random_seed(3)
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((8,)),
            layers.Dense(16, "tanh"),
            layers.BatchNormalization(),
            layers.Dropout(0.2),
            layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.AdamW(keras.optimizers.schedules.CosineDecay(0.01, job.total)), "mse")
    inputs, targets = samples()
    batches = [(inputs[at::BATCHES], targets[at::BATCHES]) for at in range(BATCHES)]
    Slow.job = job
    told = Slow(job.checkpoints, model, batches, seed=5, settings=job.settings)
    told.fit(epochs=job.total // BATCHES, callbacks=[Tell(job, told)], verbose=0)
