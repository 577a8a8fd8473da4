"""Engines' running counts against leases of several gateways: which slots whose leases have ended are free."""

from __future__ import annotations

from dataclasses import dataclass

from events.units import Instant
from runtime.core.followers import Followers
from runtime.core.ledger import Poll
from runtime.core.members import Member
from runtime.core.shared_model import SharedModel
from runtime.core.slots import PROCESSING_AGE, ReplicaSlots


@dataclass(frozen=True, slots=True)
class _Count:
    """What an engine ran when it was asked at `asked_at`."""

    count: int
    asked_at: Instant


class EngineCounts:
    """Whom to ask, and what their answers prove."""

    def __init__(self, me: Member) -> None:
        self._me = me
        self._asked: dict[tuple[str, str], tuple[SharedModel, ReplicaSlots]] = {}
        """Replicas with settling slots whose engine counts."""
        self._counts: dict[tuple[str, str], _Count] = {}
        """What engines have counted, until it is known what they ran for other gateways at that time."""

    def want(self, model: SharedModel, replica: ReplicaSlots) -> None:
        """Ask an engine from now on, if a count of it would settle something."""
        if replica.settling and replica.status.busy_path:
            self._asked[model.name, replica.name] = (model, replica)

    def forget(self, model: SharedModel, replica: ReplicaSlots) -> None:
        """It is gone, or nothing of it is to be settled."""
        self._asked.pop((model.name, replica.name), None)
        self._counts.pop((model.name, replica.name), None)

    def polls(self) -> tuple[Poll, ...]:
        """Whom to ask now: replicas of models that we sell."""
        return tuple(
            Poll(model.name, replica.name, *replica.address, replica.status.busy_path)
            for model, replica in self._asked.values()
            if model.selling
        )

    def note(self, poll: Poll, count: int, asked_at: Instant) -> set[Member]:
        """An engine has counted. Returns the gateways that must say first whether their requests still run."""
        asked = self._asked.get((poll.model, poll.replica))
        if asked is None or asked[1].address != (poll.host, poll.port):
            return set()
        model, replica = asked
        self._counts[poll.model, poll.replica] = _Count(count, asked_at)
        live = (sold for sold in model.sold.values() if sold.at is replica and sold.settling is None)
        return {sold.holder for sold in live} - {self._me}

    def settled(self, followers: Followers, now: Instant) -> list[tuple[SharedModel, ReplicaSlots]]:
        """Free what the counts prove done; returns the replicas of which something is free now."""
        freed: list[tuple[SharedModel, ReplicaSlots]] = []
        for key, counted in list(self._counts.items()):
            asked = self._asked.get(key)
            running = None if asked is None else self._running(*asked, counted, followers, now)
            if asked is None or running is not None:
                del self._counts[key]
            if asked is None or running is None:
                continue
            if asked[1].settle_counted(counted.count, running, counted.asked_at):
                freed.append(asked)
        return freed

    def _running(
        self, model: SharedModel, replica: ReplicaSlots, counted: _Count, followers: Followers, now: Instant
    ) -> int | None:
        """How many live leases the engine surely ran when it counted; None: some gateway has yet to say.

        A lease explains part of the count if its gateway had surely dispatched it a while before, and says after the
        count that it still runs: what has ended meanwhile would explain away a request of somebody else.
        """
        running = 0
        sent_by = Instant(counted.asked_at - PROCESSING_AGE)
        for sold in model.sold.values():
            if sold.at is not replica or sold.settling is not None:
                continue
            follower = followers.get(sold.holder)
            if follower is None or sold.holder == self._me:
                running += sold.granted_at <= sent_by
            elif follower.answered(now) < counted.asked_at:
                return None
            else:
                running += sold.granted_at < follower.answered(sent_by)
        return running
