"""Routes the records of the log to the views of the models, and enters in the agenda which to look at, and when."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any, Final

from autoscaler.core.agenda import Agenda
from autoscaler.core.gateways import Gateways, World
from autoscaler.core.signals import BACKLOG_VALID, Reading
from autoscaler.core.view import Declared, ModelView
from autoscaler.declared import read_declaration
from autoscaler.record import read_wish
from events.fence import Observers, Owners
from events.log import Record
from events.names import is_dns_label
from events.types.decisions import OwnershipTaken, WishDecided
from events.types.gateways import GatewayBeat
from events.types.metrics import BacklogMeasured, LagMeasured, QueryMeasured, ReplicaMetrics, SignalMeasured
from events.types.models import ModelDeclared
from events.types.replicas import ReplicasObserved
from events.types.requests import ActivationRequested, RequestArrived, RequestFinished, RequestWindow
from events.units import Instant, Seconds
from events.urgency import is_urgent

logger = logging.getLogger(__name__)

UNDECLARED_MOST: Final = 1024
"""Names that are kept though nobody has declared them (yet); the one that came first makes room."""

NAME_MOST: Final = 253
"""Characters of a foreign name (of a source, gateway, request, signal) that are kept: bounds what anybody can fill."""


class Fold:
    """All models of one partition, from `relume.models`, `.decisions`, `.replicas`, `.gateways`, `.requests` and
    `.metrics`.

    `live_from`: records that were appended before it are history: they are folded, and nobody is looked at for their
    sake. `gateways` are the same for all partitions, and then their owner tells them how far the log has gone on.
    """

    def __init__(self, agenda: Agenda, tick: Seconds, live_from: Instant, gateways: Gateways | None = None) -> None:
        self.models: dict[str, ModelView] = {}
        self.world = World(Gateways() if gateways is None else gateways, None)
        self._alone = gateways is None
        self.epoch = -1
        """Offset of our own `ownership.taken`."""
        self.taken_at: Instant | None = None
        """When the log took it down, by its own time."""
        self.lost_to: str | None = None
        """Who has taken ownership from us."""
        self.owners = Owners()
        self._observers = Observers()
        self.past: Fold | None = None
        """Where demand from before is read back to, meanwhile; it learns of declarations too."""
        self.unreadable = 0
        """Declarations and other events that could not be read; what was known before stands."""
        self._agenda = agenda
        self._tick = tick
        self.live_from = live_from
        self._undeclared: dict[str, None] = {}
        self._hidden: dict[str, int] = {}
        """Models whose newest wish in the log is void, and its offset: theirs must be said again."""
        self._states_known = False
        self._cold_start_cost: Seconds | None = None
        self._at = live_from
        """The time of the record that is being folded."""
        self._now = live_from
        self._handlers: dict[type[Any], Callable[[Any, Record], None]] = {
            ModelDeclared: self._declared,
            WishDecided: self._wished,
            OwnershipTaken: self._owned,
            ReplicasObserved: self._observed,
            GatewayBeat: self._beat,
            RequestWindow: self._window,
            RequestArrived: self._arrived,
            RequestFinished: self._finished,
            ActivationRequested: self._activation,
            SignalMeasured: self._signal,
            BacklogMeasured: self._backlog,
            LagMeasured: self._lag,
            QueryMeasured: self._query,
            ReplicaMetrics: self._metrics,
        }

    def take(self, record: Record, now: Instant) -> None:
        """Fold one record. Types that say nothing to the autoscaler are passed over.

        Its time is the log's append time, or `now` when that lies ahead: after the wall clock was set back between two
        starts, the log's time stands still until the clock has caught up.
        """
        self._at, self._now = min(record.appended_at, now), now
        if self._alone:
            self.world.gateways.passed(self._at)
        handler = self._handlers.get(type(record.envelope.data))
        if handler is not None:
            try:
                handler(record.envelope.data, record)
            except Exception:  # it stays in the log: whoever starts anew would end by it again
                self.unreadable += 1
                logger.exception("%s of %s is passed over", type(record.envelope.data).__name__, record.envelope.source)
        if self.past is not None and isinstance(record.envelope.data, ModelDeclared):
            self.past.take(record, now)

    def states_read(self) -> None:
        """The states of before the start are known: who has no wish on record, or another's, gets one at once."""
        self._states_known = True
        for model, view in list(self.models.items()):
            if view.declared is None:
                self.forget(model)
            elif not view.stands:
                self._agenda.urgent(model)

    def history_read(self, since: Instant, now: Instant) -> None:
        """All demand since `since` is known from now on: every model may be decided in full."""
        self.world = replace(self.world, followed_since=since)
        for model in self.models:
            self._agenda.at(model, now)

    def begin_past(self) -> Fold:
        """A fold for demand from before: of the same models, and nobody is looked at for its sake."""
        past = self.past = Fold(Agenda(), self._tick, Instant(inf), self.world.gateways)
        past.set_cold_start_cost(self._cold_start_cost, self._at)
        for model, view in self.models.items():
            if view.declared is not None:
                past.view_of(model).declare(view.declared, self._at, past.world)
        past.states_read()
        return past

    def join_past(self, since: Instant, now: Instant) -> None:
        """The past has been read up to what is folded here: its demand, which began `since`, is what is known."""
        past, self.past = self.past, None
        if past is not None:
            for model, view in self.models.items():
                known = past.models.get(model)
                if known is not None and known.declared is not None and view.is_of(known.declared.uid):
                    view.inherit(known)
        self.history_read(since, now)

    def forget(self, model: str) -> None:
        """The model is gone, and its last wish says so."""
        self.models.pop(model, None)
        self._undeclared.pop(model, None)
        self._hidden.pop(model, None)
        self._agenda.forget(model)
        if self.past is not None:
            self.past.forget(model)

    def forget_all(self) -> None:
        """Nothing here is ours to decide any more."""
        for model in list(self.models):
            self.forget(model)

    def recorded_at(self, model: str, offset: int) -> bool:
        """Our wish stands at this offset. Whether it is the newest: else a void one hides it, and it must be said
        again."""
        return self._hidden.pop(model, -1) < offset

    # -- states

    def _declared(self, data: ModelDeclared, record: Record) -> None:
        try:
            declared = read_declaration(data)
        except ValueError as error:
            self.unreadable += 1
            logger.warning("declaration of %s, generation %d, cannot be read: %s", data.model, data.generation, error)
            return
        self._look(self.declare(data.model, declared, self._at), record, urgent=True)

    def declare(self, model: str, declared: Declared, at: Instant) -> ModelView:
        """A model is declared: it is kept, however many there are."""
        view = self.view_of(model)
        self._undeclared.pop(model, None)
        view.declare(declared.priced(self._cold_start_cost), at, self.world)
        return view

    def set_cold_start_cost(self, cost: Seconds | None, at: Instant) -> None:
        """The pool says what a cold start is worth, in GPU-seconds: models that do not say it themselves go by it."""
        if cost == self._cold_start_cost:
            return
        self._cold_start_cost = cost
        if self.past is not None:
            self.past.set_cold_start_cost(cost, at)
        for model, view in self.models.items():
            if view.declared is not None and (now := view.declared.priced(cost)).policy != view.declared.policy:
                view.declare(now, at, self.world)
                self._agenda.urgent(model)

    def _wished(self, data: WishDecided, record: Record) -> None:
        """Wishes of before our time. Our own are known; later ones of others are void: their epoch is older."""
        if not self.owners.admits(record):
            self._say_again(data.model, record)
            return
        if self.epoch >= 0 and record.position.offset > self.epoch:
            return
        view = self.view_of(data.model)
        view.adopt(*read_wish(data, self._at))
        self._look(view, record, urgent=False)

    def _owned(self, data: OwnershipTaken, record: Record) -> None:
        if not self.owners.admits(record):
            return
        if 0 <= self.epoch < record.position.offset:
            self.lost_to = data.owner
        elif record.position.offset == self.epoch:
            self.taken_at = self._at

    def _say_again(self, model: str, record: Record) -> None:
        """A void wish is the newest value of its key now; whoever reads the newest values only would find none."""
        view = self.models.get(model)
        if view is None or record.position.offset < self.epoch:
            return  # one that hides a wish from before our time: with none on record we say one anyway
        self._hidden[model] = record.position.offset
        view.unsure = view.dirty = True
        self._agenda.urgent(model)

    def _observed(self, data: ReplicasObserved, record: Record) -> None:
        if not self._observers.admits(record):
            return
        view = self.view_of(data.model)
        view.observe(data, self._at)
        self._look(view, record, urgent=False, when=self._at)

    def _beat(self, data: GatewayBeat, _: Record) -> None:
        self.world.gateways.beat(data.gateway[:NAME_MOST], data.boot[:NAME_MOST], self._at)

    # -- news

    def _window(self, data: RequestWindow, record: Record) -> None:
        self.world.gateways.seen(data.gateway[:NAME_MOST], self._at)
        if record.appended_at >= self.live_from:
            self.world.behind.took(self._at, self._now)
        view = self.view_of(data.model)
        pressed = view.window(record.envelope.source[:NAME_MOST], data, self._at, self.world)
        self._look(view, record, urgent=pressed)

    def _arrived(self, data: RequestArrived, record: Record) -> None:
        view = self.view_of(data.model)
        self._look(view, record, urgent=view.request(data.request[:NAME_MOST], self._at, arrived=True))

    def _finished(self, data: RequestFinished, record: Record) -> None:
        view = self.view_of(data.model)
        self._look(view, record, urgent=view.request(data.request[:NAME_MOST], self._at, arrived=False))

    def _activation(self, data: ActivationRequested, record: Record) -> None:
        view = self.view_of(data.model)
        until = None if data.until is None else Instant(data.until)
        self._look(view, record, urgent=view.activate(data.replicas, until, self._at))

    def _signal(self, data: SignalMeasured, record: Record) -> None:
        view = self.view_of(data.model)
        reading = Reading(data.value, data.target, Seconds(data.valid_for))
        self._look(view, record, urgent=view.signal(data.name[:NAME_MOST], reading, self._at))

    def _backlog(self, data: BacklogMeasured, record: Record) -> None:
        view = self.view_of(data.model)
        need = data.items if data.concurrency is None else data.concurrency
        reading = Reading(need, None, BACKLOG_VALID)
        self._look(view, record, urgent=view.signal(f"backlog/{data.source[:NAME_MOST]}", reading, self._at))

    def _lag(self, data: LagMeasured, record: Record) -> None:
        view = self.view_of(data.model)
        short = data if len(data.name) <= NAME_MOST else replace(data, name=data.name[:NAME_MOST])
        self._look(view, record, urgent=view.lag(short, self._at))

    def _query(self, data: QueryMeasured, record: Record) -> None:
        view = self.view_of(data.model)
        short = data if len(data.name) <= NAME_MOST else replace(data, name=data.name[:NAME_MOST])
        self._look(view, record, urgent=view.query(short, self._at))

    def _metrics(self, data: ReplicaMetrics, record: Record) -> None:
        view = self.models.get(data.model)
        if view is not None and (asks := view.metrics(data, self._at)) is not None:
            self._look(view, record, urgent=asks)

    # -- inside

    def view_of(self, model: str) -> ModelView:
        """What is known of a model; what nobody declares is kept within a bound."""
        view = self.models.get(model)
        if view is None:
            view = ModelView(model)
            if not is_dns_label(model):
                return view  # no model can have this name: nothing is kept of it
            self.models[model] = view
            if self._states_known:  # before, a wish may come ahead of its declaration, for any number of models
                if len(self._undeclared) >= UNDECLARED_MOST:
                    self.forget(next(iter(self._undeclared)))
                self._undeclared[model] = None
        return view

    def _look(self, view: ModelView, record: Record, *, urgent: bool, when: Instant | None = None) -> None:
        """The model is dirty: look at it at once, then, or at its next tick. History alone makes nothing dirty."""
        if view.declared is None or record.appended_at < self.live_from:
            return
        if urgent:
            view.cause = record.envelope.id
            first = is_urgent(record.envelope.data)
            (self._agenda.edge if first else self._agenda.urgent)(view.model)
            return
        due = view.decided_at + self._tick if when is None else when
        self._agenda.at(view.model, Instant(max(due, self._at)))
