"""A training job's declaration as the allocator and the cluster adapter read it from the log."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from events.types.shared import Resources
from events.types.training import TrainingDeclared
from events.units import Seconds
from preemption.core.training import Channel, CheckpointPolicy, TrainingPolicy
from preemption.declared_training import read_training


def declared(**spec: JsonValue) -> TrainingDeclared:
    return TrainingDeclared(job="tune", uid="u1", revision=1, generation=1, spec=spec)


def test_what_is_not_said_has_the_policys_defaults() -> None:
    """A command alone is a job of one process without a GPU, with the contract that the policy itself has."""
    policy = read_training(declared(command=["python", "train.py"]))
    small = Resources(cpu=1.0, memory_bytes=1 << 30)
    assert policy == TrainingPolicy(job="tune", command=("python", "train.py"), resources=small)


def test_everything_that_is_said_arrives() -> None:
    """Each field of the declaration is a field of the policy, in plain numbers."""
    policy = read_training(
        declared(
            command=["torchrun", "train.py"], environment={"LR": "3e-4"}, folder="/data/run", members=4,
            resources={"gpus": 2, "cpu": 8, "memory": "16Gi"}, elasticity={"minMembers": 2}, priority=-5,
            preemption={"protected": True, "minRuntime": "10m", "budgetPerHour": 2}, maxFailures=3,
            checkpoint={"channels": ["http"], "signal": "SIGUSR2", "ackTimeout": "5s", "saveTimeout": "15m",
                        "grace": "1m"},
        )
    )  # fmt: skip
    assert policy == TrainingPolicy(
        job="tune", command=("torchrun", "train.py"), environment={"LR": "3e-4"}, folder="/data/run", members=4,
        min_members=2, resources=Resources(gpus=2, cpu=8.0, memory_bytes=16 << 30), priority=-5, protected=True,
        min_run=Seconds(600.0), budget_per_hour=2, max_failures=3,
        checkpoint=CheckpointPolicy(channels=(Channel.HTTP,), signal="SIGUSR2", ack=Seconds(5.0),
                                    save=Seconds(900.0), grace=Seconds(60.0)),
    )  # fmt: skip


def test_a_job_without_elasticity_needs_all_its_members() -> None:
    """The least number of members is the number of members."""
    assert read_training(declared(command=["train"], members=8)).min_members == 8


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "spec.command"),
        ({"command": ["train"], "schedule": "nightly"}, "spec.schedule"),
        ({"command": ["train"], "checkpoint": {"channels": ["pigeon"]}}, "spec.checkpoint.channels.0"),
        ({"command": ["train"], "preemption": {"minRuntime": 5}}, "spec.preemption.minRuntime"),
    ],
)
def test_what_another_release_wrote_is_a_value_error(spec: dict[str, JsonValue], field: str) -> None:
    """A field that is missing, unknown or not understood is named, with the job."""
    with pytest.raises(ValueError, match=rf"training job tune: {field} cannot be read"):
        read_training(declared(**spec))


def test_how_members_look_on_kubernetes_is_anothers() -> None:
    """What stands in `pod` changes nothing here, and makes no declaration unreadable."""
    assert read_training(declared(command=["train"], pod={"image": "a"})) == read_training(declared(command=["train"]))
