"""The document that declares a training job, and the rules between its fields."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import ValidationError, ValidationInfo, model_validator
from pydantic_core import InitErrorDetails

from deploy.spec.document import MetadataSpec, broken_rule
from deploy.spec.mig import mig_rules
from deploy.spec.pod import PodSpec
from events.spec import Spec
from preemption.core.training import Channel, CheckpointPolicy, TrainingPolicy
from preemption.training_spec import TrainingSpec


class TrainingJobSpec(TrainingSpec):
    """What the job runs, how it shares GPUs, and how its members look on Kubernetes."""

    pod: PodSpec | None = None
    """On Kubernetes: how a member becomes a pod; `port` is where its SDK takes notices. Not read elsewhere."""


class TrainingJob(Spec):
    """A training job that lends its GPUs to models that need them: it is told in time, saves, and goes on later."""

    api_version: Literal["relume.dev/v1alpha1"]
    """The version of this document's form."""
    kind: Literal["TrainingJob"]
    """What is declared."""
    metadata: MetadataSpec
    """Who the job is. Jobs and models may have the same names."""
    spec: TrainingJobSpec
    """What it runs, and how it shares GPUs."""

    @model_validator(mode="after")
    def _rules_between_fields(self, info: ValidationInfo) -> Self:
        broken = [*mig_rules(self.spec.resources, info), *_gang_rules(self.spec), *_contract_rules(self.spec)]
        if broken:
            raise ValidationError.from_exception_data("TrainingJob", broken)
        return self

    def resolve(self) -> TrainingPolicy:
        """Plain numbers, all of them."""
        return self.spec.resolve(self.metadata.name)


def _gang_rules(spec: TrainingSpec) -> list[InitErrorDetails]:
    if spec.elasticity is None or spec.elasticity.min_members <= spec.members:
        return []
    least = spec.elasticity.min_members
    rule = f"minMembers is above members ({spec.members}), so the job could never run"
    remedy = f"write {spec.members} or less, or raise spec.members"
    return [broken_rule(("spec", "elasticity", "minMembers"), least, rule, remedy, "spec.members")]


def _contract_rules(spec: TrainingSpec) -> list[InitErrorDetails]:
    broken, contract = [], spec.checkpoint
    if contract.ack_timeout > contract.save_timeout:
        rule = "ackTimeout is longer than checkpoint.saveTimeout: a trainer that says nothing would have more time"
        remedy = "make it shorter, or checkpoint.saveTimeout longer"
        path = ("spec", "checkpoint", "ackTimeout")
        broken.append(broken_rule(path, contract.ack_timeout, rule, remedy, "spec.checkpoint.saveTimeout"))
    if contract.signal != CheckpointPolicy().signal and Channel.SIGNAL not in contract.channels:
        rule = "a signal is named, and no channel sends it"
        remedy = "add signal to checkpoint.channels, or leave signal out"
        path = ("spec", "checkpoint", "signal")
        broken.append(broken_rule(path, contract.signal, rule, remedy, "spec.checkpoint.channels"))
    return broken
