"""One model's seat in the pool: its view, what was decided for it in this round, and the grant made of that."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from events.names import replica_name
from events.types.grants import GrantDecided, NodeCall, Placement, ReplicaGrant, Shortage
from events.types.replicas import ReplicasObserved
from events.units import Instant, format_instant
from preemption.core.calling import Call, words
from preemption.core.groups import workers_of
from preemption.core.inventory import Need, need_of
from preemption.core.placement import Kind, Lack
from preemption.core.standing import Stand, first_spares
from preemption.core.view import Declared, Memory, ModelView, Reason, Wish

LACKS = {Kind.GPU: Reason.LACKS_GPUS, Kind.CPU: Reason.LACKS_CPU, Kind.MEMORY: Reason.LACKS_MEMORY}

_OF_THE_MOMENT = frozenset({Reason.TAKES_BACK, Reason.WAKES, Reason.DRAINS_FIRST, Reason.PLACEMENT_GONE})
"""Reasons that are gone at the next decision; their going is not worth a record."""


@dataclass(frozen=True, slots=True)
class Told:
    """What is done about a shortage, for people. Equal `key`: the same, but for the numbers in the words."""

    reason: Reason
    words: str
    key: str


@dataclass(slots=True)
class Seat:
    """What is known of one model, and the state of its decision. Owned and changed by the pool."""

    model: str
    declared: Declared | None = None
    wish: Wish | None = None
    grant: GrantDecided | None = None
    observed: ReplicasObserved | None = None
    running: dict[str, float] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    held: frozenset[str] = frozenset()
    """Replicas whose holdings are in the ledger on this model's behalf."""

    stand: Stand | None = None
    named: dict[str, ReplicaGrant] = field(default_factory=dict)
    need: Need | None = None
    workers: tuple[Need, int] | None = None
    """What each of its pods takes beside the one that serves, and how many they are for one replica."""
    unplaced: int = 0
    """Replicas that are wanted and have no place."""
    lack: Lack | None = None
    waits_for: str = ""
    """Why they must wait although there is room: a sentence, or empty."""
    coming: tuple[str, ...] = ()
    """Replicas that drain where `comes` of them will have a place."""
    comes: int = 0
    awaits_weights: bool = False
    """An old replica stays until its successor's weights are on its node."""
    told: Told | None = None
    """What is done about its shortage; None: nothing can be."""
    told_key: str = ""
    """Of what was recorded last."""
    call: Call | None = None
    """What it asks of whoever adds nodes; also while it lacks nothing, as long as that is to be remembered."""
    extra: list[Reason] = field(default_factory=list)
    again_at: Instant | None = None
    timer: Instant | None = None
    """The newest timer that was set for `again_at`."""

    def view(self, declared: Declared) -> ModelView:
        """The frozen view that a decision is made from."""
        return ModelView(
            declared=declared, wish=self.wish, grant=self.grant, observed=self.observed, running=self.running,
            memory=self.memory,
        )  # fmt: skip

    def settle(self, declared: Declared, stand: Stand) -> None:
        """Begin a round with what the model by itself should have."""
        self.stand = stand
        self.named = {grant.replica: grant for grant in stand.named}
        self.need, self.workers = need_of(declared.resources), workers_of(declared)
        self.unplaced = stand.want
        self.lack, self.waits_for, self.extra = None, "", []
        self.coming, self.comes, self.awaits_weights = (), 0, False
        self.memory, self.again_at = stand.memory, stand.again_at

    @property
    def live(self) -> int:
        """Named replicas that do not drain."""
        return sum(not grant.drain for grant in self.named.values())

    @property
    def only_keeps(self) -> bool:
        """Whether what it wants would only be kept: it has all that something needs."""
        return self.stand is not None and 0 < self.stand.kept >= self.stand.wished - self.live

    @property
    def waiting(self) -> int:
        """How many replicas it lacks for which requests wait."""
        if self.stand is None or self.wish is None or not self.wish.waits or Reason.WISH not in self.stand.reasons:
            return 0
        return min(self.unplaced, self.stand.wished - self.stand.kept - self.live)

    @property
    def seeks(self) -> bool:
        """Whether replicas that are only kept by others could help it."""
        return self.waiting > 0 and self.lack is not None and self.lack.ever and not self.waits_for

    @property
    def over(self) -> bool:
        """Whether there is nothing more to know or to do: the model is deleted and gone, or was never declared."""
        if self.held or self.named:
            return False
        if self.declared is not None:
            return self.declared.deleted
        return not (self.wish is not None and self.wish.replicas) and not (
            self.grant is not None and self.grant.replicas
        )

    @property
    def lacking(self) -> int:
        """How many replicas that something needs have no room, and will have none by what is on its way: training that
        yields, or what drains. What waits for another model's turn lacks nothing of its own."""
        if self.declared is None or self.stand is None or self.need is None or self.waits_for:
            return 0
        if self.lack is not None and self.lack.quota:  # a node would not help
            return 0
        if self.told is not None and self.told.reason in (Reason.TRAINING_YIELDS, Reason.COMING):
            return 0
        return max(0, min(self.unplaced, self.stand.wished - self.stand.kept - self.live) - self.comes)

    @property
    def plight(self) -> tuple[tuple[Kind, ...], bool, bool, str]:
        """Why what is wanted has no place, without the numbers."""
        lack = self.lack
        quota = lack is not None and lack.quota
        return (() if lack is None else lack.kinds), lack is None or lack.ever, quota, self.waits_for

    def unstarted(self) -> list[str]:
        """Named replicas that nobody has seen."""
        seen = set() if self.observed is None else {status.replica for status in self.observed.replicas}
        return [name for name in self.named if name not in seen]

    def add(self, placement: Placement) -> str:
        """Name one more replica, with the lowest index that is free, and return its name."""
        assert self.declared is not None
        assert self.stand is not None
        index, revision = 0, self.declared.revision
        while (name := replica_name(self.model, revision, index)) in self.named or name in self.stand.taken:
            index += 1
        self.named[name] = ReplicaGrant(
            replica=name, revision=revision, placement=placement, resources=self.declared.resources
        )
        self.unplaced -= 1
        if self.memory.owed:
            self.memory = replace(self.memory, owed=False)
        return name

    def wake(self, replica: str) -> None:
        """Take back one that sleeps, since its place is free."""
        self.named[replica] = replace(self.named[replica], drain=False)
        self.unplaced -= 1
        if self.memory.owed:
            self.memory = replace(self.memory, owed=False)
        self._reason(Reason.WAKES)

    def drop(self, replica: str) -> None:
        """Take a replica that never started out of the grant; it is wanted again unless it drained."""
        grant = self.named.pop(replica)
        if not grant.drain:
            self.unplaced += 1
        self._reason(Reason.PLACEMENT_GONE)

    def give_up(self, replica: str) -> None:
        """Take a replica that is not there, because its starts back off, out of the grant until the next try."""
        assert self.stand is not None
        del self.named[replica]
        self.held -= {replica}
        dormant = tuple(name for name in self.stand.dormant if name != replica)
        self.stand = replace(self.stand, dormant=dormant, held_back=self.stand.held_back + 1)
        self._reason(Reason.BACKS_OFF)

    def drain_first(self, replica: str) -> None:
        """Drain an old replica so that its successor will fit."""
        assert self.stand is not None
        self.named[replica] = replace(self.named[replica], drain=True)
        self.stand = replace(self.stand, yields=())
        self.memory = replace(self.memory, owed=True, weights_since=None)
        self._reason(Reason.DRAINS_FIRST)

    def await_weights(self, since: Instant, again_at: Instant) -> None:
        """Drain nothing yet: its successor would have to fetch its weights first."""
        self.awaits_weights = True
        self.memory = replace(self.memory, weights_since=since)
        self.again_at = again_at if self.again_at is None else min(self.again_at, again_at)
        self._reason(Reason.AWAITS_WEIGHTS)

    def give_away(self, replica: str) -> None:
        """Drain one that is only kept, for a model for which requests wait."""
        assert self.stand is not None
        stand = self.stand
        self.named[replica] = replace(self.named[replica], drain=True)
        kept = stand.kept - 1
        spare = first_spares([spare for spare in stand.spare if spare.replica != replica], kept)
        self.stand = replace(stand, wished=stand.wished - 1, kept=kept, spare=spare)
        self.memory = replace(self.memory, given=self.memory.given + 1)
        for reason in (Reason.GIVES_UP, Reason.DRAINS):
            if reason not in stand.reasons:
                self._reason(reason)

    def conclude(self, now: Instant) -> GrantDecided | None:
        """The grant, if it says something else than the last one; remembers since when the model is short."""
        assert self.declared is not None
        assert self.stand is not None
        shortage = self._shortage(self.declared, self.stand)
        since = None if shortage is None else now if self.memory.short_since is None else self.memory.short_since
        owed = self.memory.owed and self.unplaced > 0
        if (since, owed) != (self.memory.short_since, self.memory.owed):
            self.memory = replace(self.memory, short_since=since, owed=owed)
        grant = GrantDecided(
            model=self.model,
            uid=self.declared.uid,
            revision=self.declared.revision,
            wished=self.stand.wished,
            replicas=tuple(self.named.values()),
            shortage=shortage,
            reasons=tuple(str(reason) for reason in dict.fromkeys(self._reasons())),
            asleep=None if self.wish is None or Reason.WISH not in self.stand.reasons else self.wish.asleep,
        )
        key = "" if self.told is None or shortage is None else self.told.key
        if says_the_same(self.grant, grant) and key == self.told_key:
            return None
        self.grant, self.told_key = grant, key
        return grant

    def _reason(self, reason: Reason) -> None:
        if reason not in self.extra:
            self.extra.append(reason)

    def _reasons(self) -> list[Reason]:
        assert self.stand is not None
        why = [Reason.WAITS] if self.waits_for else []
        lack = self.lack
        if self.unplaced and lack is not None:
            never = Reason.NODES_REFUSE if lack.refused else Reason.QUOTA if lack.quota else Reason.FITS_NOWHERE
            why += [LACKS[kind] for kind in lack.kinds] if lack.ever else [never]
        why += [Reason.COMING] if self.coming and self.unplaced else []
        why += [self.told.reason] if self.told is not None and self.unplaced else []
        if self.call is not None and self.unplaced:
            why += [Reason.CALLS] if self.call.stands else [Reason.NO_NODE] if self.call.told.again_at else []
        return [*self.stand.reasons, *self.extra, *why]

    def _shortage(self, declared: Declared, stand: Stand) -> Shortage | None:
        """What is wished and not granted; a new revision that fits nowhere is a shortage too."""
        missing = max(0, stand.wished - self.live)
        stuck = self.unplaced if self.lack is not None and not self.lack.ever else 0
        if not (missing or stuck):
            return None
        call = None if self.call is None or not self.unplaced else self.call
        told = None if call is None or not (call.stands or call.told.again_at) else call.told
        return Shortage(
            replicas=missing or stuck, resources=declared.resources, message=self._why(stand, told), call=told
        )

    def _why(self, stand: Stand, call: NodeCall | None) -> str:
        if self.unplaced:
            why = self.waits_for or ("" if self.lack is None else self.lack.message)
            why += f"; waits for {', '.join(self.coming)} to drain" if self.coming else ""
            why += "" if self.told is None else f"; {self.told.words}"
            return why if call is None else f"{why}; {words(call)}"
        failures = 0 if self.observed is None else self.observed.failures
        retry_at = None if self.observed is None else self.observed.retry_at
        if stand.held_back and retry_at is not None:
            return f"starts failed {failures} times; the next try is at {format_instant(retry_at)}"
        return f"the new revision failed to start {failures} times; the old one stays and does not grow"


def says_the_same(old: GrantDecided | None, new: GrantDecided) -> bool:
    """Whether a grant need not be recorded.

    That is so when nothing was granted and nothing is to be said, or when nothing differs but the numbers in the
    shortage's message and reasons that tell of the moment only.
    """
    if old is None:
        return not new.replicas and new.shortage is None
    return old == new or _lasting(old, old) == _lasting(new, old)


def _lasting(grant: GrantDecided, like: GrantDecided) -> GrantDecided:
    """What of a grant lasts; the shortage's message is taken from `like`."""
    shortage = grant.shortage
    if shortage is not None and like.shortage is not None:
        shortage = replace(shortage, message=like.shortage.message)
    reasons = tuple(reason for reason in grant.reasons if reason not in _OF_THE_MOMENT)
    return replace(grant, shortage=shortage, reasons=reasons)
