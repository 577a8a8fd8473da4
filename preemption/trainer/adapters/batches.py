"""Which samples are in which batch, as a function of the step: then the position in the data is the step itself.

Loaders read ahead of the training, so their own position is never the training's. This order needs no state at all.
"""

from __future__ import annotations

import random
from collections.abc import Iterator


class Batches:
    """A batch sampler: ``DataLoader(dataset, batch_sampler=Batches(len(dataset), 32, seed=7, start=guard.resume()))``.

    Endless. Each epoch is a permutation of its own, drawn from `seed` and the epoch's number; its last samples, if they
    make no whole batch, are left out. Of `world` ranks each gets its share of a batch of ``size * world`` samples.
    `start`: batches already trained on. Raises ValueError when no batch can be made.
    """

    def __init__(self, samples: int, size: int, *, seed: int, start: int = 0, share: tuple[int, int] = (0, 1)) -> None:
        self.start = start
        self._samples = samples
        self._size = size
        self._seed = seed
        self._rank, self._world = share
        self.per_epoch = samples // (size * self._world)
        if size < 1 or self.per_epoch < 1:
            raise ValueError(f"size: {samples} samples make no batch of {size} for each of {self._world} ranks")

    def __iter__(self) -> Iterator[list[int]]:
        """Lists of the indices of samples, from `start` on."""
        epoch, batch = divmod(self.start, self.per_epoch)
        whole = self._size * self._world
        while True:
            order = list(range(self._samples))
            random.Random(f"{self._seed} {epoch}").shuffle(order)  # noqa: S311 - an order to repeat, not a secret
            for first in range(batch * whole, self.per_epoch * whole, whole):
                yield order[first + self._rank : first + whole : self._world]
            epoch, batch = epoch + 1, 0
