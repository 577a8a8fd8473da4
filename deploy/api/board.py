"""The board: what is, folded from the log's states and news, for people who ask. Never on the hot path.

`Board.apply` takes one record; all else reads. It holds one entry a model, replica and node; a deleted
model is shown until its last replica is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from deploy.api.book import Book
from deploy.api.claims import Claims
from deploy.api.ports import Traffic
from deploy.api.shapes import Metadata, ModelItem, ObjectiveStatus
from deploy.api.status import Facts, model_status
from events.clock import Clock
from events.envelope import AnyEnvelope
from events.names import Topic
from events.types.decisions import WishDecided
from events.types.gateways import GatewayBeat
from events.types.gpus import GpusObserved
from events.types.grants import GrantDecided
from events.types.limits import Limit, LimitsObserved
from events.types.models import ModelDeclared
from events.types.phases import ColdStartFinished
from events.types.replicas import CardsObserved, ReplicasObserved, ReplicaState, ReplicaStatus
from events.types.requests import Levels, RequestWindow
from events.units import Instant

STATES: tuple[str, ...] = (
    Topic.MODELS, Topic.DECISIONS, Topic.GRANTS, Topic.REPLICAS, Topic.CARDS, Topic.CACHES, Topic.RECLAIMS,
)  # fmt: skip
"""The state topics that the boards follow."""

BREATH = 50
"""Models after which the loop may do other things: some milliseconds, since requests run on it too."""

NEWS: tuple[str, ...] = (Topic.GATEWAYS, Topic.REQUESTS, Topic.METRICS, Topic.PHASES, Topic.DEAD_LETTERS)
"""What is followed from now on only, for numbers."""


Objectives = Callable[[str], Sequence[ObjectiveStatus]]
"""What a model promised, and whether it was kept."""


def no_objectives(model: str) -> Sequence[ObjectiveStatus]:  # noqa: ARG001 - the port's shape
    """For a board beside which nobody counts."""
    return ()


@dataclass(slots=True)
class ModelBoard:
    """What is known of one model. `windows`: the last of each gateway."""

    declared: ModelDeclared | None = None
    wish: WishDecided | None = None
    grant: GrantDecided | None = None
    observed: ReplicasObserved | None = None
    last_start: ReplicaStatus | None = None
    start_seconds: float | None = None
    cold_start: ColdStartFinished | None = None
    """The last one that was heard of."""
    windows: dict[str, RequestWindow] = field(default_factory=dict)

    @property
    def gone(self) -> bool:
        """Deleted, and nothing of it runs."""
        if self.declared is None or not self.declared.deleted:
            return False
        return self.observed is None or self.observed.uid != self.declared.uid or not self.observed.replicas

    def forget_if_gone(self) -> None:
        """Keep only the declaration of what is gone: the next one of this name goes on from its revision."""
        if self.gone:
            self.wish = self.grant = self.observed = self.last_start = self.start_seconds = self.cold_start = None
            self.windows.clear()


@dataclass(slots=True)
class _Beats:
    """Of one start of a gateway."""

    boot: str
    last_at: Instant
    count: int = 1


class Board:
    """All models, their replicas, and the nodes. `book`: the models' declarations."""

    def __init__(self, gateway_limit: int = 64, objectives: Objectives = no_objectives) -> None:
        self.book = Book(_name_of, self._declare)
        self._models: dict[str, ModelBoard] = {}
        self._claims = Claims()
        self._objectives = objectives
        self._nodes: dict[str, CardsObserved] = {}
        self._devices: dict[str, GpusObserved] = {}
        self._limits: tuple[Limit, ...] = ()
        self._beats: dict[str, _Beats] = {}
        self._gateway_limit = gateway_limit

    def apply(self, envelope: AnyEnvelope, offset: int) -> None:
        """Take in what happened. `offset` is its place in the log: a declaration never gives way to an earlier one."""
        data = envelope.data
        if isinstance(data, ModelDeclared):
            self.book.hear(data, offset)
        elif isinstance(data, WishDecided):
            self._of(data.model).wish = data
        elif isinstance(data, GrantDecided):
            self._of(data.model).grant = data
        elif isinstance(data, ReplicasObserved):
            self._observe(data)
        elif isinstance(data, CardsObserved | GpusObserved | LimitsObserved):
            self._told_of_nodes(data)
        elif isinstance(data, RequestWindow):
            self._window(data)
        elif isinstance(data, ColdStartFinished) and data.model in self._models:
            self._models[data.model].cold_start = data
        elif isinstance(data, GatewayBeat):
            self._beat(data, envelope.time)

    def _told_of_nodes(self, data: CardsObserved | GpusObserved | LimitsObserved) -> None:
        if isinstance(data, CardsObserved):
            self._nodes[data.node] = data
        elif isinstance(data, GpusObserved):
            self._devices[data.node] = data
        else:
            self._limits = data.limits

    def declared(self, name: str) -> ModelDeclared | None:
        """The newest declaration of a name, also one that deletes it."""
        return self.book.newest(name)

    def entry(self, name: str) -> ModelBoard | None:
        """What is known of a model that is declared, or deleted and still draining."""
        entry = self._models.get(name)
        return entry if entry and entry.declared and not entry.gone else None

    def names(self) -> list[str]:
        """Models that are declared or still draining, in order."""
        return sorted(name for name in self._models if self.entry(name))

    def owner(self, name_or_alias: str) -> str | None:
        """The declared model with this name or alias."""
        if self.entry(name_or_alias):
            return name_or_alias
        return self._claims.owner(name_or_alias)

    def objectives(self, name: str) -> Sequence[ObjectiveStatus]:
        """What a model promised, and whether it was kept."""
        return self._objectives(name)

    def replicas(self) -> list[tuple[str, ReplicaStatus]]:
        """(model, replica) of everything observed, by name of the replica."""
        found = [
            (name, replica)
            for name, entry in self._models.items()
            if entry.observed
            for replica in entry.observed.replicas
        ]
        return sorted(found, key=lambda pair: pair[1].replica)

    def limits(self) -> tuple[Limit, ...]:
        """What quotas of the namespace leave, as it was told last."""
        return self._limits

    def devices(self) -> Mapping[str, GpusObserved]:
        """What the GPUs of each node say, where an agent tells."""
        return dict(self._devices)

    def nodes(self) -> Sequence[CardsObserved]:
        """What each node has."""
        return [self._nodes[name] for name in sorted(self._nodes)]

    def gateways_alive(self, now: Instant, fresh: float) -> set[str]:
        """Gateways that were heard twice, so for a second at least, and last within `fresh` seconds."""
        return {name for name, beats in self._beats.items() if beats.count > 1 and now - beats.last_at <= fresh}

    def grants(self) -> Mapping[str, GrantDecided]:
        """The newest grant of each model."""
        return {name: entry.grant for name, entry in self._models.items() if entry.grant}

    def item(self, name: str, levels: Mapping[str, Levels], now: Instant) -> ModelItem | None:
        """A model as the API shows it."""
        entry = self.entry(name)
        if entry is None or entry.declared is None:
            return None
        facts = Facts(
            declared=entry.declared, now=now, wish=entry.wish, grant=entry.grant, observed=entry.observed,
            levels=levels.get(name), last_start=entry.last_start, start_seconds=entry.start_seconds,
            objectives=self._objectives(name), lost_aliases=self._claims.lost(name),
        )  # fmt: skip
        return ModelItem(
            metadata=metadata_of(entry.declared), spec=dict(entry.declared.spec), status=model_status(facts)
        )

    def _of(self, model: str) -> ModelBoard:
        return self._models.setdefault(model, ModelBoard())

    def _declare(self, before: ModelDeclared | None, data: ModelDeclared) -> None:
        entry = self._of(data.model)
        if before and before.uid != data.uid:
            entry.windows.clear()
            entry.last_start = entry.start_seconds = None
        entry.declared = data
        self._claims.declare(data)
        entry.forget_if_gone()

    def _observe(self, data: ReplicasObserved) -> None:
        entry = self._of(data.model)
        entry.observed = data
        started = [replica for replica in data.replicas if replica.phases and replica.state is not ReplicaState.FAILED]
        if started:
            newest = max(started, key=lambda replica: replica.phases[0].started_at)
            if not _older(newest, entry.last_start):
                entry.last_start = newest
                if newest.ready_at is not None:
                    entry.start_seconds = round(newest.ready_at - newest.phases[0].started_at, 6)

        entry.forget_if_gone()

    def _beat(self, data: GatewayBeat, at: Instant) -> None:
        beats = self._beats.get(data.gateway)
        if data.leaving:
            self._beats.pop(data.gateway, None)
        elif beats is None or beats.boot != data.boot:
            if beats is None and len(self._beats) >= self._gateway_limit:
                del self._beats[min(self._beats, key=lambda gateway: self._beats[gateway].last_at)]
            self._beats[data.gateway] = _Beats(data.boot, at)
        else:
            beats.count, beats.last_at = beats.count + 1, at

    def _window(self, data: RequestWindow) -> None:
        entry = self._models.get(data.model)
        if entry is None:  # a name that nobody declared takes no memory
            return
        windows = entry.windows
        if data.gateway not in windows and len(windows) >= self._gateway_limit:
            oldest = min(windows, key=lambda gateway: windows[gateway].ended_at)
            del windows[oldest]
        windows[data.gateway] = data


def _name_of(declared: ModelDeclared) -> str:
    return declared.model


def _older(replica: ReplicaStatus, than: ReplicaStatus | None) -> bool:
    return than is not None and than.uid == replica.uid and replica.phases[0].started_at < than.phases[0].started_at


def levels_of(traffic: Traffic) -> dict[str, Levels]:
    """Running and held requests by model, of the models that the slot authority knows."""
    return {one.model: Levels(running=one.running, waiting=one.held) for one in traffic.statuses()}


async def items_in_breaths(board: Board, traffic: Traffic, clock: Clock) -> AsyncIterator[ModelItem]:
    """Every model as the API shows it; after each `BREATH` of them the loop may do other things."""
    levels, now = levels_of(traffic), clock.now()
    for count, name in enumerate(board.names(), 1):
        item = board.item(name, levels, now)
        if item is not None:
            yield item
        if count % BREATH == 0:
            await asyncio.sleep(0)


def metadata_of(declared: ModelDeclared) -> Metadata:
    """Who the declaration is about."""
    return Metadata(
        name=declared.model, labels=dict(declared.labels), annotations=dict(declared.annotations), uid=declared.uid,
        generation=declared.generation, revision=declared.revision,
    )  # fmt: skip
