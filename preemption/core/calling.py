"""Calls for nodes: what is short and finds no room asks for more nodes, and for how long it does. Pure.

The cluster adapter answers a call with stand-ins: pods of a replica's shape that wait, which whoever adds nodes to the
cluster sees. A call stands for a time. If no replica finds a place meanwhile it is taken back, and made again after a
pause, which doubles each time. What is called for once is not called for again when its node is there: a replica that
has its place is short no more, so the same decision that grants it makes the call smaller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from events.types.grants import CALL_CANCELLED, CALL_LATE, NodeCall
from events.units import Instant, Seconds, format_duration, format_instant

PAUSE_MOST: Final = Seconds(3600.0)
"""The longest pause. Chosen: who asks an hour after the last try may find that prices or quotas of GPUs have moved."""
_DOUBLINGS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPolicy:
    """Plain numbers of calls. `most`: replicas of all models together that are called for at once. `after`: how long a
    shortage has lasted before it calls. `within`: how long a call stands without any replica finding a place. `pause`:
    before the second call; each further one comes after twice as long, at most an hour."""

    most: int
    after: Seconds
    within: Seconds
    pause: Seconds

    def pause_after(self, tries: int) -> Seconds:
        """Before the next call, when so many in a row were taken back."""
        return Seconds(min(PAUSE_MOST, self.pause * 2.0 ** min(_DOUBLINGS, max(0, tries - 1))))


@dataclass(frozen=True, slots=True)
class Call:
    """A call and how few replicas its model has had meanwhile: one more than that, and a node came."""

    told: NodeCall
    live: int

    @property
    def stands(self) -> bool:
        """Whether nodes are called for now."""
        return self.told.again_at is None and self.told.replicas > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A model that may call. `count`: its replicas without room that nothing serves which is on its way; `since`: since
    when; `live`: its replicas that have a place; `cancelled_at`: when a person last took a stand-in of it away."""

    model: str
    priority: int
    count: int
    since: Instant
    live: int
    before: Call | None = None
    cancelled_at: Instant | None = None


@dataclass(frozen=True, slots=True)
class Calls:
    """The call of each caller (None: it has none), and when time alone changes one."""

    by_model: Mapping[str, Call | None]
    again_at: Instant | None


def decide_calls(callers: Iterable[Caller], policy: CallPolicy | None, now: Instant) -> Calls:
    """Who calls for how many. Without a policy nobody does. Whose call stands goes before others of its priority, so
    that a bound on all takes no call back for another like it."""
    made: dict[str, Call | None] = {}
    moments: list[Instant] = []
    left = 0 if policy is None else policy.most
    for caller in sorted(callers, key=_order):
        call = None if policy is None else _next(caller, policy, now, left)
        made[caller.model] = call
        left -= 0 if call is None else call.told.replicas
        if policy is not None:
            moments += _moments(caller, call, policy, now)
    return Calls(made, min(moments, default=None))


def words(call: NodeCall) -> str:
    """What people are told of a call."""
    if call.again_at is None:
        ones = "1 stand-in waits" if call.replicas == 1 else f"{call.replicas} stand-ins wait"
        return f"{ones} for a node since {format_instant(call.since)}, at most until {format_instant(call.until)}"
    why = f"no node came within {format_duration(round(call.until - call.since, 1))}"
    if call.reason == CALL_CANCELLED:
        why = "the call for nodes was taken back, since somebody deleted a stand-in"
    return f"{why}; the next call is at {format_instant(call.again_at)}"


def _order(caller: Caller) -> tuple[int, bool, Instant, str]:
    stands = caller.before is not None and caller.before.stands
    return -caller.priority, not stands, caller.since, caller.model


def _next(caller: Caller, policy: CallPolicy, now: Instant, left: int) -> Call | None:
    before = caller.before
    if before is None or caller.live > before.live:
        came = before is not None  # a node: who still lacks one calls on at once
        return _made(caller, policy, now, left) if came or now >= caller.since + policy.after else None
    told, live = before.told, min(before.live, caller.live)
    if told.again_at is not None:
        return Call(told, live) if now < told.again_at else _made(caller, policy, now, left)
    if caller.cancelled_at is not None and caller.cancelled_at >= told.since:
        return _taken_back(before, CALL_CANCELLED, policy, now)
    if now >= told.until:
        return _taken_back(before, CALL_LATE, policy, now) if caller.count and told.replicas else None
    return Call(replace(told, replicas=min(caller.count, left)), live)


def _made(caller: Caller, policy: CallPolicy, now: Instant, left: int) -> Call | None:
    """A new call; one that was taken back before counts on, unless a node came."""
    replicas = min(caller.count, left)
    if replicas <= 0:
        return None
    before = caller.before
    tries = 0 if before is None or caller.live > before.live else before.told.tries
    told = NodeCall(replicas=replicas, since=now, until=Instant(now + policy.within), tries=tries)
    return Call(told, caller.live)


def _taken_back(before: Call, reason: str, policy: CallPolicy, now: Instant) -> Call:
    tries = before.told.tries + 1
    again_at = Instant(now + policy.pause_after(tries))
    return replace(before, told=replace(before.told, replicas=0, tries=tries, again_at=again_at, reason=reason))


def _moments(caller: Caller, call: Call | None, policy: CallPolicy, now: Instant) -> list[Instant]:
    """When time alone changes what was decided of this caller."""
    if call is not None:
        return [Instant(call.told.until if call.told.again_at is None else call.told.again_at)]
    due = Instant(caller.since + policy.after)
    return [due] if caller.count and due > now else []
