"""PyTorch alone, and with DistributedDataParallel (`world` 2): dropout, AdamW, a scheduler, noise of three sources."""

from __future__ import annotations

import random

import numpy as np
import torch
import torch._dynamo  # the first optimizer imports it: a second that is spent once here, before forking
from torch.utils.data import DataLoader, TensorDataset

from preemption.trainer import CheckpointGuard
from preemption.trainer.adapters.batches import Batches
from preemption.trainer.adapters.torch import TorchState, ranks
from tests.trainers.jobs.job import Job, samples


def run(job: Job) -> None:
    """Train to the end, or until told."""
    if job.world > 1:
        place = f"tcp://127.0.0.1:{job.port}"
        torch.distributed.init_process_group("gloo", init_method=place, rank=job.rank, world_size=job.world)
    torch.manual_seed(job.rank)
    random.seed(job.rank)
    np.random.seed(job.rank)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.2), torch.nn.Tanh(), torch.nn.Linear(16, 1)
    )
    trained = torch.nn.parallel.DistributedDataParallel(model) if job.world > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, job.total)
    state = TorchState(model=model, optimizer=optimizer, scheduler=scheduler)
    guard = CheckpointGuard(
        job.checkpoints, save=job.slowly(state.save), load=state.load, settings=job.settings, ranks=ranks()
    )
    inputs, targets = map(torch.from_numpy, samples())
    order = Batches(len(inputs), 8, seed=5, start=guard.resume(), share=(job.rank, job.world))
    loader = DataLoader(TensorDataset(inputs, targets), batch_sampler=order, generator=torch.Generator())
    for step, (x, y) in zip(range(order.start, job.total), loader, strict=False):
        noisy = x + 0.01 * torch.randn(()) + 0.01 * random.random() + 0.01 * np.random.random()
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(trained(noisy), y).backward()
        optimizer.step()
        scheduler.step()
        job.trained(step, (one.detach().numpy() for one in model.state_dict().values()))
        guard.step(step + 1)
    guard.finish()
    if job.world > 1:
        torch.distributed.destroy_process_group()
