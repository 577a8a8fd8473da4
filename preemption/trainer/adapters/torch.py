"""PyTorch, alone or with DistributedDataParallel.

    state = TorchState(model=model, optimizer=optimizer, scheduler=scheduler)
    guard = CheckpointGuard("checkpoints", save=state.save, load=state.load, ranks=ranks())

Saved: the `state_dict()` of each object by name, and each rank's generators (Python, numpy, torch, CUDA). Under DDP all
ranks hold the same, so rank 0 writes it. For FSDP see `preemption.trainer.adapters.dcp`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from preemption.trainer.adapters import randomness
from preemption.trainer.adapters.needing import need
from preemption.trainer.board import Ranks

torch = need("torch", "torch")


class Stateful(Protocol):
    """A model, an optimizer, a scheduler, a scaler, a loader of torchdata."""

    def state_dict(self) -> Any:
        """What to save."""

    def load_state_dict(self, state: Any) -> object:
        """Take it back."""


class TorchState:
    """See the module. `each_rank`: what differs from rank to rank, such as a stateful loader or a sharded optimizer.

    Files are read with `weights_only`: a checkpoint holds data and runs no code.
    """

    def __init__(self, *, each_rank: Mapping[str, Stateful] | None = None, **same: Stateful) -> None:
        self._same = same
        self._own = dict(each_rank or {})
        self._rank = current_rank()

    def save(self, folder: Path) -> None:
        """Write this rank's part. Raises OSError, RuntimeError (torch's word for a full disk)."""
        if self._rank == 0:
            _write(self._same, folder / "model.pt")
        if self._own:
            _write(self._own, folder / f"rank-{self._rank}.pt")
        randomness.write(folder / f"random-{self._rank}.json")

    def load(self, folder: Path) -> None:
        """Take this rank's part back. Raises what torch raises for files that do not fit."""
        _read(self._same, folder / "model.pt")
        if self._own:
            _read(self._own, folder / f"rank-{self._rank}.pt")
        randomness.restore(randomness.read(folder / f"random-{self._rank}.json"))


class StoreBoard:
    """A board on a store of `torch.distributed`: nothing shared but the job's own rendezvous."""

    def __init__(self, store: Any) -> None:
        """`store`: a connection of its own, for another thread's wait would hold a shared one up."""
        self._store = store

    def put(self, key: str, value: str) -> None:
        """See `Board.put`."""
        try:
            self._store.set(key, value)
        except torch.distributed.DistError as error:
            raise OSError(f"torch's store: {error}") from None

    def get(self, key: str) -> str | None:
        """See `Board.get`."""
        try:
            if not self._store.check([key]):
                return None
            found: bytes = self._store.get(key)
        except torch.distributed.DistError as error:
            raise OSError(f"torch's store: {error}") from None
        return found.decode()


def ranks() -> Ranks:
    """The ranks of the initialized process group, meeting on its store: CPU traffic, whatever backend trains.

    Without a process group, what the environment says. A restart by torchrun meets under a name of its own.
    """
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return Ranks.from_environment()
    store = distributed.distributed_c10d._get_default_store()  # noqa: SLF001 - there is no public way to it
    start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    own = distributed.PrefixStore(f"relume/{start}", store.clone())
    return Ranks(distributed.get_rank(), distributed.get_world_size(), StoreBoard(own))


def current_rank() -> int:
    """This process' rank in the process group; 0 without one."""
    distributed = torch.distributed
    grouped = distributed.is_available() and distributed.is_initialized()
    return int(distributed.get_rank()) if grouped else 0


def _write(objects: Mapping[str, Stateful], path: Path) -> None:
    torch.save({name: one.state_dict() for name, one in objects.items()}, path)


def _read(objects: Mapping[str, Stateful], path: Path) -> None:
    states = torch.load(path, map_location="cpu", weights_only=True)
    for name, one in objects.items():
        one.load_state_dict(states[name])
