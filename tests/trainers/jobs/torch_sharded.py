"""FSDP2 (`fully_shard`) with DCP; variant `staged` writes planned saves while it goes on training."""

from __future__ import annotations

import torch
import torch._dynamo  # the first optimizer imports it: a second that is spent once here, before forking
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from preemption.trainer import CheckpointGuard
from preemption.trainer.adapters.batches import Batches
from preemption.trainer.adapters.dcp import ShardedState
from preemption.trainer.adapters.torch import ranks
from tests.trainers.jobs.job import Job, samples


def run(job: Job) -> None:
    """Train to the end, or until told."""
    place = f"tcp://127.0.0.1:{job.port}"
    torch.distributed.init_process_group("gloo", init_method=place, rank=job.rank, world_size=job.world)
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))
    fully_shard(model, mesh=init_device_mesh("cpu", (job.world,)))
    torch.manual_seed(job.rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, job.total)
    state = ShardedState(model, optimizer, staged=job.variant == "staged", scheduler=scheduler)
    guard = CheckpointGuard(
        job.checkpoints, save=job.slowly(state.save), load=state.load, settings=job.settings, ranks=ranks()
    )
    inputs, targets = map(torch.from_numpy, samples())
    start = guard.resume()
    order = iter(Batches(len(inputs), 8, seed=5, start=start, share=(job.rank, job.world)))
    for step in range(start, job.total):
        batch = next(order)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs[batch]), targets[batch]).backward()
        optimizer.step()
        scheduler.step()
        job.trained(step, (one.to_local().detach().numpy() for one in model.parameters()))
        guard.step(step + 1)
    guard.finish()
    torch.distributed.destroy_process_group()
