"""Settings of where replicas run: processes of this machine, or pods of a Kubernetes cluster."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from events.names import DNS_LABEL_PATTERN


class ClusterKind(StrEnum):
    """Where replicas run."""

    LOCAL = "local"
    KUBERNETES = "kubernetes"


class KubernetesFields(BaseSettings):
    """How the cluster is reached, and where in it replicas are."""

    model_config = SettingsConfigDict(use_attribute_docstrings=True)

    cluster: ClusterKind = ClusterKind.LOCAL
    """Where replicas run: local (processes of this machine) or kubernetes (pods; models are objects of the cluster)."""
    kubeconfig: Path | None = None
    """How the cluster is reached. Default: the account of the pod that relume runs in, else the user's kubeconfig."""
    kube_context: str = ""
    """The context in the kubeconfig. Default: its current one."""
    kube_namespace: Annotated[str, Field(pattern=DNS_LABEL_PATTERN)] = "default"
    """The namespace of the Model objects and of the pods. One relume each namespace."""
    kube_enrolled: Annotated[str, Field(pattern=r"^([a-z0-9]+(\.[a-z0-9-]+)+(,[a-z0-9]+(\.[a-z0-9-]+)+)*)?$")] = (
        "deployments.apps,statefulsets.apps"
    )
    """Kinds of objects that the annotation relume.dev/model enrols: RESOURCE.GROUP, with commas. Empty: none."""
    pod_resources: Path | None = None
    """The folder of the kubelet's socket that tells agents which pod has which GPU, such as
    /var/lib/kubelet/pod-resources. Default: nobody is asked."""
    kube_weights_claim: Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$")] = ""
    """The volume claim that is each node's own weight cache, where agents run. Default: none; remote weights are
    refused."""
