"""The slots of replicas: which are leased, which still settle, and which replica is the least loaded.

A slot is free, leased, or *settling*: its lease has ended while the engine may still be at the request. A settling slot
is busy until the engine's own count says otherwise, or, where the engine does not count, for a time that depends on
what it does with closed connections.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from events.names import ReplicaName
from events.types.replicas import ReplicaState, ReplicaStatus
from events.units import Instant, Seconds
from runtime.core.policy import Cancels

SETTLE_TIME = Seconds(0.25)
"""An engine that cancels is taken to be done this long after the connection closed, if it cannot be asked. llama.cpp
frees the slot of a cancelled stream within 0.1 s (measured); 0.25 s leaves room for a busy machine."""

REACH_TIME = Seconds(0.05)
"""A request may take this long from the gateway into the engine's count: a count that was asked for sooner after the
end of a lease says nothing about it. Generous for a local network."""

PROCESSING_AGE = Seconds(1.0)
"""A live lease of this age is taken to be in the engine's count; a younger one may still be on its way, so the count is
not put down to it. Longer than any dispatch that is not about to fail."""


@dataclass(frozen=True, slots=True)
class Settling:
    """A slot whose lease ended at `since`. At `until` it is free, or, if the engine `counts`, the replica suspect."""

    since: Instant
    until: Instant
    counts: bool
    patience: Seconds


@dataclass(frozen=True, slots=True)
class Instance:
    """One life of a replica: a replica that was started again under its name is another one."""

    uid: str
    created_at: float | None
    ready_at: float | None
    pid: int | None
    address: str


def instance_of(status: ReplicaStatus) -> Instance:
    """Which life of the replica a status tells of. Meaningful once it is ready."""
    return Instance(status.uid, status.created_at, status.ready_at, status.pid, status.address)


def life_of(instance: Instance) -> str:
    """A life of a replica as one word that all gateways make alike."""
    return f"{instance.created_at}:{instance.ready_at}:{instance.pid}@{instance.address}"


def address_of(status: ReplicaStatus) -> tuple[str, int] | None:
    """Host and port where a replica answers; None where it says none, or none that can be read."""
    host, _, port = status.address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        return None
    return (host.strip("[]"), int(port))


class ReplicaSlots:
    """The slots of one life of one replica."""

    __slots__ = (
        "address", "cancels", "drained", "gone", "instance", "leases", "life", "name", "quarantined_until", "settling",
        "status", "version",
    )  # fmt: skip

    def __init__(self, status: ReplicaStatus, address: tuple[str, int]) -> None:
        self.status = status
        self.name = ReplicaName(status.replica)
        self.instance = instance_of(status)
        self.life = life_of(self.instance)
        self.address = address
        # Of a word that this release does not know nothing good may be assumed.
        self.cancels = Cancels(status.cancels) if status.cancels in tuple(Cancels) else Cancels.NEVER
        self.leases: dict[int, Instant] = {}
        """When each live lease was granted."""
        self.settling: dict[int, Settling] = {}
        """By the id of the lease that ended."""
        self.quarantined_until: Instant | None = None
        self.drained = False
        """Whether it was said that no lease is left, since it began to drain."""
        self.gone = False
        self.version = 0
        """Goes up with every change of load: an older entry in a `SlotPool` is stale."""

    @property
    def busy(self) -> int:
        """Slots that are leased or settle."""
        return len(self.leases) + len(self.settling)

    @property
    def free(self) -> int:
        """Slots for new leases; never negative, also when the replica says it has fewer than before."""
        return max(0, self.status.slots - self.busy)

    @property
    def draining(self) -> bool:
        return self.status.state is ReplicaState.DRAINING

    def lease(self, lease: int, now: Instant) -> None:
        """Take a slot."""
        self.leases[lease] = now
        assert len(self.leases) + len(self.settling) <= self.status.slots, "a slot was sold twice"

    def release(self, lease: int) -> None:
        """The lease has ended and the engine is done: the slot is free."""
        del self.leases[lease]

    def settle(self, lease: int, settling: Settling) -> None:
        """The lease has ended, the engine may not be done: the slot stays busy."""
        del self.leases[lease]
        self.settling[lease] = settling

    def settled_by_count(self, count: int, asked_at: Instant) -> int:
        """Free the settling slots that the engine's running `count`, asked for at `asked_at`, proves done; how many.

        Live leases that the engine surely runs explain part of the count; what is left of it must be settling slots,
        and only the others are free, the longest settling first. Requests from elsewhere make the count larger, so they
        delay a slot and never free one.
        """
        processing = sum(1 for granted_at in self.leases.values() if granted_at + PROCESSING_AGE <= asked_at)
        return self.settle_counted(count, processing, asked_at)

    def settle_counted(self, count: int, processing: int, asked_at: Instant) -> int:
        """The same, where others know how many live leases the engine surely runs."""
        unsettled = max(0, count - processing)
        old_enough = [lease for lease, ended in self.settling.items() if ended.since + REACH_TIME <= asked_at]
        done = old_enough[: max(0, len(self.settling) - unsettled)]
        for lease in done:
            del self.settling[lease]
        return len(done)

    def settled_by_time(self, now: Instant) -> tuple[int, bool]:
        """Free the slots whose time has passed; how many, and whether one of an engine that counts is overdue."""
        done, overdue = 0, False
        for lease, ended in list(self.settling.items()):
            if ended.until > now:
                continue
            if ended.counts:
                overdue = True
                until = Instant(now + ended.patience)
                self.settling[lease] = Settling(ended.since, until, counts=True, patience=ended.patience)
            else:
                done += 1
                del self.settling[lease]
        return done, overdue

    def next_due(self) -> Instant | None:
        """When a quarantine or a settling slot's time ends."""
        instants = [ended.until for ended in self.settling.values()]
        if self.quarantined_until is not None:
            instants.append(self.quarantined_until)
        return min(instants, default=None)


