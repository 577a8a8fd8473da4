"""Clients on a simulated system: requests that wait, run, leave, and meet engines that die; what the gateway does for
each of them, without HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from events.names import ModelName
from events.units import Instant
from runtime.core.policy import Cancels
from runtime.desk.desk import Desk
from runtime.ports import Ending, Lease, Outcome, Refusal, TicketRequest
from tests.support.simulated_cluster import Engine, Machine

FIRST_BYTE = 0.05
"""Seconds of work before the first byte is relayed: what breaks earlier is tried again."""
TRIES = 3
ENGINE_CANCELS = 0.1
"""Seconds in which an engine that cancels is done (llama.cpp's)."""


@dataclass(frozen=True)
class Request:
    """What a client wants, and how it behaves. `leaves`: seconds after which it goes, whatever has happened."""

    name: str
    model: str
    caller: str
    seconds: float
    wait: float
    stream: bool
    leaves: float | None
    total: float


class Client:
    """One request, from its arrival to its one end."""

    def __init__(self, wanted: Request, desk: Desk, machine: Machine, ended: Callable[[Client], None]) -> None:
        self.wanted = wanted
        self.arrived_at = machine.clock.now()
        self.lease: Lease | None = None
        self.engine: Engine | None = None
        self.how = ""
        """How it ended; empty while it has not."""
        self.gone = False
        self.waits = False
        self.leased_at = Instant(0.0)
        self._desk = desk
        self._machine = machine
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._leaving: asyncio.TimerHandle | None = None
        self._tries = 0

    @property
    def deadline(self) -> float:
        """Until when it may wait."""
        return self.arrived_at + self.wanted.wait

    def start(self) -> None:
        """Arrive."""
        if self.wanted.leaves is not None:
            self._leaving = self._loop.call_later(self.wanted.leaves, self.leave)
        self._ask()

    def _ask(self) -> None:
        wanted = self.wanted
        self.waits = True
        lease = self._desk.take(
            TicketRequest(
                request=wanted.name, model=ModelName(wanted.model), caller=wanted.caller, arrived_at=self.arrived_at,
                deadline=Instant(self.deadline), body_bytes=100, stream=wanted.stream, attempt=self._tries,
            ), self,
        )  # fmt: skip
        if lease is not None:
            self.leased(lease)

    # As a waiter

    def leased(self, lease: Lease) -> None:
        """See `Waiter.leased`."""
        assert self.waits, f"{self.wanted.name} got a lease and does not wait: {self.how or 'it has one'}"
        assert lease.model == self.wanted.model
        self.waits, self.lease, self.leased_at = False, lease, self._machine.clock.now()
        engine = self._machine.at(lease.port)
        if engine is None or not engine.ready:
            self._timer = self._loop.call_later(0.002, self._unreachable)
            return
        self.engine = engine
        engine.running.add(self.wanted.name)
        assert engine.hung or len(engine.running) <= engine.slots, f"{lease.replica} runs more than its slots"
        hangs = engine.hung
        self._timer = self._loop.call_later(
            self.wanted.total if hangs else self.wanted.seconds, self._times_out if hangs else self._finishes
        )

    def refused(self, refusal: Refusal) -> None:
        """See `Waiter.refused`."""
        assert self.waits, f"{self.wanted.name} is refused and does not wait: {self.how or 'it has a lease'}"
        self.waits = False
        self._end(f"refused: {refusal.code}")

    # What happens to it

    def leave(self) -> None:
        """The client goes."""
        self._leaving = None
        if self.how or self.gone:
            return
        self.gone = True
        if self.waits:
            self.waits = False
            self._desk.leave(self.wanted.name)
            self._end("left while it waited")
            return
        engine = self.engine
        if engine is None:
            return  # on its way to an engine: the failed dispatch ends it
        cancels = engine.behaviour.cancels
        if cancels is Cancels.ALWAYS or (cancels is Cancels.STREAMS and self.wanted.stream):
            self._loop.call_later(ENGINE_CANCELS, engine.running.discard, self.wanted.name)
            self.engine = None
            self._give_back(Outcome(ending=Ending.CLIENT_LEFT, engine_done=False))
            self._end("left while it ran")

    def engine_ended(self) -> None:
        """The process that works on it is gone: the connection is reset."""
        assert self.lease is not None
        worked = self._machine.clock.now() - self.leased_at
        if self._timer is not None:
            self._timer.cancel()
        self.engine = None
        if worked < FIRST_BYTE:
            self._timer = self._loop.call_later(0.001, self._unreachable)
        else:
            self._timer = self._loop.call_later(0.001, self._broken)

    def _unreachable(self) -> None:
        self._tries += 1
        self._give_back(Outcome(ending=Ending.UNREACHABLE))
        if self.gone or self._tries >= TRIES:
            self._end("left while it ran" if self.gone else "unreachable")
        else:
            self._ask()

    def _broken(self) -> None:
        self._give_back(Outcome(ending=Ending.BROKEN))
        self._end("broken")

    def _times_out(self) -> None:
        self.engine = None  # a hung engine keeps the request for ever
        self._give_back(Outcome(ending=Ending.TIMED_OUT, engine_done=False))
        self._end("timed out")

    def _finishes(self) -> None:
        assert self.engine is not None
        self.engine.running.discard(self.wanted.name)
        self.engine = None
        ending = Ending.CLIENT_LEFT if self.gone else Ending.FINISHED
        now = self._machine.clock.now()
        self._give_back(Outcome(ending=ending, status=200, first_byte_at=now))
        self._end("left while it ran" if self.gone else "finished")

    def _give_back(self, outcome: Outcome) -> None:
        lease, self.lease, self._timer = self.lease, None, None
        assert lease is not None
        self._desk.give_back(lease, outcome)

    def _end(self, how: str) -> None:
        assert not self.how, f"{self.wanted.name} ends twice: {self.how}, then {how}"
        assert self.lease is None
        self.how = how
        for timer in (self._timer, self._leaving):
            if timer is not None:
                timer.cancel()
        self._ended(self)
