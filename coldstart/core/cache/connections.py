"""How many connections a fetch reads over: as many as bring more, and no more than the machine can take in.

Pure: speeds, seconds of CPU and cores are arguments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from coldstart.core.cache.policy import FetchPolicy
from events.units import Instant, Seconds

GROWTH: Final = 4
"""So many times as many at most in a round: 16 after two rounds from 2. All at once would bring a server that allows
two a burst of refusals larger than what a small fetch may retry. A choice."""

SHARE: Final = 0.75
"""Of what each connection brought before, each of more must still bring, or it is the link that is full, and as many
are kept as fill it. A choice: each of twice as many brings the same where each is capped, and half where the link is
full."""

WORTH: Final = 1.5
"""What more connections brought must be worth so many times those before, or those before are taken again. A choice:
noise of a fifth in the chunks' speeds never looks like it."""

SPARE: Final = 1.5
"""So many times what the machine can take in may be brought: connections stand still between chunks, and what the
machine could take in is a mean of a tenth of a second. A choice."""

STARVED: Final = 0.1
"""Of its time the digest must have waited for bytes, or more of them are of no use. A choice."""

REST: Final = 16
"""Rounds after which it is tried again whether more bring more. A choice."""

DIGEST_SECONDS: Final = 1.0 / (1 << 30)
"""Of CPU a byte, what SHA-256 is taken to need until this fetch has measured it: 0.97 s/GiB on a core with SHA
instructions (measured)."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of CPU that a fetch took until now, and for how many bytes: of those who read (with BLAKE3 and writing to
    the file), and of the in-order digest."""

    read_seconds: float = 0.0
    read_bytes: int = 0
    digest_seconds: float = 0.0
    digest_bytes: int = 0

    def reading(self, seconds: float, more: int) -> Spent:
        """And what was read since."""
        return replace(self, read_seconds=self.read_seconds + seconds, read_bytes=self.read_bytes + more)

    def digesting(self, seconds: float, more: int) -> Spent:
        """And what was digested since."""
        return replace(self, digest_seconds=self.digest_seconds + seconds, digest_bytes=self.digest_bytes + more)


def takes_in(spent: Spent, cores: float | None) -> float | None:
    """Bytes a second that the machine can take in, on so many cores that are to be had; None: nobody can say.

    Each byte costs the CPU time that those before it did; the digest, which goes in order, has one core at most.
    """
    if cores is None or not spent.read_bytes:
        return None
    digest = spent.digest_seconds / spent.digest_bytes if spent.digest_bytes else DIGEST_SECONDS
    each = max(1e-12, spent.read_seconds / spent.read_bytes + digest)
    return min(cores / each, 1 / max(1e-12, digest))


class Hunger:
    """Which share of the time the digest waited for bytes. Not thread-safe."""

    __slots__ = ("_asked", "_since", "_waited")

    def __init__(self, now: Instant) -> None:
        self._asked = now
        self._since: Instant | None = None
        self._waited = 0.0

    def began(self, now: Instant) -> None:
        """It waits; it may be told twice."""
        if self._since is None:
            self._since = now

    def ended(self, now: Instant) -> None:
        """It has what it waited for, if it did."""
        if self._since is not None:
            self._waited += now - max(self._since, self._asked)
            self._since = None

    def share(self, now: Instant) -> float:
        """Of the time since it was last asked: 0 to 1."""
        waited = self._waited + (0.0 if self._since is None else now - max(self._since, self._asked))
        passed, self._asked, self._waited = now - self._asked, now, 0.0
        return waited / passed if passed > 0 else 0.0


