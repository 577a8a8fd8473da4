"""A `Slots` for tests of the data port: leases by script, and a ledger that notices a double or missing return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from events.names import ModelName, ReplicaName
from events.units import Seconds
from runtime.core.policy import Cancels, Heartbeat, Timeouts
from runtime.ports import CatalogEntry, Lease, ModelRoute, Outcome, Progress, Refusal, TicketRequest, Waiter


@dataclass
class ScriptedSlots:
    """`slots` requests run at a time on `addresses`, the others wait in order; `refusal` refuses everybody."""

    addresses: list[tuple[str, int]]
    slots: int = 1000
    cancels: Cancels = Cancels.ALWAYS
    timeouts: Timeouts = field(default_factory=lambda: Timeouts(Seconds(5.0), Seconds(5.0), Seconds(10.0)))
    max_wait: Seconds = Seconds(30.0)
    heartbeat: Heartbeat | None = None
    models: Sequence[str] = ("echo",)
    refusal: Refusal | None = None
    cold: bool = False
    held_seconds: float = 0.0

    tickets: list[TicketRequest] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    outcomes: list[tuple[Lease, Outcome]] = field(default_factory=list)
    running: dict[int, Lease] = field(default_factory=dict)
    waiting: dict[str, tuple[TicketRequest, Waiter]] = field(default_factory=dict)
    _count: int = 0

    def route(self, name: str) -> ModelRoute | None:
        """Every name in `models` is a model; ``alias/NAME`` is an alias of it."""
        model = name.removeprefix("alias/")
        if model not in self.models:
            return None
        return ModelRoute(ModelName(model), "uid", 1, self.timeouts, self.max_wait, self.heartbeat)

    def take(self, wanted: TicketRequest, waiter: Waiter) -> Lease | None:
        """A lease, or a place in the queue, or a refusal within the call."""
        self.tickets.append(wanted)
        assert wanted.request not in self.waiting, "one request waits twice"
        if self.refusal is not None:
            waiter.refused(self.refusal)
            return None
        if len(self.running) < self.slots:
            return self._lease(wanted)
        self.waiting[wanted.request] = (wanted, waiter)
        return None

    def leave(self, request: str) -> None:
        """The client of a waiting request is gone."""
        del self.waiting[request]
        self.left.append(request)

    def give_back(self, lease: Lease, outcome: Outcome) -> None:
        """A second call for the same lease raises."""
        del self.running[lease.id]
        self.outcomes.append((lease, outcome))
        self.grant()

    def progress(self, request: str) -> Progress | None:
        """Always loading."""
        return Progress("load", list(self.waiting).index(request), Seconds(2.1))

    def grant(self) -> None:
        """Give free slots to those who wait."""
        while self.waiting and len(self.running) < self.slots:
            wanted, waiter = self.waiting.pop(next(iter(self.waiting)))
            waiter.leased(self._lease(wanted))

    def refuse_waiting(self, refusal: Refusal) -> None:
        """Refuse all who wait."""
        while self.waiting:
            _, waiter = self.waiting.pop(next(iter(self.waiting)))
            waiter.refused(refusal)

    def assert_empty(self) -> None:
        """Nothing runs and nobody waits."""
        assert not self.running, f"leases not given back: {self.running}"
        assert not self.waiting, f"tickets not left: {self.waiting}"

    def _lease(self, wanted: TicketRequest) -> Lease:
        self._count += 1
        host, port = self.addresses[(self._count - 1) % len(self.addresses)]
        lease = Lease(
            id=self._count,
            request=wanted.request,
            model=wanted.model,
            replica=ReplicaName(f"{wanted.model}-r1-{(self._count - 1) % len(self.addresses)}"),
            revision=1,
            host=host,
            port=port,
            cancels=self.cancels,
            held_seconds=Seconds(self.held_seconds),
            cold=self.cold,
        )
        self.running[lease.id] = lease
        return lease


@dataclass
class FixedCatalog:
    """A `Catalog` with the lines it is given."""

    lines: Sequence[CatalogEntry] = (CatalogEntry("echo", "Zero", 1_700_000_000, ("alias/echo",)),)

    def entries(self) -> Sequence[CatalogEntry]:
        """All of them."""
        return self.lines
