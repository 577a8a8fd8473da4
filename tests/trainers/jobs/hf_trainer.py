"""Hugging Face's Trainer on a Llama of a few thousand parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed

from preemption.trainer.adapters.transformers import SaveWhenTold
from tests.trainers.jobs.job import Job


class Tell(TrainerCallback):
    """Writes the curve."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        parameters = more["model"].state_dict().values()
        self.job.trained(state.global_step - 1, (one.detach().numpy() for one in parameters))


class Slow(SaveWhenTold):
    """On a slow storage."""

    job: Job

    def _link(self, folder: Any) -> None:
        self.job.slowly(super()._link)(folder)


def run(job: Job) -> None:
    """Train to the end, or until told."""
    set_seed(3)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
            max_position_embeddings=16, attention_dropout=0.1,
        )
    )  # fmt: skip
    tokens = torch.from_numpy(np.random.default_rng(3).integers(0, 32, (48, 8)))
    data = [{"input_ids": row, "labels": row} for row in tokens]
    arguments = TrainingArguments(
        output_dir=f"{job.folder}/out", max_steps=job.total, per_device_train_batch_size=4, use_cpu=True, seed=3,
        save_strategy="steps" if job.every else "no", save_steps=job.every or 500, save_total_limit=2, report_to=[],
        disable_tqdm=True, logging_strategy="no", learning_rate=1e-3, lr_scheduler_type="cosine",
    )  # fmt: skip
    if job.world > 1:
        assert torch.distributed.is_initialized()
    told = Slow(job.checkpoints, settings=job.settings)
    told.job = job
    trainer = Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Tell(job), told])
    trainer.train(resume_from_checkpoint=told.newest)
