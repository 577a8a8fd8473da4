"""Which gateways live, from their beats, so that a gateway's silence about a model can be understood.

Silence is not death: a gateway that had requests and says no more is unknown, until there is proof that these requests
are over. Proof is taken from the log alone (append times), never from how long this process has waited, except where
nothing else can ever come: whoever cannot read the log must not think that everybody died (design §4).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from events.units import Instant, Seconds

DEAD_AFTER = Seconds(5.0)
"""A gateway unseen for this long, while the log went on, is dead (design §4)."""

SETTLED_AFTER = Seconds(3.0)
"""A new start of a gateway counts once it has beaten for this long: the windows of what it has now are there by then
(they come each second), also when its first window overtook its first beat."""

QUIET_AFTER = Seconds(60.0)
"""A living gateway sends a window each second while it has requests (design §4). After sixty beats without one, its
closing window was lost: it has none."""

FORGOTTEN_AFTER = Seconds(600.0)
"""Requests of a gateway that never beats are over by now: the default total budget of a request is ten minutes."""

BEHIND_FOR = Seconds(1.0)
"""How long it is believed how far behind the log its reader is: a gateway that has requests says something each second
(design §4). Whoever reads nothing at all is not behind; nothing comes."""

GATEWAYS_KEPT = 1024
"""Gateways remembered; the one unseen for longest makes room."""


@dataclass(slots=True)
class _Life:
    boot: str
    booted_at: Instant
    seen_at: Instant


class Gateways:
    """Folds `relume.gateways`. Times are append times of the log."""

    __slots__ = ("_lives", "_newest")

    def __init__(self) -> None:
        self._lives: dict[str, _Life] = {}
        self._newest = Instant(0.0)

    def passed(self, at: Instant) -> None:
        """The log has gone on to this append time."""
        self._newest = max(self._newest, at)

    def beat(self, gateway: str, boot: str, at: Instant) -> bool:
        """A gateway lives. True: it has started anew, so what it had before is gone."""
        life = self._lives.get(gateway)
        if life is None:
            if len(self._lives) >= GATEWAYS_KEPT:
                del self._lives[min(self._lives, key=lambda name: self._lives[name].seen_at)]
            self._lives[gateway] = _Life(boot, at, at)
            return True
        life.seen_at = max(life.seen_at, at)
        if life.boot == boot:
            return False
        life.boot, life.booted_at = boot, at
        return True

    def seen(self, gateway: str, at: Instant) -> None:
        """A gateway that beats has said something else: it lives."""
        life = self._lives.get(gateway)
        if life is not None and at > life.seen_at:
            life.seen_at = at

    def over(self, gateway: str, since: Instant, now: Instant) -> Instant | None:
        """When the requests that a gateway had at `since` were surely over; None: they may run or wait still."""
        life = self._lives.get(gateway)
        if life is None:
            return Instant(since + FORGOTTEN_AFTER) if now - since >= FORGOTTEN_AFTER else None
        if life.booted_at >= since and life.seen_at - life.booted_at >= SETTLED_AFTER:
            return life.booted_at
        if self._newest - life.seen_at > DEAD_AFTER:
            return Instant(life.seen_at + DEAD_AFTER)
        if life.seen_at - since >= QUIET_AFTER:
            return Instant(since + QUIET_AFTER)
        return None


class Behind:
    """How far behind the log its reader is: what a gateway has said since then may stand there unread, so that is no
    silence of the gateway. A clock of the log that is behind ours looks the same, and is met in the same way."""

    __slots__ = ("_seconds", "_until")

    def __init__(self) -> None:
        self._seconds = Seconds(0.0)
        self._until = Instant(0.0)

    def took(self, at: Instant, now: Instant) -> None:
        """A window that was appended at `at` is folded only now. Of those of one second the one that was folded
        latest after its append counts: edges are folded ahead of the rest."""
        seconds = now - at
        if seconds >= self._seconds or now >= self._until:
            self._seconds, self._until = Seconds(max(0.0, seconds)), Instant(now + BEHIND_FOR)

    def by(self, now: Instant) -> Seconds:
        """Seconds; none if nothing was folded of late."""
        return self._seconds if now < self._until else Seconds(0.0)


@dataclass(frozen=True, slots=True)
class World:
    """What is known besides a model: the gateways, since when all requests are known (None: not yet read back), and how
    far behind the log this is."""

    gateways: Gateways
    followed_since: Instant | None
    behind: Behind = field(default_factory=Behind)
