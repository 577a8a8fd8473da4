"""Fences: which writer of a scope counts. Pure, and without a clock.

Who takes a scope (a partition of wishes, a pool of GPUs) says so in the log; the offset of that record is the epoch in
all that it writes from then on. Readers refuse smaller epochs: their writer was replaced and does not know it yet.
"""

from __future__ import annotations

from events.envelope import AnyEnvelope
from events.log import Record
from events.types.decisions import OwnershipTaken, WishDecided
from events.types.replicas import ReplicasObserved
from events.types.training import TrainingObserved


class Fence:
    """The newest epoch of each scope."""

    def __init__(self) -> None:
        self._newest: dict[object, int] = {}

    def take(self, scope: object, epoch: int) -> None:
        """From `epoch`, the offset of the record that took the scope, smaller ones are refused."""
        self._newest[scope] = max(epoch, self._newest.get(scope, epoch))

    def allows(self, scope: object, epoch: int | None) -> bool:
        """Whether a write with `epoch` stands. Before anybody took the scope all do; after, one without does not."""
        newest = self._newest.get(scope)
        return newest is None or (epoch is not None and epoch >= newest)


class Owners:
    """Which wishes count, by the partition that they stand in. Give it each record of `relume.decisions` in order.

    An epoch is the offset of the partition's `ownership.taken`, so it is smaller than the offset of what is written
    under it. A sound wish proves its epoch too: the record that took it may have been compacted away since.
    """

    def __init__(self) -> None:
        self._fence = Fence()
        self._read_to: dict[int, int] = {}
        self.refused = 0
        """Wishes of writers that did not own their partition any more."""

    def admits(self, record: Record) -> bool:
        """Whether the record counts: no wish of a writer that had lost the partition, no ownership of another one."""
        data, position = record.envelope.data, record.position
        if not isinstance(data, OwnershipTaken | WishDecided):
            return True
        new = position.offset > self._read_to.get(position.partition, -1)
        if new:
            self._read_to[position.partition] = position.offset
        if isinstance(data, OwnershipTaken):
            if data.partition != position.partition:
                return False
            self._fence.take(position.partition, position.offset)
        else:
            epoch = record.envelope.epoch
            if not self._fence.allows(position.partition, epoch) or (epoch is not None and epoch >= position.offset):
                self.refused += new  # states are told again after an interruption
                return False
            if epoch is not None:
                self._fence.take(position.partition, epoch)
        return True


class Observers:
    """Which states of `relume.replicas` count, by their key. Give it each record of that topic in order.

    A cluster adapter writes under the epoch of the leadership that it runs for, and the next leader's adapter tells the
    state of all that it knows when it begins. So of each key the newest epoch stands; smaller ones are of an adapter
    that was replaced, whose replicas are not used any more. States without an epoch, of adapters that no leader has,
    stand until one with an epoch was read. One number is kept for each key that the log has.
    """

    def __init__(self) -> None:
        self._fence = Fence()
        self._read_to: dict[int, int] = {}
        self.refused = 0
        """States of adapters that were replaced."""

    def admits(self, record: Record) -> bool:
        """Whether the record counts; what is no such state does."""
        envelope, position = record.envelope, record.position
        if not isinstance(envelope.data, ReplicasObserved | TrainingObserved):
            return True
        new = position.offset > self._read_to.get(position.partition, -1)
        if new:
            self._read_to[position.partition] = position.offset
        if not self._fence.allows(envelope.key, envelope.epoch):
            self.refused += new  # states are told again after an interruption
            return False
        if envelope.epoch is not None:
            self._fence.take(envelope.key, envelope.epoch)
        return True


def is_older(envelope: AnyEnvelope, epoch: int | None) -> bool:
    """Whether this is an observed state of an adapter that the one with `epoch` has replaced; None replaces nobody."""
    state = isinstance(envelope.data, ReplicasObserved | TrainingObserved)
    return state and epoch is not None and (envelope.epoch is None or envelope.epoch < epoch)
