"""Lightning: a callback that looks at the end of each batch.

    told = SaveWhenTold("checkpoints")
    loader = DataLoader(data, batch_sampler=Batches(len(data), 32, seed=7, start=told.step))
    trainer = Trainer(max_steps=..., callbacks=[told], use_distributed_sampler=False, ...)
    trainer.fit(model, loader, ckpt_path=told.newest)

Lightning's own handlers (the SLURM plugin's, and its SIGTERM flag, of which only rank 0's counts) save inside a handler
or not at all; the guard's signals replace them. Lightning saves loops, model, optimizers and schedulers; this callback
adds the generators of each rank. Lightning begins the loader of a broken epoch at its first batch, so give it one that
begins where the training is: `Batches` is endless, and counted by steps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from preemption.trainer.adapters import randomness
from preemption.trainer.adapters import torch as plain
from preemption.trainer.adapters.needing import need
from preemption.trainer.board import Ranks
from preemption.trainer.guard import CheckpointGuard
from preemption.trainer.settings import GuardSettings
from preemption.trainer.store import Store

lightning = need("lightning.pytorch", "lightning")
Callback: Any = lightning.Callback

FILE = "lightning.ckpt"


class SaveWhenTold(Callback):  # type: ignore[misc] # its base is not known where we check types
    """See the module. `ranks`: made when the training begins, from its process group, if not given."""

    def __init__(
        self, folder: str | Path, *, settings: GuardSettings | None = None, ranks: Ranks | None = None
    ) -> None:
        self._folder = Path(folder)
        self._settings = settings or GuardSettings()
        self._ranks = ranks
        found = Store(self._folder, self._settings.keep).newest(verify_content=self._settings.verify_content)
        self.newest = None if found is None else str(found.path / FILE)
        """What to give to `ckpt_path`: the newest whole checkpoint; None to begin at the beginning."""
        self.step = 0 if found is None else found.step
        """Optimizer steps that `newest` has completed."""
        self._guard: CheckpointGuard | None = None
        self._trainer: Any = None
        self._generators: dict[str, Any] | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """All is loaded, the process group is there, and this is after Lightning has set its signal handlers."""
        self._trainer = trainer
        self._guard = CheckpointGuard(
            self._folder,
            save=self._save,
            load=_nothing,
            settings=self._settings,
            ranks=self._ranks or plain.ranks(),
        )
        if self.newest is not None and str(trainer.ckpt_path) == self.newest:  # any other one is a new beginning
            self._generators = randomness.read(Path(self.newest).parent / f"random-{plain.current_rank()}.json")
        self._guard.resumed(trainer.global_step)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Before the first batch, and after the loader has drawn its seed."""
        if self._generators is not None:
            randomness.restore(self._generators)
            self._generators = None

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A step is done when the optimizer has stepped. Raises Preempted, RankLost."""
        assert self._guard is not None
        if trainer.global_step > self._guard.done:
            self._guard.step(trainer.global_step)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Listen no more."""
        assert self._guard is not None
        self._guard.finish()

    def _save(self, folder: Path) -> None:
        randomness.write(folder / f"random-{plain.current_rank()}.json")
        self._trainer.save_checkpoint(folder / FILE)


def _nothing(folder: Path) -> None:
    """Lightning reads it itself."""