class SlotPool:
    """The replicas that may be leased, in the order of their load.

    A heap of (busy share, name); an entry is stale once its replica's load has changed, and is dropped when it comes to
    the top. Choosing and changing take logarithmic time.
    """

    __slots__ = ("_heap", "_members", "_only")

    def __init__(self) -> None:
        self._only: ReplicaSlots | None = None
        """The one member, if there is one: it needs no order, and most models have no more (2 µs a request)."""
        self._members: dict[str, ReplicaSlots] = {}
        self._heap: list[tuple[float, str, int, ReplicaSlots]] = []

    def __len__(self) -> int:
        return len(self._members)

    def replace(self, replicas: Iterable[ReplicaSlots]) -> None:
        """Lease these from now on, and no others."""
        self._members = {replica.name: replica for replica in replicas if replica.status.slots}
        self._only = next(iter(self._members.values())) if len(self._members) == 1 else None
        self._rebuild()

    def changed(self, replica: ReplicaSlots) -> None:
        """Its load is another now."""
        if self._only is replica:
            return
        version = replica.version = replica.version + 1
        name = replica.name
        if self._members.get(name) is not replica:
            return
        busy = len(replica.leases) + len(replica.settling)
        heapq.heappush(self._heap, (busy / replica.status.slots, name, version, replica))
        if len(self._heap) > 4 * len(self._members) + 64:  # so many stale entries that starting anew is cheaper
            self._rebuild()

    def least_loaded(self) -> ReplicaSlots | None:
        """The replica with the smallest share of busy slots, the first by name of equals; None when all are full."""
        only = self._only
        if only is not None:
            return only if len(only.leases) + len(only.settling) < only.status.slots else None
        while self._heap:
            share, _, version, replica = self._heap[0]
            if version != replica.version:
                heapq.heappop(self._heap)
            elif share >= 1.0:
                return None
            else:
                return replica
        return None

    def _rebuild(self) -> None:
        self._heap = [(it.busy / it.status.slots, it.name, it.version, it) for it in self._members.values()]
        heapq.heapify(self._heap)
