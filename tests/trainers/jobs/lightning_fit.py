"""Lightning's Trainer."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

from preemption.trainer.adapters.batches import Batches
from preemption.trainer.adapters.lightning import SaveWhenTold
from tests.trainers.jobs.job import Job, samples


class Tell(pl.Callback):
    """Writes the curve."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        arrays = (one.detach().numpy() for one in pl_module.state_dict().values())
        self.job.trained(trainer.global_step - 1, arrays)


class Slow(SaveWhenTold):
    """On a slow storage."""

    job: Job

    def _save(self, folder: Any) -> None:
        self.job.slowly(super()._save)(folder)


class Model(pl.LightningModule):
    """Dropout, Adam and a scheduler that steps each step."""

    def __init__(self, total: int) -> None:
        super().__init__()
        self.total = total
        self.body = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1)
        )

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        x, y = batch
        return torch.nn.functional.mse_loss(self.body(x + 0.01 * torch.randn(())), y)

    def configure_optimizers(self) -> dict[str, Any]:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.total)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def run(job: Job) -> None:
    """Train to the end, or until told."""
    warnings.filterwarnings("ignore", module="lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.manual_seed(3 + job.rank)
    model = Model(job.total)
    told = Slow(job.checkpoints, settings=job.settings)
    told.job = job
    inputs, targets = map(torch.from_numpy, samples())
    order = Batches(len(inputs), 8, seed=5, start=told.step, share=(job.rank, job.world))
    loader = DataLoader(TensorDataset(inputs, targets), batch_sampler=order)
    trainer = pl.Trainer(
        max_steps=job.total, accelerator="cpu", devices=job.world, strategy="ddp" if job.world > 1 else "auto",
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[Tell(job), told], use_distributed_sampler=False,
    )  # fmt: skip
    trainer.fit(model, loader, ckpt_path=told.newest)
