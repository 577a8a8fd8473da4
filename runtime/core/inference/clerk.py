"""The clerk of asynchronous inference: what becomes of each request that was read, and when.

A state machine without a clock. Its methods take what happened and now, and return commands, in order. Every offset
that it was given is finished once, with an ending; an errand that it holds is always either in a model's line, with a
ticket, with a lease, following another, or being settled, and has an alarm. Nothing here waits for one model because of
another: each has a line of its own, and what waits too long is parked, so that its partition goes on.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence

from events.envelope import AnyEnvelope
from events.types.inference import FailureReason, InferenceCompleted
from events.units import Instant, Seconds, format_duration
from runtime.core.inference.backlog import Backlog
from runtime.core.inference.endings import (
    Answered,
    Ask,
    Cancel,
    Command,
    Copied,
    Dead,
    Ending,
    Parked,
    Repeated,
    Run,
    Settle,
    Settlement,
    Withdraw,
    answer_of,
)
from runtime.core.inference.errand import Arrival, Errand, Happening, Place, State
from runtime.core.inference.lane import Lane
from runtime.core.inference.outcomes import Idempotency, Outcomes
from runtime.core.inference.policy import InferencePolicy
from runtime.core.inference.queue import Queue

Marks = dict[Place, tuple[int, tuple[int, ...]]]
"""What to commit: of each place the first unfinished offset, and finished ones after it."""

LOOK = Seconds(60.0)
"""Each errand is looked at so often at least: alarms of those that are gone are kept no longer."""

SOONEST = Seconds(0.2)
"""Shortest pause before a model that refused is asked again: a slot that becomes free is asked for as often as a person
would notice."""


class Clerk:
    """See the module."""

    def __init__(self, policy: InferencePolicy) -> None:
        self._policy = policy
        self.outcomes = Outcomes(policy)
        self._numbers = itertools.count(1)
        self._lanes: dict[Place, Lane] = {}
        self._errands: dict[int, Errand] = {}
        self._live: dict[tuple[str, str], Errand] = {}
        """By (source, id)."""
        self._leaders: dict[Idempotency, Errand] = {}
        self._followers: dict[Idempotency, list[Errand]] = {}
        self._queues: dict[str, Queue] = {}
        self._alarms: list[tuple[float, int, int | str | Place]] = []
        """When to look at an errand (its number), a line (its name), a lane (its place)."""
        self._serial = itertools.count()
        self._relieved: set[Place] = set()
        """Full lanes that an alarm is set for."""

    # Partitions come and go

    def assign(self, place: Place, low: int, done: Sequence[int]) -> None:
        """Its requests are this process's from now on: from `low` on, without those that are done."""
        self._lanes[place] = Lane(place, low, tuple(done))

    def revoke(self, places: Iterable[Place], now: Instant) -> list[Command]:
        """They are another's. Whatever was under way there is dropped: its new owner does it."""
        out: list[Command] = []
        gone = set(places)
        for place in gone:
            self._lanes.pop(place, None)
        for errand in [one for one in self._errands.values() if one.arrival.place in gone]:
            queue = self._queue(errand, now)
            if errand.state is State.ASKED:
                queue.asked -= 1
                out.append(Withdraw(errand))
            elif errand.state is State.RUNNING:
                queue.running -= 1
                out.append(Cancel(errand))
            self._drop(errand)
            self._release(errand, now, out)
        return out

    # What is read

    def arrive(self, arrival: Arrival, now: Instant) -> list[Command]:
        """A request was read."""
        out: list[Command] = []
        if not self._read(arrival.place, arrival.offset, arrival.size, now):
            return out
        errand = Errand(next(self._numbers), arrival, now)
        self._errands[errand.number] = errand
        other = self._live.get(arrival.ident)
        elsewhere = other is not None and not (arrival.parked and other.parking)
        if not arrival.parked and self.outcomes.is_parked(arrival.ident, now):
            elsewhere = True
        if elsewhere or self.outcomes.is_settled(arrival.ident, now):
            self._end(errand, Repeated(), now, out)
            return out
        self._live[arrival.ident] = errand
        self._admit(errand, now, out)
        return out

    def refuse(self, arrival: Arrival, why: Dead, now: Instant) -> list[Command]:
        """A request was read that cannot be sent."""
        out: list[Command] = []
        if not self._read(arrival.place, arrival.offset, arrival.size, now):
            return out
        errand = Errand(next(self._numbers), arrival, now)
        self._errands[errand.number] = errand
        repeated = arrival.ident in self._live or self.outcomes.is_settled(arrival.ident, now)
        if not repeated:
            self._live[arrival.ident] = errand
        self._end(errand, Repeated() if repeated else why, now, out)
        return out

    def pass_over(self, place: Place, offset: int, amends: tuple[AnyEnvelope, ...], now: Instant) -> list[Command]:
        """What was read is no request; `amends` are to be told because of it."""
        if not self._read(place, offset, 0, now):
            return []
        return [Settle(Settlement(place, offset, amends=amends))]

    def full(self, place: Place) -> bool:
        """Whether nothing more should be read of a place for now."""
        lane = self._lanes.get(place)
        if lane is None:
            return True
        return lane.span >= self._policy.lookahead or lane.bytes >= self._policy.lookahead_bytes

    # What slots and replicas say

    def leased(self, errand: Errand, now: Instant) -> list[Command]:
        """It has a slot. Without a command to run it, it wants none any more."""
        if errand.number not in self._errands or errand.state is not State.ASKED:
            return []
        queue = self._queue(errand, now)
        queue.asked -= 1
        queue.running += 1
        queue.moved_at = now
        queue.waiting.discard(errand)
        errand.go(Happening.LEASED)
        out: list[Command] = [Run(errand)]
        self._look_at(errand, min(errand.arrival.deadline, Instant(now + LOOK)))
        self._ask(queue, now, out)
        return out

    def refused(self, errand: Errand, retry_after: Seconds | None, now: Instant) -> list[Command]:
        """Its ticket was refused for now. A failed start is no attempt: only its deadline bounds how often this is."""
        if errand.number not in self._errands or errand.state is not State.ASKED:
            return []
        out: list[Command] = []
        queue = self._queue(errand, now)
        queue.asked -= 1
        pause = min(max(retry_after or 1.0, SOONEST), self._policy.refused_most)
        queue.not_before = Instant(max(queue.not_before, now + pause))
        errand.go(Happening.REFUSED)
        queue.push(errand)
        self._look(errand, now, out)
        self._ask(queue, now, out)
        return out

    def answered(self, errand: Errand, answer: Answered, seconds: float, now: Instant) -> list[Command]:
        """The replica answered, after so long."""
        return self._ran(errand, answer, seconds, now)

    def dead(self, errand: Errand, why: Dead, now: Instant) -> list[Command]:
        """It can never be answered."""
        return self._ran(errand, why, None, now)

    def failed(self, errand: Errand, why: Dead, attempts: int, chance: float, now: Instant) -> list[Command]:
        """An attempt came to nothing: the next one after a back-off, or `why` is its ending when there were too many.

        `attempts`: 1, or 0 when the replica never had it. `chance`, from 0 to 1, spreads the back-offs.
        """
        if errand.number not in self._errands or errand.state is not State.RUNNING:
            return []
        errand.attempts += attempts
        if errand.attempts >= self._policy.attempts:
            return self._ran(errand, why, None, now)
        out: list[Command] = []
        queue = self._queue(errand, now)
        queue.running -= 1
        errand.go(Happening.FAILED)
        pause = min(self._policy.retry_most, self._policy.retry_first * 2.0 ** max(0, errand.attempts - 1))
        errand.not_before = Instant(now + pause * (1 - chance / 2))
        errand.waiting_since = now
        queue.waiting.add(errand)
        self._look(errand, now, out)
        self._ask(queue, now, out)
        return out

    # Time

    def due(self) -> Instant | None:
        """When to call `advance` next."""
        return Instant(self._alarms[0][0]) if self._alarms else None

    def advance(self, now: Instant) -> list[Command]:
        """Do what is due."""
        out: list[Command] = []
        while self._alarms and self._alarms[0][0] <= now:
            what = heapq.heappop(self._alarms)[-1]
            if isinstance(what, int):
                errand = self._errands.get(what)
                if errand is not None:
                    self._look(errand, now, out)
            elif isinstance(what, str):
                queue = self._queues.get(what)
                if queue is not None:
                    self._ask(queue, now, out)
            else:
                self._relieved.discard(what)
                self._relieve(what, now, out)
        return out

    # Settling

    def finish(self, settlements: Sequence[Settlement]) -> tuple[list[Settlement], Marks]:
        """These are written now: which of them are still ours, and what to commit with them."""
        ours = []
        for one in settlements:
            lane = self._lanes.get(one.place)
            known = one.errand is None or one.errand.number in self._errands
            if lane is not None and known and one.offset in lane:
                ours.append(one)
        for one in ours:
            self._lanes[one.place].finish(one.offset)
        return ours, {place: self._lanes[place].mark() for place in {one.place for one in ours}}

    def settled(self, settlements: Iterable[Settlement], now: Instant) -> list[Command]:
        """They are written, for good."""
        out: list[Command] = []
        for one in settlements:
            errand = one.errand
            if errand is None:
                continue
            idempotency = errand.arrival.idempotency
            led = idempotency is not None and self._leaders.get(idempotency) is errand
            self._remember(errand, one.ending, now)
            self._drop(errand)
            if led:
                self._resolve(errand, one.ending, now, out)
        return out

    def backlogs(self) -> list[tuple[Backlog, int]]:
        """Of each model with errands: who waits without a lease, and how many run."""
        found = []
        for name, queue in self._queues.items():
            since = [one.arrival.since for one in queue.waiting]
            ends = [one.arrival.deadline for one in queue.waiting]
            backlog = Backlog(name, len(since), min(since, default=None), min(ends, default=None), queue.run_seconds)
            found.append((backlog, queue.running))
        return found

    def __len__(self) -> int:
        """Errands."""
        return len(self._errands)

    # Inside

    def _read(self, place: Place, offset: int, size: int, now: Instant) -> bool:
        lane = self._lanes.get(place)
        if lane is None or not lane.read(offset, size):
            return False
        if self.full(place) and place not in self._relieved:
            self._relieved.add(place)
            self._alarm(Instant(now + self._policy.park_when_full_after), place)
        return True

    def _admit(self, errand: Errand, now: Instant, out: list[Command]) -> None:
        """It waits for its turn, or for the answer to another with its key."""
        idempotency = errand.arrival.idempotency
        if idempotency is not None:
            found = self.outcomes.answer(idempotency, now)
            if isinstance(found, InferenceCompleted):
                self._end(errand, Copied(found), now, out)
                return
            leader = self._leaders.get(idempotency)
            led = leader is not None and leader is not errand and not leader.parking
            if led or found not in (None, errand.arrival.ident):
                errand.go(Happening.FOLLOW)
                self._followers.setdefault(idempotency, []).append(errand)
                self._look(errand, now, out)
                return
            self._leaders[idempotency] = errand
        queue = self._queue(errand, now)
        queue.waiting.add(errand)
        self._look(errand, now, out)
        self._ask(queue, now, out)

    def _look(self, errand: Errand, now: Instant, out: list[Command]) -> None:
        """Its deadline, its next try, or its parking may be due; set the alarm for the next of them."""
        deadline = errand.arrival.deadline
        if errand.state is State.SETTLING:
            return
        if now >= deadline:
            waited = format_duration(round(max(0.0, now - errand.arrival.since), 1))
            self._end(errand, Dead(FailureReason.DEADLINE, f"no answer before its deadline, after {waited}"), now, out)
            return
        if errand.state is State.RUNNING:
            self._look_at(errand, min(deadline, Instant(now + LOOK)))
            return
        again = [deadline, Instant(now + LOOK)]
        if not errand.arrival.parked:
            due = Instant(errand.waiting_since + self._policy.park_after)
            if now >= due and not self._moves(errand, now):
                self._park(errand, now, out)
                return
            again.append(due if now < due else Instant(now + self._policy.park_after))
        if errand.state is State.WAITING and errand.not_before > now:
            again.append(errand.not_before)
        elif errand.state is State.WAITING:
            queue = self._queue(errand, now)
            queue.push(errand)
            self._ask(queue, now, out)
        self._look_at(errand, min(again))

    def _moves(self, errand: Errand, now: Instant) -> bool:
        """Whether its model gives slots, so that it will have one soon."""
        queue = self._queue(errand, now)
        return now - queue.moved_at < self._policy.park_after and errand.state is not State.FOLLOWING

    def _park(self, errand: Errand, now: Instant, out: list[Command]) -> None:
        waited = format_duration(round(now - errand.waiting_since, 1))
        errand.parking = True
        self._end(errand, Parked(f"waited {waited} for a slot", errand.not_before), now, out)

    def _relieve(self, place: Place, now: Instant, out: list[Command]) -> None:
        """Others stand behind a full lane: whoever waits in it without a ticket, or for a model that gives no slots, is
        parked."""
        if place not in self._lanes or not self.full(place):
            return
        policy = self._policy
        for errand in [one for one in self._errands.values() if one.arrival.place == place]:
            moves = self._moves(errand, now)
            soon = policy.park_after if moves else policy.park_when_full_after
            least = policy.lap if errand.arrival.parked else soon
            waits = errand.state in (State.WAITING, State.FOLLOWING)
            stuck = errand.state is State.ASKED and not moves
            if (waits or stuck) and now - errand.waiting_since >= least:
                self._park(errand, now, out)
        self._relieved.add(place)
        self._alarm(Instant(now + policy.park_when_full_after), place)

    def _ask(self, queue: Queue, now: Instant, out: list[Command]) -> None:
        """As many of the line take a ticket as may."""
        if now < queue.not_before:
            if queue.alarm_at != queue.not_before:
                queue.alarm_at = queue.not_before
                self._alarm(queue.not_before, queue.name)
        else:
            while queue.asked < self._policy.tickets and (errand := queue.pop(now)) is not None:
                queue.asked += 1
                errand.go(Happening.ASK)
                out.append(Ask(errand))
        if queue.idle:
            self._queues.pop(queue.name, None)

    def _ran(self, errand: Errand, ending: Ending, seconds: float | None, now: Instant) -> list[Command]:
        if errand.number not in self._errands or errand.state in (State.SETTLING, State.FOLLOWING):
            return []
        out: list[Command] = []
        queue = self._queue(errand, now)
        if seconds is not None:
            errand.attempts += 1
            queue.ran(seconds)
        self._end(errand, ending, now, out)
        self._ask(queue, now, out)
        return out

    def _end(self, errand: Errand, ending: Ending, now: Instant, out: list[Command]) -> None:
        queue = self._queue(errand, now)
        queue.waiting.discard(errand)
        if errand.state is State.ASKED:
            queue.asked -= 1
            out.append(Withdraw(errand))
        elif errand.state is State.RUNNING:
            queue.running -= 1
            if not isinstance(ending, Answered):
                out.append(Cancel(errand))
        errand.go(Happening.END)
        if queue.idle:
            self._queues.pop(queue.name, None)
        out.append(Settle(Settlement(errand.arrival.place, errand.arrival.offset, errand, ending)))

    def _remember(self, errand: Errand, ending: Ending, now: Instant) -> None:
        arrival, outcomes = errand.arrival, self.outcomes
        idempotency = arrival.idempotency
        match ending:
            case Answered():
                outcomes.settled(arrival.ident, now)
                if idempotency is not None:
                    outcomes.answered(idempotency, arrival.ident, (answer_of(errand, ending), ending.size), now)
            case Copied():
                outcomes.settled(arrival.ident, now)
            case Dead():
                outcomes.settled(arrival.ident, now)
                if idempotency is not None:
                    outcomes.unanswered(idempotency, arrival.ident)
            case Parked():
                leads = idempotency is not None and self._leaders.get(idempotency) is errand
                outcomes.parked(arrival.ident, idempotency if leads else None, now)

    def _resolve(self, errand: Errand, ending: Ending, now: Instant, out: list[Command]) -> None:
        """Whoever followed the errand that is settled."""
        idempotency = errand.arrival.idempotency
        if idempotency is None or isinstance(ending, Parked | Repeated | Copied):
            return
        for follower in self._followers.pop(idempotency, ()):
            if follower.state is not State.FOLLOWING:
                continue
            copy: Ending = Copied(answer_of(errand, ending)) if isinstance(ending, Answered) else ending
            self._end(follower, copy, now, out)

    def _release(self, errand: Errand, now: Instant, out: list[Command]) -> None:
        """Whom it led is not led any more: the first of them leads."""
        idempotency = errand.arrival.idempotency
        if idempotency is None or idempotency in self._leaders:
            return
        for follower in self._followers.pop(idempotency, ()):
            if follower.state is State.FOLLOWING and follower.number in self._errands:
                follower.go(Happening.FAILED)
                self._admit(follower, now, out)

    def _drop(self, errand: Errand) -> None:
        self._errands.pop(errand.number, None)
        arrival = errand.arrival
        if self._live.get(arrival.ident) is errand:
            del self._live[arrival.ident]
        idempotency = arrival.idempotency
        if idempotency is not None:
            if self._leaders.get(idempotency) is errand:
                del self._leaders[idempotency]
            followers = self._followers.get(idempotency, [])
            if errand in followers:
                followers.remove(errand)
                if not followers:
                    del self._followers[idempotency]
        queue = self._queues.get(arrival.model)
        if queue is not None:
            queue.waiting.discard(errand)
            if queue.idle:
                del self._queues[arrival.model]

    def _queue(self, errand: Errand, now: Instant) -> Queue:
        name = errand.arrival.model
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = Queue(name, now)
        return queue

    def _look_at(self, errand: Errand, at: Instant) -> None:
        self._alarm(at, errand.number)

    def _alarm(self, at: Instant, what: int | str | Place) -> None:
        heapq.heappush(self._alarms, (float(at), next(self._serial), what))
