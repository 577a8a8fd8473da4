"""Who should have its weights on this node before anybody asks. Pure: the whole picture in, what should be out.

What is worth having is ``forecast x cost of absence / size`` (field note on cold starts, §4), under what the node may
hold. The forecast is the autoscaler's and the cost the user's price where the model has one (`coldstart.core.tiers`);
else they are the rate of its requests and the promises that would be missed. Weights that are here are worth a fifth
more than absent ones, so that two models that are asked for alike do not take turns; with an unchanging forecast the
choice is a fixed point.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from coldstart.core.cache.policy import Quota
from coldstart.core.cache.room import loss
from events.units import Bytes, Instant, Seconds

MISSED: Final = 600.0
"""GPU-seconds that a missed promise counts as beside models that have a price. Chosen: ten minutes of a GPU."""

_MIB = float(1 << 20)

_Bound = tuple[str, str]
"""The name of a quota, and what it counts; of `_ALL`: the node's bytes."""

_ALL: _Bound = ("", "bytes")


@dataclass(frozen=True, slots=True)
class Candidate:
    """Weights that declared models name, or that are here. `key` is the caller's.

    `bytes` None: nobody has asked the source yet. `rate`: requests an hour that are expected, of models without a
    price; `absence`: how long a start would wait for them. `worth`: GPU-seconds that having them for an hour is
    expected to save, of models with one. `wanted`: somebody counts on them (a model that never goes to zero, or has
    replicas, or was asked to be prewarmed). `pinned`: by a person. `held`: in use, or a start waits for their fetch:
    they stay, whatever is decided. `retry_at`: after a failed fetch, no new one before this instant.
    """

    key: str
    bytes: Bytes | None
    rate: float
    absence: Seconds
    here: bool = False
    fetching: bool = False
    wanted: bool = False
    pinned: bool = False
    held: bool = False
    retry_at: Instant | None = None
    files: int = 0
    quotas: tuple[str, ...] = ()
    """Names of those that it belongs to."""
    worth: float = 0.0


@dataclass(frozen=True, slots=True)
class Room:
    """What the node may hold; `others`: what takes of it without being a candidate (partial files, quarantine)."""

    capacity: Bytes
    others: Bytes = Bytes(0)
    quotas: tuple[Quota, ...] = ()


@dataclass(frozen=True, slots=True)
class PrewarmPolicy:
    """Each value is a choice where no source is named."""

    sla: Seconds = Seconds(3.0)
    top: int = 3
    """Of those worth having, so many stay whatever a fetch needs room for ("top models stay")."""
    hysteresis: float = 1.2
    """By how much absent weights must be worth more than present ones to take their place (field note, §4)."""
    together: int = 1
    """Fetches side by side: two share one network."""
    high: float = 0.85
    """Share of the capacity that is filled ahead of demand: the rest is for starts that nobody foresaw."""
    least_rate: float = 1 / 24
    """Requests an hour below which nobody is fetched ahead: once a day."""

    def __post_init__(self) -> None:
        """Nonsense is refused here."""
        if self.hysteresis < 1 or self.together < 1 or self.top < 0 or not 0 < self.high <= 1:
            raise ValueError("hysteresis and together are 1 at least, top is not negative, 0 < high <= 1")


@dataclass(frozen=True, slots=True)
class Prewarm:
    """What should be. `chosen`: all that should be here, most worth first."""

    chosen: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    """Of those, the top ones that are here: not to be evicted by anybody."""
    fetch: tuple[str, ...] = ()
    """To fetch now, in this order."""
    evict: tuple[str, ...] = ()
    """To take out first, so that what is fetched fits below the high watermark."""
    stop: tuple[str, ...] = ()
    """Fetches that nobody needs any more."""
    ask: tuple[str, ...] = ()
    """Whose size must be known first."""


