"""Hugging Face's Trainer.

    told = SaveWhenTold("checkpoints")
    trainer = Trainer(..., args=TrainingArguments(..., use_cpu=...), callbacks=[told])
    trainer.train(resume_from_checkpoint=told.newest)

The Trainer's own `enable_jit_checkpoint` hears each rank alone and exits with 0; leave it off. When the ranks agree on
a step, its end asks the Trainer to save; that checkpoint, and each one that the Trainer saves by its own plan, is then
committed into the guard's folder: hard links to the same files where the file system has them, so it takes no space.
`newest` is the newest *whole* one; the Trainer's own search takes the highest number, whole or not.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from preemption.trainer.adapters import torch as plain
from preemption.trainer.adapters.needing import need
from preemption.trainer.board import Ranks
from preemption.trainer.guard import CheckpointGuard
from preemption.trainer.settings import GuardSettings

transformers = need("transformers", "transformers")
Callback: Any = transformers.TrainerCallback


class SaveWhenTold(Callback):  # type: ignore[misc] # its base is not known where we check types
    """See the module. Make it after `TrainingArguments`, which sets up the process group; in the main thread.

    `settings.every_steps` is not used: the Trainer's `save_steps` plans.
    """

    def __init__(
        self, folder: str | Path, *, settings: GuardSettings | None = None, ranks: Ranks | None = None
    ) -> None:
        self._settings = settings or GuardSettings()
        self._ranks = ranks or plain.ranks()
        self._guard = CheckpointGuard(
            folder, save=self._link, load=_nothing, settings=self._settings, ranks=self._ranks
        )
        self._written: Path | None = None
        self._told = False
        found = self._guard.newest if self._ranks.leads else None
        self.newest = self._ranks.follow("" if found is None else str(found.path), self._settings.patience) or None
        """What to give to `resume_from_checkpoint`: the newest whole checkpoint; None to begin at the beginning."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count from where the Trainer begins; its later checkpoints of another life make way. Raises RankLost."""
        if self._ranks.leads:
            _make_way(Path(args.output_dir), state.global_step)
        self._ranks.follow("", self._settings.patience)
        self._guard.resumed(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Told, and all ranks here: save now, and do not evaluate first, for the deadline runs. Raises RankLost."""
        self._told = self._guard.told(state.global_step)
        if self._told:
            control.should_save, control.should_evaluate, control.should_training_stop = True, False, True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The Trainer has written its files: commit them. Raises Preempted when told to go."""
        self._written = Path(args.output_dir, f"checkpoint-{state.global_step}")
        if not self._told:
            self._guard.planned(state.global_step)
            return
        self._told = control.should_training_stop = False
        self._guard.obey()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Listen no more."""
        self._guard.finish()

    def _link(self, folder: Path) -> None:
        """Rank 0: the same files, in the guard's folder."""
        assert self._written is not None
        if self._ranks.leads:
            shutil.copytree(self._written, folder, copy_function=_link_or_copy, dirs_exist_ok=True)


def _make_way(folder: Path, step: int) -> None:
    """Checkpoints beyond `step` would be written over when training gets there, and their content with them, to which
    the guard's have links. They keep it under another name."""
    for path in folder.glob("checkpoint-*"):
        number = path.name.rpartition("-")[2]
        if number.isdigit() and int(number) > step:
            aside = path.with_name(path.name + ".replaced")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)


def _link_or_copy(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)
    return target


def _nothing(folder: Path) -> None:
    """The Trainer reads it itself."""
