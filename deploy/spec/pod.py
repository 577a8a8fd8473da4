"""What a declaration says for Kubernetes alone: how a replica's pod looks, or which object is scaled instead.

Both are read by the Kubernetes adapter and by nobody else: on one machine the same file declares the same model.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from events.spec import Quantity, Spec
from preemption.spec import ResourcesSpec

OBJECT_NAME_PATTERN = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
"""Kubernetes' rule for names of objects."""

ObjectName = Annotated[str, StringConstraints(pattern=OBJECT_NAME_PATTERN)]
Path = Annotated[str, StringConstraints(pattern=r"^/[^:]*$", max_length=1024)]
Text = Annotated[str, StringConstraints(max_length=253)]
Word = Annotated[str, StringConstraints(min_length=1, max_length=317)]


class MountSpec(Spec):
    """A folder in the container: of a volume claim, of the node, or in memory; one of the three."""

    path: Path
    """Where it is in the container."""
    claim: ObjectName | None = None
    """A PersistentVolumeClaim of the same namespace, such as one with weights."""
    host_path: Path | None = None
    """A folder of the node."""
    memory: Annotated[Quantity, Field(gt=0)] | None = None
    """A folder in memory that holds so many bytes, such as /dev/shm for engines that run in several processes."""
    read_only: bool = False
    """The container cannot write to it."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [self.claim is not None, self.host_path is not None, self.memory is not None]
        if sum(given) != 1:
            raise ValueError("a mount has one source; write one of claim, hostPath and memory")
        return self


class TolerationSpec(Spec):
    """A taint of nodes that the pod bears, as Kubernetes has it."""

    key: Text | None = None
    """The taint's key; absent: all keys."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Whether the value counts."""
    value: Text | None = None
    """The taint's value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Which effect; absent: all."""


class PodSpec(Spec):
    """How a replica becomes a pod on Kubernetes. What is not here relume decides; who needs more enrols a Deployment of
    their own with `scaleTargetRef`."""

    image: Annotated[str, StringConstraints(min_length=1, max_length=512)]
    """The container's image. It holds the engine's program."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """When the image is pulled; default: Kubernetes' own."""
    image_pull_secrets: Annotated[tuple[ObjectName, ...], Field(max_length=16)] = ()
    """Secrets with the registry's passwords."""
    port: Annotated[int, Field(ge=1, le=65535)] = 8000
    """Where the engine listens in its pod: {port}."""
    env_from_secrets: Annotated[tuple[ObjectName, ...], Field(max_length=16)] = ()
    """Secrets whose entries become environment variables, such as a token for a hub of models."""
    service_account: ObjectName | None = None
    """The account that the engine has in the cluster; its token is not mounted."""
    run_as_user: Annotated[int, Field(ge=1)] | None = None
    """The number of the user that the engine runs as; default: the image's."""
    priority_class: ObjectName | None = None
    """The PriorityClass of its pods; default: the cluster's own default."""
    runtime_class: ObjectName | None = None
    """The RuntimeClass of its pods, such as nvidia."""
    scheduler: ObjectName | None = None
    """The scheduler that binds its pods; default: the cluster's own."""
    node_selector: Annotated[dict[Word, Text], Field(max_length=32)] = Field(default_factory=dict)
    """Labels that its nodes must have."""
    tolerations: Annotated[tuple[TolerationSpec, ...], Field(max_length=32)] = ()
    """Taints of nodes that it bears; the one that nodes with GPUs usually have, nvidia.com/gpu, is always borne."""
    mounts: Annotated[tuple[MountSpec, ...], Field(max_length=32)] = ()
    """Folders in its container."""


class WorkersSpec(Spec):
    """Pods that an object makes for each replica beside the one that serves, as a LeaderWorkerSet does."""

    count: Annotated[int, Field(ge=1, le=1023)]
    """How many for one replica."""
    resources: ResourcesSpec = ResourcesSpec()
    """What each of them needs."""


class ScaleTargetSpec(Spec):
    """An object that exists already and is scaled through its `scale` subresource. relume does not own it, and never
    changes anything of it but the number of replicas."""

    api_version: Annotated[str, StringConstraints(pattern=r"^([a-z0-9.-]+/)?v[a-z0-9]+$")] = "apps/v1"
    """Its apiVersion."""
    kind: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Za-z0-9]{0,62}$")] = "Deployment"
    """Its kind: anything that has a scale subresource with a selector."""
    name: Annotated[str, StringConstraints(pattern=OBJECT_NAME_PATTERN)]
    """Its name, in the namespace of the model."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Where its pods serve; default: the first port that their container names."""
    workers: WorkersSpec | None = None
    """Pods beside the one that serves; `resources` are that one's. A replica starts only where there is room for all of
    them."""