def decide(candidates: Iterable[Candidate], room: Room, policy: PrewarmPolicy, now: Instant) -> Prewarm:
    """Who should be here, and what to do next about it. The same picture gives the same answer, whatever its order."""
    known = sorted((one for one in candidates if one.bytes is not None), key=lambda one: _rank(one, policy))
    chosen = _choose(known, room, policy)
    keys = {one.key for one in chosen}
    flying = sum(one.fetching for one in known)
    due = [one for one in chosen if not one.here and not one.fetching and (one.retry_at or now) <= now]
    fetch = due[: max(0, policy.together - flying)]
    outside = [one for one in known if one.here and one.key not in keys and not one.held and not one.pinned]
    return Prewarm(
        chosen=tuple(one.key for one in chosen),
        keep=tuple(one.key for one in chosen if one.here)[: policy.top],
        fetch=tuple(one.key for one in fetch),
        evict=_evict(known, outside, fetch, room, policy),
        stop=tuple(one.key for one in known if one.fetching and one.key not in keys and not one.held),
        ask=tuple(
            one.key for one in sorted(candidates, key=lambda one: one.key)
            if one.bytes is None and _deserves(one, policy) and (one.retry_at or now) <= now
        ),
    )  # fmt: skip


def density(one: Candidate, policy: PrewarmPolicy) -> float:
    """What a mebibyte of these weights saves an hour, in GPU-seconds."""
    saved = one.worth + MISSED * one.rate * loss(one.absence, policy.sla)
    return saved / max((one.bytes or 0) / _MIB, 1e-6)


def _deserves(one: Candidate, policy: PrewarmPolicy) -> bool:
    return one.wanted or one.pinned or one.held or one.worth > 0.0 or one.rate >= policy.least_rate


def _rank(one: Candidate, policy: PrewarmPolicy) -> tuple[int, float, str]:
    """What stays anyway first, then what somebody counts on, then by worth; the key decides between equals."""
    there = one.here or one.fetching
    first = 0 if there and (one.pinned or one.held) else 1 if one.wanted or one.pinned else 2
    return first, -density(one, policy) * (policy.hysteresis if there else 1.0), one.key


def _bounds(room: Room, policy: PrewarmPolicy) -> dict[_Bound, float]:
    """What may be taken in all, and of each quota."""
    bounds: dict[_Bound, float] = {_ALL: policy.high * room.capacity - room.others}
    for quota in room.quotas:
        if quota.bytes is not None:
            bounds[quota.name, "bytes"] = quota.bytes
        if quota.files is not None:
            bounds[quota.name, "files"] = quota.files
    return bounds


def _takes(one: Candidate) -> dict[_Bound, int]:
    size = one.bytes or 0
    quotas = {(name, kind): amount for name in one.quotas for kind, amount in (("bytes", size), ("files", one.files))}
    return {_ALL: size} | quotas


def _choose(ranked: list[Candidate], room: Room, policy: PrewarmPolicy) -> list[Candidate]:
    left = _bounds(room, policy)
    chosen = []
    for one in ranked:
        takes = {bound: amount for bound, amount in _takes(one).items() if bound in left}
        stays = (one.here or one.fetching) and (one.pinned or one.held)
        if stays or (all(amount <= left[bound] for bound, amount in takes.items()) and _deserves(one, policy)):
            chosen.append(one)
            for bound, amount in takes.items():
                left[bound] -= amount
    return chosen


def _evict(
    known: list[Candidate], outside: list[Candidate], fetch: list[Candidate], room: Room, policy: PrewarmPolicy
) -> tuple[str, ...]:
    """The least worth of those that were not chosen, as many as are in the way."""
    over = {bound: -most for bound, most in _bounds(room, policy).items()}
    wanted = {bound for one in fetch for bound in _takes(one)}
    for one in (*(one for one in known if one.here or one.fetching), *fetch):
        for bound, amount in _takes(one).items():
            if bound in over:
                over[bound] += amount
    gone = []
    for one in reversed(outside) if fetch else ():
        takes = {bound: amount for bound, amount in _takes(one).items() if bound in wanted and bound in over}
        if not any(amount and over[bound] > 0 for bound, amount in takes.items()):
            continue
        gone.append(one.key)
        for bound, amount in takes.items():
            over[bound] -= amount
    return tuple(gone)
