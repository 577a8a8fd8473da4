"""The JSON shapes of the answers about GPUs: the inventory, and what would become of a model."""

from __future__ import annotations

from deploy.api.shapes import Shape


class GpuHolder(Shape):
    """A replica or a member of a training job (then `model` is ``training/JOB``) that has a card, or a part of one."""

    replica: str
    model: str
    share: float
    """Part of the card: 1.0 is all of it."""


class GpuCard(Shape):
    """One card and who holds it."""

    id: str
    product: str
    profile: str
    """Its MIG profile, if it is an instance; else empty."""
    virtual: bool
    """Declared with --gpus, on a machine without one."""
    memory_bytes: int | None
    """As the driver reports it; null when unknown."""
    usable_bytes: int | None
    """What programs can have of it, of a turn its share of the card; null when unknown."""
    link: int | None
    """Cards of a node with the same number all reach each other over NVLink; null: none that is known."""
    numa: int | None
    """The NUMA node that it hangs on; null when unknown."""
    turns: int
    """It is one of so many turns of a time-sliced card, the one before ``::`` in its id; 0: it is a card."""
    units: float
    """What it is worth in A100s; of a turn, or a MIG instance, its part of the card."""
    free: float
    """Part of the card that nobody holds: of a free turn, or MIG instance, what that is of its card."""
    cordoned: str | None
    """Why nothing new is placed on it, in a person's words; null: it may be used."""
    holders: list[GpuHolder]


class DeviceSeen(Shape):
    """One GPU, or one MIG instance, as its driver and the kubelet of its node tell of it. Null: nobody can tell."""

    id: str
    """Its UUID."""
    product: str
    memory_bytes: int | None
    used_bytes: int | None
    empty: bool | None
    """Whether nobody is on it."""
    processes: int
    """Those that the agent sees on it: without the host's process namespace only its own."""
    pods: list[str] | None
    """NAMESPACE/POD of those that the kubelet has given it to."""
    sick: str
    """What is wrong with it; empty: nothing that is known."""
    parent: str
    """The card of an instance; else empty."""
    split: bool
    """Whether it is a card whose instances are used instead."""
    unaccounted: bool = False
    """Whether somebody is on it whom no pod accounts for. Nothing new is placed on one card less until it is empty."""


class DeviceClaimed(Shape):
    """A device that a pod has by a ResourceClaim, as its driver names it."""

    pod: str
    driver: str
    pool: str
    device: str


class NodeGpusSeen(Shape):
    """What the agent of a node sees of its GPUs. `known`: whether it sees any; if not, nothing is known of them."""

    node: str
    version: int
    """Another number: something has changed."""
    known: bool
    devices: list[DeviceSeen]
    claimed: list[DeviceClaimed]


class GpuNode(Shape):
    """A node and its cards. `fragmented`: free GPUs that are of no use to the typical replica."""

    node: str
    cpu: float
    cpu_free: float
    memory_bytes: int
    memory_free_bytes: int
    fragmented: float
    network: list[str]
    """In which parts of the network it is by its labels, the widest first (zone, spine, leaf, NVLink domain); empty
    where one is not known."""
    cards: list[GpuCard]
    devices: list[DeviceSeen] | None
    """The GPUs as their driver knows them; null where no agent tells."""


class GpuInventory(Shape):
    """All cards of the pool."""

    total: float
    """GPUs, turns and MIG instances of one added up, these by their compute slices."""
    free: float
    """GPUs that nobody holds, parts added up."""
    fragmentation: float
    """The share of all GPUs that is free and of no use to the typical replica (the F of FGD, ATC 2023)."""
    nodes: list[GpuNode]


class PlannedPlace(Shape):
    """Where one replica would go."""

    node: str
    gpus: list[str]


class PlannedNode(Shape):
    """A node on which a replica would have room."""

    node: str
    room: int
    """How many such replicas fit."""
    tier: str | None
    """Where the weights are, as its agent tells: memory, disk, remote; null: it does not, or they are other weights."""
    seconds: float | None
    """From the start to the first token there; null when unknown."""


