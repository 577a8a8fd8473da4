"""What all replicas of the Kubernetes adapter share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from deploy.kubernetes.api import KubeApi
from deploy.kubernetes.lease import Lease
from deploy.kubernetes.pods import PodStore
from deploy.kubernetes.settings import KubernetesSettings
from deploy.local.prober import HttpProber
from events.clock import Clock
from runtime.ports import Engine
from runtime.spec import EngineType


@dataclass(frozen=True, slots=True)
class Tools:
    """See above."""

    clock: Clock
    api: KubeApi
    lease: Lease
    settings: KubernetesSettings
    pods: PodStore
    prober: HttpProber
    engine_for: Callable[[EngineType], Engine]
    node_ready: Callable[[str], bool]
    """Whether a node is there and says that it is well."""
