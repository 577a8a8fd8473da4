"""From records to the pool: what is declared, wished, seen, and what leaders have written.

While another leads, what it writes is what stands. Once we do, ours stands: what comes later is ours, or of one who was
deposed and does not know it; readers refuse that, and ours is said again, so that who reads the newest values finds it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from events.fence import Observers, Owners
from events.log import Record
from events.types.accounts import TrainingAccounted
from events.types.caches import CacheObserved
from events.types.decisions import OwnershipTaken, WishDecided
from events.types.grants import GrantDecided, LeadershipTaken
from events.types.limits import LimitsObserved
from events.types.metrics import ReplicaMetrics
from events.types.models import ModelDeclared
from events.types.pools import CardMarked, PoolDeclared
from events.types.reclaims import ReclaimChanged
from events.types.replicas import CardsObserved, ReplicasObserved
from events.types.training import TrainingDeclared, TrainingGranted, TrainingObserved
from preemption.core.allocator import Pool
from preemption.core.lending.seat import Job
from preemption.core.reclaim.accounts import Accounts
from preemption.core.reclaim.words import Words
from preemption.core.view import AllocatorPolicy, Wish
from preemption.declared import read_declaration
from preemption.declared_pool import read_pool
from preemption.declared_training import read_training

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AllocatorSettings:
    """`leader` names this process in the log; `pool` is what it leads.

    `node`: the only node that it places replicas on, for a leader whose adapter runs processes on its own machine: what
    other nodes said of their cards, they said as leaders that are gone. None: all nodes count.
    """

    leader: str
    pool: str = "default"
    policy: AllocatorPolicy = field(default_factory=AllocatorPolicy)
    node: str | None = None


@dataclass(slots=True)
class FoldStats:
    """Counts since the start."""

    refused_wishes: int = 0
    """Of autoscalers that no longer own the partition."""
    refused_grants: int = 0
    """Of leaders that were deposed and did not know it yet. What they hid is said again."""
    refused_reclaims: int = 0
    """Likewise, of records of attempts."""
    refused_states: int = 0
    """Of replicas and training runs, told by a cluster adapter that was replaced."""
    unreadable: int = 0
    """Declarations and attempts that another release wrote."""


class PoolFold:
    """Feeds a pool with records."""

    def __init__(self, pool: Pool, settings: AllocatorSettings) -> None:
        self.stats = FoldStats()
        self.causes: dict[str, str] = {}
        """By key (``model/NAME``, ``training/NAME``): the event that its next grant is an answer to."""
        self.hidden: dict[str, GrantDecided | TrainingGranted | ReclaimChanged] = {}
        """What deposed leaders wrote late over what is ours, by key."""
        self.newest = (-1, "")
        """The offset of the newest leadership that was read, and whose it is."""
        self.epoch = -1
        """Of our leadership; -1 before it is taken."""
        self.read = False
        """Whether we lead and know all that stood when we began to: from then on our own stands."""
        self.accounts = Accounts()
        """What training jobs did with the cards that they held."""
        self._words = Words()
        self._pool = pool
        self._settings = settings
        self._owners = Owners()
        self._observers = Observers()
        self._read_to: dict[tuple[str, int], int] = {}

    def read_before(self, record: Record) -> None:
        """A record that stood in the log when we began to lead."""
        self.fold(record)
        place = (record.position.topic, record.position.partition)
        self._read_to[place] = max(record.position.offset, self._read_to.get(place, -1))

    def fold(self, record: Record) -> None:
        """Take one record, unless it is a state of an adapter that was replaced."""
        if self._observers.admits(record):
            self._take(record)
        self.stats.refused_states = self._observers.refused

    def _take(self, record: Record) -> None:
        data = record.envelope.data
        match data:
            case WishDecided():
                self._wished(record, data)
            case ModelDeclared():
                self._declared(record, data)
            case ReplicasObserved():
                self._pool.set_observed(data)
            case CardsObserved() | LimitsObserved():
                self._told_of_nodes(data)
            case CacheObserved():
                self._pool.set_cache(data, record.appended_at)
            case ReplicaMetrics(running=float() | int() as running):
                self._pool.set_running(data.model, data.replica, running)
            case TrainingDeclared():
                self._declared_job(record, data)
            case TrainingObserved():
                self._pool.lender.set_observed(self._words.seen(data))
                self.accounts.see(data, record.appended_at)
            case _:
                self._fold_writers(record)

    def _fold_writers(self, record: Record) -> None:
        """What leaders write."""
        data = record.envelope.data
        match data:
            case GrantDecided():
                if self._stands(record, data):
                    self._pool.set_grant(data)
            case TrainingGranted():
                if self._stands(record, data):
                    self._pool.lender.set_granted(data)
            case ReclaimChanged():
                if self._stands(record, data):
                    self._set_reclaim(record, data)
            case TrainingAccounted():
                self._accounted(record, data)
            case _:
                self._fold_leaders(record)

    def _fold_leaders(self, record: Record) -> None:
        """What people say, and whose words count."""
        data = record.envelope.data
        match data:
            case PoolDeclared() | CardMarked():
                self._told_by_people(data)
            case OwnershipTaken():
                self._owners.admits(record)
            case LeadershipTaken():
                if data.pool == self._settings.pool and record.position.offset > self.newest[0]:
                    self.newest = (record.position.offset, data.leader)

    def _stands(self, record: Record, data: GrantDecided | TrainingGranted | ReclaimChanged) -> bool:
        """Whether what a leader wrote is what stands. Not ours: we know it."""
        if not self.read:
            return True
        if (record.envelope.epoch or 0) < self.epoch and self._late(record):
            if isinstance(data, ReclaimChanged):
                self.stats.refused_reclaims += 1
            else:
                self.stats.refused_grants += 1
            self.hidden[record.envelope.key] = data
        return False

    def _late(self, record: Record) -> bool:
        """Whether it was written after we had read what stood when we began to lead."""
        place = record.position
        return place.offset > self._read_to.get((place.topic, place.partition), -1)

    def _told_of_nodes(self, data: CardsObserved | LimitsObserved) -> None:
        """What they have, and what may be taken of it. (One machine has no namespace.)"""
        if isinstance(data, LimitsObserved):
            self._pool.set_limits(data.limits if self._settings.node is None else ())
        elif self._settings.node in (None, data.node):
            self._pool.set_node(data)

    def _told_by_people(self, data: PoolDeclared | CardMarked) -> None:
        """Settings of the pool, and words about cards."""
        if isinstance(data, CardMarked):
            self._pool.set_cordoned(data.node, data.card, cordoned=data.cordoned)
            for seen in self._words.say(data):
                self._pool.lender.set_observed(seen)
        elif data.pool == self._settings.pool:
            try:
                self._pool.set_policy(read_pool(data))
            except ValueError as error:
                self.stats.unreadable += 1
                logger.warning("a declaration is left aside: %s", error)

    def _accounted(self, record: Record, event: TrainingAccounted) -> None:
        """Another leader's account stands until we lead; what a deposed one writes later is said over."""
        if not self.read:
            self.accounts.stands(event, record.appended_at)
        elif (record.envelope.epoch or 0) < self.epoch and self._late(record):
            self.accounts.again(event.job)

    def _set_reclaim(self, record: Record, event: ReclaimChanged) -> None:
        try:
            self._pool.lender.set_reclaim(event, record.envelope.epoch or 0)
        except ValueError as error:
            self.stats.unreadable += 1
            logger.warning("the attempt %s is left aside: %s", event.id, error)

    def _wished(self, record: Record, wish: WishDecided) -> None:
        """Take a wish, unless its writer had lost the partition when it wrote it. (Records come in the log's order.)"""
        if not self._owners.admits(record):
            self.stats.refused_wishes = self._owners.refused
            return
        self.causes[record.envelope.key] = record.envelope.id
        asleep = None if wish.tiers is None else wish.tiers.asleep
        told = Wish(wish.uid, wish.replicas, wish.marginal_gain, wish.kept, wish.waits, asleep)
        self._pool.set_wish(wish.model, told)

    def _declared(self, record: Record, event: ModelDeclared) -> None:
        try:
            declared = read_declaration(event)
        except ValueError as error:
            self.stats.unreadable += 1
            logger.warning("the declaration of model %s is left aside: %s", event.model, error)
            return
        self.causes[record.envelope.key] = record.envelope.id
        self._pool.set_declared(declared)

    def _declared_job(self, record: Record, event: TrainingDeclared) -> None:
        try:
            policy = read_training(event)
        except ValueError as error:
            self.stats.unreadable += 1
            logger.warning("a declaration is left aside: %s", error)
            return
        if event.deleted:  # names come and go: nothing is kept of one that is gone
            self.causes.pop(record.envelope.key, None)
            self.accounts.leave(event.job)
        else:
            self.accounts.come(event.job)
            self.causes[record.envelope.key] = record.envelope.id
        job = Job(
            policy=policy, uid=event.uid, revision=event.revision, at=record.appended_at, paused=event.paused,
            cancelled=event.cancelled, deleted=event.deleted, forgiven=event.forgiven,
        )  # fmt: skip
        self._pool.lender.set_job(job)