class PlannedVictim(Shape):
    """Who would have to yield, and what that costs in A100-seconds of work."""

    job: str
    members: int
    whole: bool
    cost: float


class PlannedVerdict(Shape):
    """Why a training job was taken or not."""

    job: str
    why: str
    numbers: dict[str, float]


class PlannedLeaver(Shape):
    """Somebody whose place it could use."""

    name: str
    """A model, or ``training/JOB``."""
    goes: str
    """has_ended, ends (a person wants that), yields, drains, idles_out, trains or serves."""
    at: str | None
    """When its place is free; null: nobody can tell."""


class PlannedModel(Shape):
    """What would become of one model if it were applied and wished for `replicas` more."""

    model: str
    order: int
    """Its place among all documents of the question, from 0."""
    replicas: int
    outcome: str
    """fits, waits_for_yielding, waits_for_coming, reclaims or infeasible."""
    places: list[PlannedPlace]
    room: int
    """How many such replicas fit now, if nothing else comes."""
    nodes: list[PlannedNode]
    """The nodes that have room now, the soonest first; at most 16."""
    max_replicas: int
    fragmentation_before: float
    fragmentation_after: float | None
    """Null where it does not fit."""
    victims: list[PlannedVictim]
    verdicts: list[PlannedVerdict]
    message: str
    """What is lacking, where it does not fit."""
    room_at: str | None
    """Where it does not fit: when there is room if nothing else comes; null: nobody can tell, or it fits."""
    room_from: list[PlannedLeaver]
    """Those that leave until then, the first first; where nobody can tell, those that would have to."""
    limit: str = ""
    """Which quota or limit of the namespace says no to some of them, whatever is free; empty: none."""


class PlannedJob(Shape):
    """What would become of a training job if it were applied."""

    job: str
    order: int
    """Its place among all documents of the question, from 0."""
    starts: str
    """now, when_others_have_yielded, when_others_have_gone, when_models_have_theirs, when_there_is_room or never."""
    members: int
    started_members: int
    """With how many it would be started; 0: not yet."""
    places: list[PlannedPlace]
    room: int
    """How many such members training has room for now."""
    fragmentation_before: float
    fragmentation_after: float | None
    """Null where it would not be started."""
    victims: list[PlannedVictim]
    """Jobs of lower priority that would have to yield. Models never yield to training."""
    verdicts: list[PlannedVerdict]
    message: str
    """What it would wait for."""
    room_at: str | None
    """Where it waits for room: when there is some if nothing else comes; null: nobody can tell, or it does not wait."""
    room_from: list[PlannedLeaver]
    """Those that leave until then, the first first; where nobody can tell, those that would have to."""
    waits_behind: list[str]
    """Jobs that wait already and come before it; at most 16."""
    limit: str = ""
    """Which quota or limit of the namespace says no to some of its members, whatever is free; empty: none."""


class PlannedModels(Shape):
    """One entry a document, in their order, by kind. Each sees what those before it would take."""

    items: list[PlannedModel]
    jobs: list[PlannedJob]


class GpuMove(Shape):
    """One move: a replica, or a training job (``training/JOB``), from where it is to a place that is free."""

    name: str
    source: PlannedPlace
    target: PlannedPlace
    gained_gpus: float
    """Cards that become of use by it."""
    price: float
    """What it costs, in A100-seconds of work."""
    how: str


class MadeRoom(Shape):
    """How many pieces of work of one kind have room."""

    needs: str
    before: int
    after: int


class GpuMoves(Shape):
    """Moves against fragmentation, in the order in which they would have to be made. Nothing is moved."""

    fragmentation_before: float
    fragmentation_after: float
    """Shares of all GPUs that are free and of no use to the typical work here."""
    moves: list[GpuMove]
    makes_room_for: list[MadeRoom]
    """For what usually comes, the most frequent first."""
    message: str
    """Why there is no move; empty where there is one."""
