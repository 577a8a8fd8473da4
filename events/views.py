"""Views: states folded into what stands now. Pure: they are given records, in the order of the log, and hold no clock.

`apply(record)` returns the key whose value changed, or None: of another type, seen before, the same as before, or
refused by a fence. So a follower writes ``for record in batch.records: changed = view.apply(record)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from events.log import Record
from events.names import model_key, node_key
from events.types.decisions import OwnershipTaken, WishDecided
from events.types.gateways import GatewayBeat
from events.types.grants import GrantDecided, LeadershipTaken
from events.types.models import ModelDeclared
from events.types.replicas import CardsObserved, ReplicasObserved
from events.units import Instant, Seconds

D = TypeVar("D")
U = TypeVar("U", WishDecided, GrantDecided, ReplicasObserved)

SILENCE: Final = Seconds(5.0)
"""A gateway that has not been heard of for so long is dead (design §4)."""


class Fence:
    """Which epoch each scope is at: who writes with a smaller one has been replaced and does not know it yet."""

    def __init__(self) -> None:
        self._newest: dict[object, int] = {}

    def take(self, scope: object, epoch: int) -> None:
        """From `epoch`, the offset of the record that took the scope, smaller ones are refused."""
        self._newest[scope] = max(epoch, self._newest.get(scope, epoch))

    def allows(self, scope: object, epoch: int | None) -> bool:
        """Whether a write with `epoch` stands. Before anybody took the scope all do; after, one without epoch does
        not."""
        newest = self._newest.get(scope)
        return newest is None or (epoch is not None and epoch >= newest)

    def newest(self, scope: object) -> int | None:
        """The epoch of the scope; None when nobody has taken it."""
        return self._newest.get(scope)


@dataclass(frozen=True, slots=True)
class Standing(Generic[D]):
    """A value that stands, and the record it came with."""

    data: D
    record: Record

    @property
    def epoch(self) -> int | None:
        """The epoch that the value was written with."""
        epoch: int | None = self.record.envelope.epoch
        return epoch


class StateView(Generic[D]):
    """The newest value of each key, of one event type."""

    def __init__(self, kind: type[D]) -> None:
        self._kind = kind
        self._standing: dict[str, Standing[D]] = {}

    def apply(self, record: Record) -> str | None:
        """Fold one record; the key whose value changed, or None."""
        data = record.envelope.data
        if not isinstance(data, self._kind):
            return None
        key = record.envelope.key
        before = self._standing.get(key)
        if before is not None and before.record.position.offset >= record.position.offset:
            return None  # delivered again
        self._standing[key] = Standing(data, record)
        return None if before is not None and before.data == data else key

    def at(self, key: str) -> Standing[D] | None:
        """What stands under `key`."""
        return self._standing.get(key)

    def __iter__(self) -> Iterator[D]:
        return (self._standing[key].data for key in sorted(self._standing))

    def __len__(self) -> int:
        return len(self._standing)


class ModelsView:
    """What users have declared."""

    def __init__(self) -> None:
        self._state = StateView(ModelDeclared)
        self._aliases: dict[str, list[str]] = {}

    def apply(self, record: Record) -> str | None:
        """Fold one record; the key of the model whose declaration changed, or None."""
        before = self._state.at(record.envelope.key)
        changed = self._state.apply(record)
        if changed is not None:
            self._forget_aliases(before)
            self._learn_aliases(record.envelope.data)
        return changed

    def get(self, name: str) -> ModelDeclared | None:
        """The declaration of the model of this name; None when there is none or it was deleted."""
        declared = self.declared(name)
        return None if declared is None or declared.deleted else declared

    def declared(self, name: str) -> ModelDeclared | None:
        """The newest declaration, also one that says that the model is deleted."""
        found = self._state.at(model_key(name))
        return None if found is None else found.data

    def resolve(self, name_or_alias: str) -> ModelDeclared | None:
        """The model that a request names. A name goes before an alias; of two with one alias, the first by name."""
        found = self.get(name_or_alias)
        if found is not None:
            return found
        holders = self._aliases.get(name_or_alias, [])
        return self.get(min(holders)) if holders else None

    def all(self) -> tuple[ModelDeclared, ...]:
        """Every model that is not deleted, by name."""
        return tuple(declared for declared in self._state if not declared.deleted)

    def is_current(self, name: str, uid: str) -> bool:
        """Whether what carries this uid is about the model as it is declared now. Another uid is void."""
        declared = self.declared(name)
        return declared is not None and declared.uid == uid

    def _learn_aliases(self, declared: ModelDeclared) -> None:
        if not declared.deleted:
            for alias in aliases_of(declared):
                self._aliases.setdefault(alias, []).append(declared.model)

    def _forget_aliases(self, before: Standing[ModelDeclared] | None) -> None:
        if before is None or before.data.deleted:
            return
        for alias in aliases_of(before.data):
            self._aliases[alias].remove(before.data.model)
            if not self._aliases[alias]:
                del self._aliases[alias]


def aliases_of(declared: ModelDeclared) -> tuple[str, ...]:
    """The aliases in a declaration, each once."""
    aliases: Any = declared.spec.get("aliases") or ()
    return tuple(dict.fromkeys(alias for alias in aliases if isinstance(alias, str)))


class _ByModel(Generic[U]):
    """Values that carry a model's uid."""

    def __init__(self, kind: type[U]) -> None:
        self._state: StateView[U] = StateView(kind)

    def get(self, model: str, uid: str | None = None) -> U | None:
        """What stands for the model; None when nothing does or it carries another uid than the one given."""
        found = self.standing(model)
        return None if found is None or (uid is not None and found.data.uid != uid) else found.data

    def standing(self, model: str) -> Standing[U] | None:
        """What stands for the model, with the record it came with."""
        return self._state.at(model_key(model))

    def all(self) -> tuple[U, ...]:
        """What stands, by name of the model."""
        return tuple(self._state)


