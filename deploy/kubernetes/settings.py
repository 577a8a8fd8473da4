"""Numbers of the Kubernetes adapter. Those that users may change are in `deploy.settings`; compose passes them on."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from deploy.kubernetes.judging import Limits
from events.units import Seconds


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """Settings of a `KubernetesCluster`."""

    namespace: str = "default"
    """Where its models and pods are: one namespace each relume."""
    kubeconfig: Path | None = None
    """None: the account of the pod that we are in, or the user's own kubeconfig."""
    context: str = ""
    identity: str = "relume"
    """Who we are in the Lease; of one process only."""
    lease: str = "relume"
    """The name of the Lease in the namespace."""
    lease_for: Seconds = Seconds(15.0)
    """A Lease that is not renewed for so long may be taken (client-go's own)."""
    renew_every: Seconds = Seconds(2.0)
    """As client-go's retryPeriod."""
    drain_bound: Seconds = Seconds(300.0)
    """A draining replica is deleted after its model's `timeouts.total`, and after this at the latest."""
    enrolled: tuple[str, ...] = ()
    """Kinds of objects, ``RESOURCE.GROUP``, that are followed for the annotation that enrols them."""
    weights_claim: str = ""
    """The claim of the volume that is each node's own cache; empty: no agents run, and remote weights are refused."""
    agent_token: str | None = None
    """Of the agents' admin ports."""
    limits: Limits = field(default_factory=Limits)
    start_within: Seconds = Seconds(1800.0)
    """From the container's start to the first token; then it hangs. Chosen: 400 GB at 400 MB/s take 1,000 s."""
    warmup_bound: Seconds = Seconds(120.0)
    """Longest one-token request."""
    override_for: Seconds = Seconds(3600.0)
    """How long a number stands that another hand wrote into an enrolled object."""
    standing_override: Seconds = Seconds(30 * 86400.0)
    """How far ahead a Model's own `spec.replicas` is kept standing; it is renewed while it is there."""
