"""What the GPUs of a node say of themselves, and who has them: told by the cluster adapter, as the agent of the node
sees it. Part of `relume.cards`.

The ledger counts cards (`events.types.replicas.Card`), by names of its own where a device plugin gives them out. Here
stand the devices as their driver knows them.
"""

from __future__ import annotations

from events.kinds import event, value
from events.names import Topic
from events.types.shared import Count


@value
class NodeGpu:
    """One GPU, or one MIG instance (`parent` is its card). None: nobody can tell, which is neither none nor zero.

    `pods`: ``NAMESPACE/POD`` of those that the kubelet has given it to. `empty`: whether nobody is on it. `processes`:
    those that the agent sees (without the host's process namespace: its own alone). `sick`: what is wrong with it, in
    words; empty: nothing that is known. `split`: a card whose instances are used instead.
    """

    id: str
    product: str = ""
    memory_bytes: Count | None = None
    used_bytes: Count | None = None
    empty: bool | None = None
    processes: Count = 0
    pods: tuple[str, ...] | None = None
    sick: str = ""
    parent: str = ""
    split: bool = False

    @property
    def unaccounted(self) -> bool:
        """Whether somebody is on it whom no pod accounts for: a process that has outlived its pod, or was started
        beside Kubernetes."""
        return self.empty is False and self.pods == () and not self.split


@event("relume.gpus.observed", Topic.CARDS)
class GpusObserved:
    """All GPUs of a node. State of key ``gpus/NODE``. `known`: whether its agent could see any; if not, nothing is
    known of them, not even that there are none."""

    node: str
    known: bool
    gpus: tuple[NodeGpu, ...] = ()