class WishesView(_ByModel[WishDecided]):
    """The autoscalers' wishes, fenced by partition: a wish of an owner that was replaced is refused and counted."""

    def __init__(self) -> None:
        super().__init__(WishDecided)
        self.fence = Fence()
        self.refused = 0

    def apply(self, record: Record) -> str | None:
        """Fold one record; the key whose wish changed, or None."""
        data = record.envelope.data
        if isinstance(data, OwnershipTaken):
            self.fence.take(data.partition, record.position.offset)
            return None
        if isinstance(data, WishDecided) and not self.fence.allows(record.position.partition, record.envelope.epoch):
            self.refused += 1
            return None
        return self._state.apply(record)


class GrantsView(_ByModel[GrantDecided]):
    """The allocator's grants, fenced: a grant of a leader that was replaced is refused and counted.

    There is one pool; a grant does not name it.
    """

    def __init__(self) -> None:
        super().__init__(GrantDecided)
        self.fence = Fence()
        self.refused = 0

    def apply(self, record: Record) -> str | None:
        """Fold one record; the key whose grant changed, or None."""
        data = record.envelope.data
        if isinstance(data, LeadershipTaken):
            self.fence.take("pool", record.position.offset)
            return None
        if isinstance(data, GrantDecided) and not self.fence.allows("pool", record.envelope.epoch):
            self.refused += 1
            return None
        return self._state.apply(record)


class ReplicasView(_ByModel[ReplicasObserved]):
    """What replicas there are, as the cluster adapter sees them."""

    def __init__(self) -> None:
        super().__init__(ReplicasObserved)

    def apply(self, record: Record) -> str | None:
        """Fold one record; the key whose replicas changed, or None."""
        return self._state.apply(record)


class CardsView:
    """What the nodes have."""

    def __init__(self) -> None:
        self._state = StateView(CardsObserved)

    def apply(self, record: Record) -> str | None:
        """Fold one record; the key of the node that changed, or None."""
        return self._state.apply(record)

    def get(self, node: str) -> CardsObserved | None:
        """What the node has; None when it has not been seen."""
        found = self._state.at(node_key(node))
        return None if found is None else found.data

    def all(self) -> tuple[CardsObserved, ...]:
        """Every node, by name."""
        return tuple(self._state)


class GatewaysView:
    """Which gateways there are. Their place in time is the log's time of append."""

    def __init__(self) -> None:
        self._state = StateView(GatewayBeat)

    def apply(self, record: Record) -> str | None:
        """Fold one beat; the key of a gateway that is new, started anew, moved or leaves, or None."""
        return self._state.apply(record)

    def get(self, gateway: str) -> GatewayBeat | None:
        """The last beat of a gateway."""
        found = self._state.at(f"gateway/{gateway}")
        return None if found is None else found.data

    def heard_at(self, gateway: str) -> Instant | None:
        """When the last beat was appended; None when there was none."""
        found = self._state.at(f"gateway/{gateway}")
        return None if found is None else found.record.appended_at

    def living(self, now: Instant, silence: Seconds = SILENCE) -> tuple[GatewayBeat, ...]:
        """Those heard of within `silence` before `now` that are not leaving, by name.

        Whoever cannot read its own beats back must not ask: then the silence is its own (design §4).
        """
        heard = ((beat, self.heard_at(beat.gateway)) for beat in self._state if not beat.leaving)
        return tuple(beat for beat, at in heard if at is not None and now - at <= silence)
