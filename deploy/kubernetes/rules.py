"""The rules between fields as CEL, which the API server checks when an object is written.

They say what the validators of the declaration say (`deploy.spec.model`, `deploy.spec.training`, the packages' slices),
so that most mistakes are refused at once. What CEL cannot know, such as an engine's options, the adapter checks by the
validators themselves and tells in the object's conditions. One table of bad documents runs against both
(`tests/deploy/kubernetes/test_definitions.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from autoscaler.policy_spec import OWN_PATTERN
from deploy.spec.model import POLICIES
from events.names import DNS_LABEL_PATTERN
from preemption.core.training import CheckpointPolicy


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL expression over ``self``, and what is said when it does not hold: rule; remedy."""

    expression: str
    message: str


def _at_most(less: str, more: str) -> str:
    """That one duration is no longer than another. CEL's durations know no days: the adapter compares those."""
    return f"{less}.contains('d') || {more}.contains('d') || duration({less}) <= duration({more})"


_NAMED: Final = Rule(
    f"self.metadata.name.matches('{DNS_LABEL_PATTERN}') && self.metadata.name.size() <= 63",
    "metadata.name is not a DNS label; use lower case letters, digits and hyphens, at most 63",
)

_RESOURCES: Final = (
    Rule("(self.gpus > 0 ? 1 : 0) + (has(self.gpuFraction) ? 1 : 0) + (has(self.gpuMemory) ? 1 : 0)"
         " + (has(self.migProfile) ? 1 : 0) <= 1",
         "gpus, gpuFraction, gpuMemory and migProfile are given together; keep one"),
)  # fmt: skip

_MOUNT: Final = (
    Rule("(has(self.claim) ? 1 : 0) + (has(self.hostPath) ? 1 : 0) + (has(self.memory) ? 1 : 0) == 1",
         "a mount has one source; write one of claim, hostPath and memory"),
)  # fmt: skip

_MEASURED: Final = (
    "((has(self.kafkaLag) ? 1 : 0) + (has(self.prometheus) ? 1 : 0) + (has(self.engine) ? 1 : 0))"
)  # fmt: skip

MODEL: Final[Mapping[str, Sequence[Rule]]] = {
    "": (
        _NAMED,
        Rule("!(self.metadata.name in self.spec.aliases)", "an alias is the model's own name; leave it out"),
    ),
    "spec": (
        Rule("self.engine.type != 'llamacpp' || has(self.weights) || has(self.scaleTargetRef)",
             "engine llamacpp loads a file and none is named; add weights: {uri: /path/to/model.gguf}"),
        Rule("!has(self.scaling.target) || double(self.scaling.target) <= double(self.slots)",
             "scaling.target is above slots: no replica could ever carry it; write it smaller, or raise spec.slots"),
        Rule("!(has(self.pod) && has(self.scaleTargetRef))",
             "pod and scaleTargetRef both say what a replica is; keep one"),
    ),
    "spec.scaling": (
        Rule("self.minReplicas <= self.maxReplicas",
             "minReplicas is above maxReplicas; lower one or raise the other"),
        Rule(f"self.policy in [{', '.join(repr(name) for name in POLICIES)}]"
             f" || self.policy.matches(r'^{OWN_PATTERN.pattern}$')",
             f"there is no policy of this name; write {' or '.join(POLICIES)} or module:function"),
        Rule("!has(self.coldStartCost) || self.keepAlive == '5m'",
             "keepAlive and coldStartCost both say how long idle replicas live; leave one out"),
        Rule(_at_most("self.panicWindow", "self.stableWindow"),
             "panicWindow is longer than stableWindow; make it shorter"),
        Rule("self.schedules.all(one, one.minReplicas <= self.maxReplicas)",
             "a schedule wants more replicas than maxReplicas; lower one or raise the other"),
    ),
    "spec.scaling.signals[]": (
        Rule(f"has(self.name) || {_MEASURED} > 0",
             "a signal needs a name, or says what is measured; add name, kafkaLag, prometheus or engine"),
        Rule(f"{_MEASURED} <= 1",
             "kafkaLag, prometheus and engine are signals of their own; write each as an item of its own"),
        Rule(f"{_MEASURED} == 0 || !(has(self.target) || has(self.activation))",
             "target and activation of a kafkaLag, a prometheus or an engine stand inside it; move them there"),
    ),
    "spec.scaling.signals[].kafkaLag": (
        Rule("!has(self.cluster) || size(self.bootstrapServers) == 0",
             "cluster and bootstrapServers both say where the topic is; leave one out"),
        Rule("size(self.partitions) == 0 || has(self.topic)",
             "partitions are those of one topic; name the topic"),
        Rule("!self.limitToPartitionsWithLag || has(self.topic)",
             "limitToPartitionsWithLag counts partitions of one topic; name the topic"),
        Rule("!self.limitToPartitionsWithLag || !(self.allowIdleConsumers || self.ensureEvenDistribution)",
             "limitToPartitionsWithLag contradicts allowIdleConsumers and ensureEvenDistribution; leave it out"),
    ),
    "spec.resources": _RESOURCES,
    "spec.timeouts": tuple(
        Rule(f"!has(self.{name}) || {_at_most(f'self.{name}', 'self.total')}",
             f"{name} is longer than timeouts.total, so it can never run out; make it shorter, or timeouts.total "
             "longer")
        for name in ("firstByte", "idle")
    ),
    **{
        f"spec.slo.{name}": tuple(
            Rule(f"!has(self.{low}) || !has(self.{high}) || {_at_most(f'self.{low}', f'self.{high}')}",
                 f"{low} is longer than {high}, which cannot be; let the promises grow with the percentile")
            for low, high in (("p50", "p95"), ("p95", "p99"), ("p50", "p99"))
        )
        for name in ("timeToFirstToken", "latency")
    },
    "spec.pod.mounts[]": _MOUNT,
}  # fmt: skip
"""By the path of the object that ``self`` is; ``[]`` stands for each item."""

TRAINING: Final[Mapping[str, Sequence[Rule]]] = {
    "": (_NAMED,),
    "spec": (
        Rule("!has(self.elasticity) || !has(self.elasticity.minMembers) || self.elasticity.minMembers <= self.members",
             "elasticity.minMembers is above members, so the job could never run; write it smaller, or raise members"),
    ),
    "spec.checkpoint": (
        Rule(_at_most("self.ackTimeout", "self.saveTimeout"),
             "ackTimeout is longer than saveTimeout: a trainer that says nothing would have more time; make it "
             "shorter"),
        Rule(f"self.signal == '{CheckpointPolicy().signal}' || 'signal' in self.channels",
             "a signal is named, and no channel sends it; add signal to checkpoint.channels, or leave signal out"),
    ),
    "spec.resources": _RESOURCES,
    "spec.pod.mounts[]": _MOUNT,
}  # fmt: skip

POOL: Final[Mapping[str, Sequence[Rule]]] = {
    "": (_NAMED,),
    "spec.settling": (
        Rule(_at_most("self.first", "self.longest"),
             "first is longer than longest, so longest would shorten it; make it shorter, or longest longer"),
    ),
}  # fmt: skip

UNFILLED: Final = frozenset({"spec.timeouts.firstByte", "spec.timeouts.idle"})
"""Fields whose defaults the API server must not fill in: a rule asks whether a person wrote them."""

SETS: Final = frozenset({"spec.aliases"})
"""Lists in which nothing may stand twice."""
