"""JAX with Orbax: a tree with a random key, an iterator that knows its position; `world` processes share a batch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from preemption.trainer import CheckpointGuard
from preemption.trainer.adapters.batches import Batches
from preemption.trainer.adapters.jax import JaxState, ranks
from tests.trainers.jobs.job import Job, samples


class Data:
    """An iterator with the two methods that Grain's have."""

    def __init__(self, share: tuple[int, int]) -> None:
        self._taken = 0
        self._share = share
        self._inputs, self._targets = samples()
        self._order = iter(Batches(len(self._inputs), 8, seed=5, share=share))

    def __next__(self) -> tuple[np.ndarray, np.ndarray]:
        self._taken += 1
        batch = next(self._order)
        return self._inputs[batch], self._targets[batch]

    def get_state(self) -> dict[str, int]:
        return {"taken": self._taken}

    def set_state(self, state: dict[str, int]) -> None:
        self._taken = state["taken"]
        self._order = iter(Batches(len(self._inputs), 8, seed=5, start=self._taken, share=self._share))


def loss(params: dict, key: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    hidden = jnp.tanh(x @ params["in"]) * jax.random.bernoulli(key, 0.8, (16,))
    return jnp.mean((hidden @ params["out"] - y) ** 2)


@jax.jit
def train(tree: dict, x: jax.Array, y: jax.Array) -> dict:
    """One step of SGD with momentum."""
    key, drawn = jax.random.split(tree["key"])
    slope = jax.grad(loss)(tree["params"], drawn, x, y)
    speed = jax.tree.map(lambda v, g: 0.9 * v + g, tree["speed"], slope)
    params = jax.tree.map(lambda p, v: p - 0.01 * v, tree["params"], speed)
    return {"params": params, "speed": speed, "key": key, "steps": tree["steps"] + 1}


def run(job: Job) -> None:
    """Train to the end, or until told."""
    if job.world > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{job.port}", job.world, job.rank)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("batch",))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    parted = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    key = jax.random.key(1)
    params = {"in": jax.random.normal(key, (8, 16)) * 0.1, "out": jax.random.normal(key, (16, 1)) * 0.1}
    tree = {"params": params, "speed": jax.tree.map(jnp.zeros_like, params), "key": key, "steps": jnp.int32(0)}
    data = Data((job.rank, job.world))
    state = JaxState(jax.jit(lambda: tree, out_shardings=everywhere)(), iterator=data)
    guard = CheckpointGuard(
        job.checkpoints, save=job.slowly(state.save), load=state.load, settings=job.settings, ranks=ranks()
    )
    for step in guard.steps(job.total):
        mine = (jax.make_array_from_process_local_data(parted, one) for one in next(data))
        state.tree = train(state.tree, *mine)
        job.trained(step, (leaf.addressable_data(0) for leaf in jax.tree.leaves(state.tree["params"])))
