"""What the allocator knows of one model, and the words for why it decided as it did. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from events.types.grants import GrantDecided
from events.types.models import Override
from events.types.replicas import FAILED_STARTS, ReplicasObserved
from events.types.shared import Resources
from events.units import Instant, Seconds
from preemption.core.lending.policy import LendingPolicy
from preemption.core.terms import ANYWHERE, Terms


class Reason(StrEnum):
    """Why a grant is what it is; in a grant they stand in the order in which they applied."""

    WISH = "wish"
    """The autoscaler's wish was the number to grant."""
    OVERRIDE = "override"
    """A person's number stood before the wish."""
    NO_WISH = "no_wish_known"
    """No valid wish is known: what was granted stays."""
    CAPPED = "max_replicas"
    """The wish was above the model's maxReplicas."""
    DELETED = "deleted"
    """The model is no longer declared: all its replicas drain."""
    DRAINS = "drains"
    """Replicas that are not wanted any more finish what they run and go."""
    TAKES_BACK = "takes_drain_back"
    """A draining replica goes on, since the number rose again."""
    WAKES = "wakes_sleeper"
    """A replica that slept is woken, since its place is free."""
    ROLLS_OUT = "rolls_out_revision"
    """Replicas of an older revision serve until those of the new one are ready."""
    DRAINS_FIRST = "drains_one_first"
    """The new revision fits only after an old replica has gone."""
    KEEPS_OLD = "keeps_old_revision"
    """The new revision failed to start too often: the old one stays."""
    BACKS_OFF = "starts_back_off"
    """Starts failed: nothing more is granted before the next try, and places that stand empty go to others."""
    GIVES_UP = "gives_up_what_is_only_kept"
    """A replica that nothing needed went to a model for which requests wait. It is not started again before it is
    needed."""
    PLACEMENT_GONE = "placement_gone"
    """A replica that had not started lost its place: the cards or the node are not there any more."""
    LACKS_GPUS = "lacks_gpus"
    LACKS_CPU = "lacks_cpu"
    LACKS_MEMORY = "lacks_memory"
    FITS_NOWHERE = "fits_no_node"
    """No node could ever hold it."""
    NODES_REFUSE = "nodes_refuse"
    """Nodes could hold it, and none may: a label that it wants, or a taint that it does not bear."""
    QUOTA = "quota"
    """A quota or a limit of its namespace says no, whatever is free."""
    AWAITS_WEIGHTS = "awaits_weights"
    """The new revision fits only after an old replica has gone; that stays until the weights are on the node."""
    WAITS = "waits_for_higher_priority"
    """What it needs is lacked by a model of higher priority, which comes first."""
    TRAINING_YIELDS = "training_yields"
    """Training jobs were told to checkpoint and give up their cards for it."""
    NO_VICTIM = "no_training_may_yield"
    COMING = "waits_for_coming"
    """Enough will be free soon: replicas drain, or training ends, without anybody's work being lost."""
    CALLS = "calls_for_nodes"
    """There is no room: stand-ins wait, so that whoever adds nodes to the cluster adds one."""
    NO_NODE = "no_node_came"
    """Nodes were called for, and the call was taken back; it is made again after a pause."""


@dataclass(frozen=True, slots=True)
class Locality:
    """How what `relume.caches` tells of the nodes counts. All chosen.

    Nodes that are later than the earliest by no more than the tolerance are as good, and the best fit among them is
    taken: `hurried` seconds where requests wait for the replica, `unhurried` where none does, and `share` of the
    earliest's seconds where that is more; so are all that keep the model's promise twice over (`promised`: the share
    of it that a start may take, since the request has waited and seconds are estimates). `stale`: a node's word counts
    for so long; its agent says it again each minute. `weights`: so long a rollout that must drain first waits for
    weights that are not on the node; a start may take as long.
    """

    hurried: Seconds = Seconds(1.0)
    unhurried: Seconds = Seconds(10.0)
    share: float = 0.1
    promised: float = 0.5
    stale: Seconds = Seconds(180.0)
    weights: Seconds = Seconds(1800.0)


@dataclass(frozen=True, slots=True)
class AllocatorPolicy:
    """Plain numbers of the allocator.

    `unseen_grace`: how long a replica that was told to drain while nobody saw it still counts as holding its resources;
    the adapter publishes a start before it acts on it, so 5 s is ample. `failed_starts`: after so many, a
    new revision is not rolled out further (design §5). `least_hold`: a replica that is only kept goes to another model
    at the earliest when it has been ready for as long as its start took, and for so long. Chosen: then two models that
    are asked in turn spend half of the time starting at most. `locality`: how much seconds to the first token count.
    `calls`: whether the cluster adapter can call for nodes, where the pool's settings say so.
    """

    unseen_grace: Seconds = Seconds(5.0)
    failed_starts: int = FAILED_STARTS
    least_hold: Seconds = Seconds(10.0)
    locality: Locality = field(default_factory=Locality)
    lending: LendingPolicy = field(default_factory=LendingPolicy)
    calls: bool = False


@dataclass(frozen=True, slots=True)
class Workers:
    """Pods of one replica that must run for it, wherever there is room for them: so many, each of which takes this."""

    count: int
    resources: Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What of a model's declaration concerns the allocator. `promise`: seconds to the first token that its owner
    promises; None: nothing."""

    model: str
    uid: str
    revision: int
    priority: int = 100
    resources: Resources = field(default_factory=Resources)
    max_replicas: int = 1
    terms: Terms = ANYWHERE
    promise: Seconds | None = None
    deleted: bool = False
    override: Override | None = None
    workers: Workers | None = None
    """Pods that each replica has beside the one that serves."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The autoscaler's wish. Void when its uid is not the declared one.

    `kept`: so many of the replicas only live on, and nothing needs them. `waits`: requests wait for some of them.
    `asleep`: so many more are worth keeping in their sleep; None: as their declaration says.
    """

    uid: str
    replicas: int
    marginal_gain: float = 0.0
    kept: int = 0
    waits: bool = False
    asleep: int | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """What the allocator remembers of a model between decisions. Lost at a restart without harm.

    `seen`: named replicas that have been observed. `drained`: since when replicas are told to drain that were not there
    then.
    `owed`: a replica was drained so that its successor fits, and the successor has no place yet. `short_since`: since
    when less is granted than wished. `failing`: the revision whose starts fail; 0 when none does. `given`: so many of
    the replicas that are wished went to others, since they were only kept. `weights_since`: since when a rollout waits
    for weights.
    """

    seen: frozenset[str] = frozenset()
    drained: Mapping[str, Instant] = field(default_factory=dict)
    owed: bool = False
    short_since: Instant | None = None
    failing: int = 0
    given: int = 0
    weights_since: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelView:
    """One model: declared, wished, granted so far, observed; `running` requests of replicas where that is known."""

    declared: Declared
    wish: Wish | None = None
    grant: GrantDecided | None = None
    observed: ReplicasObserved | None = None
    running: Mapping[str, float] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
