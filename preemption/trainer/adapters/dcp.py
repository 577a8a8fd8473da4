"""PyTorch with sharded parameters (FSDP, FSDP2, tensor parallel), saved by `torch.distributed.checkpoint`.

    state = ShardedState(model, optimizer, scheduler=scheduler)
    guard = CheckpointGuard("checkpoints", save=state.save, load=state.load, ranks=ranks())

Each rank writes its own shards; the checkpoint can be loaded by another number of ranks. With ``staged=True`` a planned
save copies the shards to the CPU and goes on training while they are written; told to leave, the guard waits until all
is written, for memory of this process does not outlive it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from preemption.trainer.adapters import randomness
from preemption.trainer.adapters.needing import need
from preemption.trainer.adapters.torch import Stateful, current_rank
from preemption.trainer.saving import Upload

torch = need("torch", "torch")
checkpoint = need("torch.distributed.checkpoint", "torch")
state_dicts = need("torch.distributed.checkpoint.state_dict", "torch")

SHARDS = "shards"


class ShardedState:
    """See the module. `same`: what all ranks hold alike, such as a scheduler; saved with the shards."""

    def __init__(self, model: Any, optimizer: Any, *, staged: bool = False, **same: Stateful) -> None:
        self._model = model
        self._optimizer = optimizer
        self._same = same
        self._staged = staged
        self._group = None
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            # A group of its own, on the CPU: a save in a thread must not meet the training's collectives.
            self._group = torch.distributed.new_group(backend="gloo")

    def save(self, folder: Path) -> Upload | None:
        """Write this rank's shards, or begin to. All ranks together. Raises CheckpointException, OSError."""
        randomness.write(folder / f"random-{current_rank()}.json")
        states, where = self._states(), str(folder / SHARDS)
        if not self._staged:
            checkpoint.save(states, checkpoint_id=where, process_group=self._group)
            return None
        response = checkpoint.async_save(states, checkpoint_id=where, process_group=self._group)
        if hasattr(response, "staging_completion"):
            response.staging_completion.result()  # the next step changes what is copied here
            response = response.upload_completion
        upload: Upload = response
        return upload

    def load(self, folder: Path) -> None:
        """Take the shards back, in the sharding that this run has. Raises CheckpointException, OSError."""
        states = self._states()
        checkpoint.load(states, checkpoint_id=str(folder / SHARDS), process_group=self._group)
        state_dicts.set_state_dict(
            self._model,
            self._optimizer,
            model_state_dict=states["model"],
            optim_state_dict=states["optimizer"],
        )
        for name, one in self._same.items():
            one.load_state_dict(states[name])
        randomness.restore(randomness.read(folder / f"random-{current_rank()}.json"))

    def _states(self) -> dict[str, Any]:
        model, optimizer = state_dicts.get_state_dict(self._model, self._optimizer)
        return {
            "model": model,
            "optimizer": optimizer,
            **{name: one.state_dict() for name, one in self._same.items()},
        }