class Connections:
    """How many connections a fetch may use: as many as it takes to bring what the machine can take in.

    Rounds: in the first each connection brings a chunk; later ones begin with those that were read before the last
    change, which do not count. Then `judge` says how many there are in the next round. Where each is capped at 80 MiB/s
    (object stores) 16 are reached within 12 chunks; from a source as fast as this machine it stays at few, which take
    less CPU (measured). Who brings nothing counts as well: a server that lets two in and leaves the others waiting
    looks, by the chunks that come, as if each brought what it did before. Not thread-safe.
    """

    __slots__ = (
        "_asked_until", "_before", "_came", "_cut_at", "_ignored", "_pardons", "_policy", "_rest", "_speeds", "allowed",
    )  # fmt: skip

    def __init__(self, policy: FetchPolicy) -> None:
        self._policy = policy
        self._speeds: dict[int, list[float]] = {}
        """Of the chunks of this round, by connection."""
        self._came = 0
        self._ignored = 0
        first = policy.connections_first
        self._before: tuple[int, float] | None = (first // 2, 0.0) if first > 1 else None
        """How many there were before the last growth, and what each brought; None: they did not just grow. At the
        beginning, so many as are taken if the others are refused, of which nothing is known."""
        self._rest = 0
        self._cut_at: Instant | None = None
        self._asked_until: Instant | None = None
        """Until when the source has asked for no more of them."""
        self._pardons = 0
        """Refusals that may still be put down to the last trial."""
        self.allowed = policy.connections_first

    @property
    def trial(self) -> int:
        """How many there are, while it is tried whether so many are of use; 0: that is known, or nothing is."""
        return 0 if self._before is None or not self._before[1] else self.allowed

    @property
    def brought(self) -> frozenset[int]:
        """Connections that brought a chunk in this round."""
        return frozenset(self._speeds)

    def came(self, speed: float, by: int) -> bool:
        """A chunk came whole, in bytes a second, over the connection `by`. True: the round is over, ask `judge`. That
        is when each has brought one, or enough came for it to be seen that some bring none."""
        if self._ignored:
            self._ignored -= 1
            return False
        self._speeds.setdefault(by, []).append(speed)
        self._came += 1
        return len(self._speeds) >= self.allowed or self._came >= GROWTH * self.allowed

    def judge(self, capacity: float | None, hunger: float, now: Instant) -> None:
        """How many from now on, where the machine can take in `capacity` bytes a second (None: nobody can say), and the
        digest waited for bytes for this share of the round (`Hunger`)."""
        idle = [0.0] * (self.allowed - len(self._speeds))
        each, before = max(1.0, median([*map(median, self._speeds.values()), *idle])), self._before
        self._before = None
        if before is not None and each < SHARE * before[1]:
            fill = math.ceil(self.allowed * each / before[1])
            self._set(fill if fill > WORTH * before[0] else before[0])
            self._rest = REST
        elif self._rest or hunger < STARVED or (self._asked_until is not None and now < self._asked_until):
            self._set(self.allowed)
            self._rest = max(0, self._rest - 1)
        else:
            self._grow(each, capacity)

    def _grow(self, each: float, capacity: float | None) -> None:
        most = min(self._policy.connections_most, GROWTH * self.allowed)
        wanted = most if capacity is None else min(most, math.ceil(SPARE * capacity / each))
        if wanted > self.allowed:
            self._before = self.allowed, each
        self._set(max(self.allowed, wanted))

    def _set(self, allowed: int) -> None:
        self._speeds.clear()
        self._came = 0
        self._ignored = self.allowed
        self.allowed = allowed

    def refused(self, now: Instant, trial: int, patience: Seconds | None = None) -> bool:
        """The source asked for patience (so many seconds, where it said), or a connection broke: as many as before they
        grew, at once; else half, at most once a second (the decrease of AIMD; Chiu and Jain, 1989). No more are tried
        while it wants patience.

        True: it is put down to a trial of more, and is no failure. So it is where the chunk was asked for in a trial
        (`trial`, of that moment) of more than there are now; and within a second of its end for as many as were tried,
        since a source may still count those that it has just refused. At the beginning those beyond half of them are
        put down to it, so that who is refused all the same is heard; and where the patience that is asked for is more
        than there is, all others of several, since else the fetch would end though some are served.
        """
        if patience is not None:
            self._asked_until = Instant(max(self._asked_until or now, now + patience))
        if self.trial or self._cut_at is None or now - self._cut_at >= 1.0:
            self._cut_at = now
            fewer = max(1, self.allowed // 2) if self._before is None else self._before[0]
            self._pardons = self._pardoned(fewer, patience)
            self._before, self._rest = None, REST
            self._set(fewer)
            self._ignored = fewer  # of the others nothing comes
        if trial > self.allowed:
            return True
        if self._pardons:
            self._pardons -= 1
            return True
        return False

    def _pardoned(self, fewer: int, patience: Seconds | None) -> int:
        """How many refusals are put down to there being more than `fewer`."""
        if self.trial or (patience is not None and patience > self._policy.retry_after_most):
            return self.allowed if self.allowed > 1 else 0
        return 0 if self._before is None else self.allowed - fewer
