"""JAX, with Orbax: a tree of arrays, and the iterator over the data.

    state = JaxState({"params": params, "opt": opt_state, "key": key}, iterator=iterator)
    guard = CheckpointGuard("checkpoints", save=state.save, load=state.load, ranks=ranks())
    for step in guard.steps(total):
        state.tree = train(state.tree, next(iterator))

Orbax writes; what counts is the guard's mark. `jax_enable_preemption_service` is not needed: the guard hears SIGTERM.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from preemption.trainer.adapters import randomness
from preemption.trainer.adapters.needing import need
from preemption.trainer.board import Ranks

jax = need("jax", "jax")
orbax = need("orbax.checkpoint", "jax")

TREE = "tree"


@runtime_checkable
class Positioned(Protocol):
    """An iterator over data that knows where it is, as Grain's do: values that JSON can hold, or bytes."""

    def get_state(self) -> Any:
        """Where it is."""

    def set_state(self, state: Any) -> object:
        """Go there."""


class JaxState:
    """See the module. `tree`: replace it after each step. Random keys may be of the new or of the old kind."""

    def __init__(self, tree: Mapping[str, Any], *, iterator: Positioned | None = None) -> None:
        self.tree: Any = tree
        self._iterator = iterator

    def save(self, folder: Path) -> None:
        """Write the tree (all processes together) and this process' iterator. Raises what Orbax raises."""
        with orbax.StandardCheckpointer() as writer:
            writer.save((folder / TREE).absolute(), jax.tree.map(_plain, self.tree))
            writer.wait_until_finished()
        rank = jax.process_index()
        randomness.write(folder / f"random-{rank}.json")
        if self._iterator is not None:
            at = self._iterator.get_state()
            text = json.dumps({"bytes": at.hex()} if isinstance(at, bytes) else {"value": at})
            (folder / f"iterator-{rank}.json").write_text(text, encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Take the tree back, in the sharding of the tree that is there, and the iterator's position."""
        like = jax.tree.map(_plain, self.tree)
        with orbax.StandardCheckpointer() as reader:
            found = reader.restore((folder / TREE).absolute(), jax.tree.map(orbax.utils.to_shape_dtype_struct, like))
        self.tree = jax.tree.map(_typed, self.tree, found)
        rank = jax.process_index()
        if self._iterator is not None:
            at = json.loads((folder / f"iterator-{rank}.json").read_text(encoding="utf-8"))
            self._iterator.set_state(bytes.fromhex(at["bytes"]) if "bytes" in at else at["value"])
        randomness.restore(randomness.read(folder / f"random-{rank}.json"))


class CoordinationBoard:
    """A board on the coordination service that `jax.distributed.initialize` starts."""

    def __init__(self, client: Any, prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    def put(self, key: str, value: str) -> None:
        """See `Board.put`."""
        try:
            self._client.key_value_set(f"{self._prefix}/{key}", value, allow_overwrite=True)
        except jax.errors.JaxRuntimeError as error:
            raise OSError(f"JAX's coordination service: {error}") from None

    def get(self, key: str) -> str | None:
        """See `Board.get`."""
        try:
            found: str = self._client.key_value_try_get(f"{self._prefix}/{key}")
        except jax.errors.JaxRuntimeError as error:
            if "NOT_FOUND" in str(error):
                return None
            raise OSError(f"JAX's coordination service: {error}") from None
        return found


def ranks() -> Ranks:
    """The processes of `jax.distributed`, meeting on its coordination service; else what the environment says."""
    client = need("jax._src.distributed", "jax").global_state.client  # there is no public way to it
    if client is None:
        return Ranks.from_environment()
    return Ranks(jax.process_index(), jax.process_count(), CoordinationBoard(client, "relume"))


def _plain(leaf: Any) -> Any:
    """Random keys as the numbers they are."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _typed(like: Any, leaf: Any) -> Any:
    return jax.random.wrap_key_data(leaf, impl=jax.random.key_impl(like)) if _is_key(like) else leaf


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and bool(jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key))
