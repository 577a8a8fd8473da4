"""Which gateways live, from their beats in the log and from what they say over their connections.

A gateway is dead when its address refuses (no process listens there any more), or when nothing was seen of it for
`UNSEEN`: neither a beat in the log, measured in the log's own time against our own beats, nor a word over a connection.
Whoever cannot read its own beats back knows nothing of the others' either: it takes nobody for dead by silence.
"""

from __future__ import annotations

from dataclasses import dataclass

from events.types.gateways import GatewayBeat
from events.units import Instant, Seconds
from runtime.core.members import UNSEEN, Member, View

FORGOTTEN = Seconds(3600.0)
"""A beat that is older than this when it is first read is of a gateway long gone: nobody calls there."""

REVIVED = Seconds(3.0)
"""A gateway whose address refused lives again only with a beat of so much later: earlier ones may have been on their
way when it died."""

GAP = Seconds(2.5)
"""Our beats come back once a second; when none has for so long we have not followed the log without a gap."""

MOST_REMEMBERED = 256
"""Dead lives of gateways that are remembered."""


@dataclass(slots=True)
class _Known:
    """What is known of the newest life of a gateway."""

    member: Member
    address: str
    leaving: bool
    appended_at: Instant
    """Of its newest beat, in the log's time."""
    heard_at: Instant
    """When it last spoke over a connection, or was first known."""
    refused_at: Instant | None = None
    """The log's time when its address refused; None: it did not."""


class Membership:
    """The gateways as `me` sees them."""

    def __init__(self, me: Member) -> None:
        self.me = me
        self._others: dict[str, _Known] = {}
        self._earlier: set[str] = set()
        """Boots of our own name that were there before us."""
        self._log_time: Instant | None = None
        """When our newest beat that we have read back was appended."""
        self._read_back_at = Instant(float("-inf"))
        self._reading_since = Instant(0.0)
        """Since when our beats have come back without a gap: before, others may have beaten unseen."""
        self.read_on_until = Instant(0.0)
        """After a gap others' beats are read a little later than our own: until then some may be unknown here."""
        self._leaving = False
        self._surely_dead: dict[Member, None] = {}
        """Lives whose address refused, in that order; the oldest of too many are forgotten."""
        self.superseded = False
        """Another process beats under our name: it is the gateway now, and we are nobody."""

    def beat(self, beat: GatewayBeat, appended_at: Instant, now: Instant) -> None:
        """A beat was read from the log."""
        if beat.gateway == self.me.gateway:
            self._own(beat, appended_at, now)
            return
        known = self._others.get(beat.gateway)
        if known is None or known.member.boot != beat.boot:
            known = _Known(Member(beat.gateway, beat.boot), "", beat.leaving, appended_at, now)
            self._others[beat.gateway] = known
        known.address = beat.peer_address
        known.leaving = beat.leaving
        known.appended_at = max(known.appended_at, appended_at)
        if known.refused_at is not None and appended_at > known.refused_at + REVIVED:
            known.refused_at = None
            known.heard_at = now
            self._surely_dead.pop(known.member, None)

    def heard(self, member: Member, now: Instant) -> None:
        """It said something over a connection."""
        known = self._others.get(member.gateway)
        if known is not None and known.member == member:
            known.heard_at = now

    def refused(self, member: Member) -> None:
        """Its address refused, or another process answers there: it is dead for sure."""
        known = self._others.get(member.gateway)
        if known is not None and known.member == member:
            known.refused_at = max(known.appended_at, self._log_time or known.appended_at)
        self._surely_dead[member] = None
        if len(self._surely_dead) > MOST_REMEMBERED:
            del self._surely_dead[next(iter(self._surely_dead))]

    def leave(self) -> None:
        """We take no more models."""
        self._leaving = True

    def view(self, now: Instant) -> View | None:
        """Who lives; None until our own beat was read back, and when another process has our name."""
        if self._log_time is None or self.superseded:
            return None
        live = sorted(
            (known for known in self._others.values() if self._lives(known, now)), key=lambda known: known.member
        )
        staying = [known.member for known in live if not known.leaving]
        leaving = [known.member for known in live if known.leaving]
        (leaving if self._leaving else staying).append(self.me)
        return View(tuple(sorted(staying)), tuple(sorted(leaving)))

    def addresses(self, now: Instant) -> dict[Member, str]:
        """Whom to call, and where: all that live or may still answer. Nobody before our own beat was read back."""
        if self._log_time is None:
            return {}
        return {
            known.member: known.address for known in self._others.values() if known.address and self._lives(known, now)
        }

    def surely_dead(self, member: Member) -> bool:
        """Whether its process is gone for sure, rather than silent."""
        return member in self._surely_dead

    def _own(self, beat: GatewayBeat, appended_at: Instant, now: Instant) -> None:
        if beat.boot == self.me.boot:
            if now - self._read_back_at >= GAP:
                self._reading_since = now
                if self._log_time is not None:
                    self.read_on_until = Instant(now + GAP)
            self._log_time = appended_at if self._log_time is None else max(self._log_time, appended_at)
            self._read_back_at = now
        elif self._log_time is None:
            self._earlier.add(beat.boot)
        elif beat.boot not in self._earlier and appended_at > self._log_time:
            self.superseded = True

    def _lives(self, known: _Known, now: Instant) -> bool:
        if known.refused_at is not None or not known.address:
            return False
        if self._log_time is None:
            return True
        silent = self._log_time - known.appended_at
        if silent < UNSEEN or silent >= FORGOTTEN:
            return silent < UNSEEN
        frozen = now - self._read_back_at >= UNSEEN
        return frozen or now - max(known.heard_at, self._reading_since) < UNSEEN
