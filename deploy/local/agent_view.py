"""What a node's agent knows of models: which weights they name, how much they are asked for, how long they start."""

from __future__ import annotations

from dataclasses import dataclass, field

from coldstart.cache.wanting import Wanted
from coldstart.core.cache.room import HALF_LIFE, Heat, asked
from coldstart.core.estimate import StartEstimate
from coldstart.core.tiers import weights_worth
from deploy.local.declared import InvalidDeclaration, read_declaration
from events.envelope import AnyEnvelope
from events.types.decisions import Tiers, WishDecided
from events.types.models import ModelDeclared
from events.types.replicas import ReplicasObserved
from events.types.requests import RequestWindow
from events.units import Bytes, Instant, Seconds

MOST_COUNTED = 64
"""Arrivals of one window that are counted one by one: beyond them a model is hot, however hot."""

MOST_GATEWAYS = 64


@dataclass(frozen=True, slots=True)
class Size:
    """Of weights."""

    bytes: Bytes
    files: int


@dataclass(slots=True)
class KnownModel:
    """One declared model. `wanted` None: its weights do not go through the cache. `asked_until`: a person asked for
    them to be here until then."""

    uid: str
    wanted: Wanted | None
    revision: int = 0
    least: int = 0
    wish: int = 0
    replicas: int = 0
    heat: Heat | None = None
    estimate: StartEstimate = field(default_factory=StartEstimate)
    asked_until: Instant | None = None
    tiers: Tiers | None = None
    """What the autoscaler says of it; None: its cold start has no price."""
    adapters: tuple[Wanted, ...] = ()
    """LoRA adapters that go through the cache: here when the model's weights are."""
    counted: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Of each gateway's newest window: when it began, and the arrivals that were counted."""

    @property
    def all_wanted(self) -> tuple[Wanted, ...]:
        """Weights and adapters."""
        return (*([] if self.wanted is None else [self.wanted]), *self.adapters)

    @property
    def priced(self) -> bool:
        """Whether it is known what a second of its start is worth."""
        return self.tiers is not None and self.tiers.second is not None

    def rate(self, now: Instant) -> float:
        """Requests an hour, fading with the half-life of heat."""
        heat = self.heat
        return 0.0 if heat is None else heat.rate * 0.5 ** (max(0.0, now - heat.at) / HALF_LIFE)

    def worth(self, absence: Seconds, size: Bytes) -> float:
        """GPU-seconds that having such weights for an hour is expected to save; 0 where it has no price."""
        if self.tiers is None or self.tiers.second is None:
            return 0.0
        return weights_worth(self.tiers.soon, self.tiers.second, absence, size)

    def counted_on(self, now: Instant) -> bool:
        """Whether somebody counts on its weights being here."""
        asked = self.asked_until is not None and self.asked_until > now
        return self.least > 0 or self.wish > 0 or self.replicas > 0 or asked


class AgentView:
    """All declared models. `fold` says whether something changed that matters for who should be here."""

    def __init__(self) -> None:
        self.models: dict[str, KnownModel] = {}
        self.sizes: dict[Wanted, Size] = {}
        """Of weights that were fetched or asked for, and that models name."""

    def fold(self, envelope: AnyEnvelope) -> bool:
        """Take in an event."""
        data = envelope.data
        if isinstance(data, ModelDeclared):
            return self._declared(data)
        model = self.models.get(getattr(data, "model", ""))
        if model is None:
            return False
        if isinstance(data, RequestWindow):
            return self._asked(model, data, envelope.time)
        if isinstance(data, WishDecided) and data.uid == model.uid:
            changed = (model.wish > 0) is not (data.replicas > 0) or model.tiers != data.tiers
            model.wish, model.tiers = data.replicas, data.tiers
            return changed
        if isinstance(data, ReplicasObserved) and data.uid == model.uid:
            model.estimate.fold(data)
            changed, model.replicas = model.replicas != len(data.replicas), len(data.replicas)
            return changed
        return False

    def _declared(self, data: ModelDeclared) -> bool:
        if data.deleted:
            return self.models.pop(data.model, None) is not None
        try:
            declared = read_declaration(data)
            wanted, adapters = declared.wanted, tuple(one.wanted for one in declared.adapters if one.wanted is not None)
        except InvalidDeclaration:
            wanted, adapters = None, ()  # its starts say what is wrong with it
        known = self.models.get(data.model)
        if known is None or known.uid != data.uid:
            known = self.models[data.model] = KnownModel(data.uid, None)
        scaling = data.spec.get("scaling")
        least = scaling.get("minReplicas", 0) if isinstance(scaling, dict) else 0
        least = least if isinstance(least, int) else 0
        told = (wanted, adapters, least, data.revision)
        changed = (known.wanted, known.adapters, known.least, known.revision) != told
        known.wanted, known.adapters, known.least, known.revision = told
        return changed

    @staticmethod
    def _asked(model: KnownModel, window: RequestWindow, at: Instant) -> bool:
        before = model.heat
        began, counted = model.counted.get(window.gateway, (0.0, 0))
        more = window.arrivals - (counted if began == window.started_at else 0)  # a window grows, and replaces itself
        if window.gateway not in model.counted and len(model.counted) >= MOST_GATEWAYS:
            model.counted.pop(next(iter(model.counted)))
        model.counted[window.gateway] = (window.started_at, window.arrivals)
        for _ in range(min(max(0, more), MOST_COUNTED)):
            model.heat = asked(model.heat, at, 0.0)
        return before is None and model.heat is not None

    def by_weights(self) -> dict[Wanted, list[str]]:
        """Who names which weights."""
        found: dict[Wanted, list[str]] = {}
        for name, model in self.models.items():
            for wanted in dict.fromkeys(model.all_wanted):
                found.setdefault(wanted, []).append(name)
        return found

    def models_of(self, wanted: Wanted) -> tuple[str, ...]:
        """Who names these weights."""
        return tuple(sorted(name for name, model in self.models.items() if wanted in model.all_wanted))
