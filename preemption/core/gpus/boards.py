"""How cards and nodes reach each other, by what is told of them: islands of NVLink, NUMA nodes, and the network.

What the adapter tells counts. Where it tells of no card's NVLink (a device plugin counts cards and names none, HAMi
tells of NUMA nodes only), the product may say it: cards of boards with an NVSwitch all reach each other. Nodes tell
where in the network they are by labels, which several programs set; the first that is there counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from events.types.replicas import Card
from preemption.core.gpus.topology import Domain

SWITCHED: Final = ("H100 80GB HBM3", "NVIDIA H200", "NVIDIA B200", "NVIDIA GB200", "NVIDIA B300", "NVIDIA GB300")
"""Products of boards whose cards all reach each other over NVLink, beside those with SXM4 and later in their names
(A100). ``NVL`` in a name means bridges of two or four cards, so it is none."""

LEVELS: Final = (
    ("topology.kubernetes.io/zone",),
    ("network.topology.nvidia.com/spine", "topology.k8s.aws/network-node-layer-2",
     "cloud.google.com/gce-topology-block"),
    ("network.topology.nvidia.com/leaf", "topology.k8s.aws/network-node-layer-3",
     "cloud.google.com/gce-topology-subblock"),
    ("nvidia.com/gpu.clique", "network.topology.nvidia.com/accelerator"),
)  # fmt: skip
"""Labels of parts of the network, the widest first: Kubernetes' own, those of NVIDIA's Topograph and GPU feature
discovery, of Amazon and of Google. The last is a domain of NVLink across nodes."""


def domains_of(cards: Sequence[Card]) -> tuple[Domain, ...]:
    """The island and the NUMA node of each card of a node; empty where nothing is known of any."""
    told = any(card.link is not None for card in cards)
    domains = tuple((card.link if told or not _switched(card) else 0, card.numa) for card in cards)
    return domains if any(domain != (None, None) for domain in domains) else ()


def network_of(labels: Mapping[str, str] | None) -> tuple[str, ...]:
    """In which part of the network a node is, by level; empty where it is not known."""
    known = labels or {}
    return tuple(next((known[key] for key in keys if known.get(key)), "") for keys in LEVELS)


def _switched(card: Card) -> bool:
    words = card.product.replace("-", " ")
    if card.profile or card.virtual or " NVL" in words:
        return False
    return any(name in words for name in SWITCHED) or any(f"SXM{number}" in words for number in (4, 5, 6))
