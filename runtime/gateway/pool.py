"""Connections to replicas that wait for their next request: bounded in number and age, the freshest used first."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

from events.clock import Clock
from events.units import Instant
from runtime.gateway.outbox import Outbox
from runtime.gateway.response_head import KnownHeads
from runtime.gateway.settings import GatewaySettings
from runtime.gateway.upstream import UpstreamConnection
from runtime.gateway.wheel import Wheel

Address = tuple[str, int]

AHEAD_MOST = 1024
"""Connections opened ahead of requests, and not used yet, over all replicas: what a burst to a model at zero needs,
and a sixteenth of the descriptors that a process usually may have."""


class ConnectionWaiter(Protocol):
    """Wants a connection; one of these is called, unless it cancels the attempt."""

    def connected(self, connection: UpstreamConnection) -> None:
        """Here it is, new."""

    def connect_failed(self, reason: str) -> None:
        """The replica could not be reached."""


class UpstreamPool:
    """All connections to replicas. A lease uses one, so leases bound those in use."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, wheel: Wheel, clock: Clock, settings: GatewaySettings, outbox: Outbox
    ) -> None:
        self.max_head_bytes = settings.max_head_bytes
        self.max_headers = settings.max_headers
        self.known_heads = KnownHeads()
        self.outbox = outbox
        self.wake_slot = 0
        self._loop = loop
        self._wheel = wheel
        self._clock = clock
        self._settings = settings
        self._idle: dict[Address, list[UpstreamConnection]] = {}
        self._attempts: dict[asyncio.Task[None], Instant | None] = {}
        """When each began, in this order; None: not yet. (Their time is watched by the wheel: a timer for each is a
        third of the cost of a connection, 35 µs, and a thousand may be opened at once.)"""
        self._overdue: set[asyncio.Task[None]] = set()
        self._ahead: dict[Address, asyncio.Task[None]] = {}
        """Who opens connections ahead, one a replica."""
        self._open: set[UpstreamConnection] = set()
        self._closed = asyncio.Event()
        self._closing = False

    @property
    def idle(self) -> int:
        """Connections that wait for a request."""
        return sum(len(waiting) for waiting in self._idle.values())

    @property
    def connecting(self) -> int:
        """Attempts under way."""
        return len(self._attempts)

    @property
    def opening(self) -> int:
        """Replicas to which connections are being opened ahead."""
        return len(self._ahead)

    def take(self, address: Address) -> UpstreamConnection | None:
        """The connection used last, or None: then `connect`."""
        waiting = self._idle.get(address)
        while waiting:
            connection = waiting.pop()
            transport = connection.transport
            if transport is not None and not transport.is_closing():
                return connection
        return None

    def connect(self, address: Address, waiter: ConnectionWaiter) -> asyncio.Task[None]:
        """Open a new connection; cancel the task to give up."""
        ahead = self._ahead.get(address)
        if ahead is not None:
            ahead.cancel()
        attempt = self._loop.create_task(self._connect(address, waiter))
        self._attempts[attempt] = None
        attempt.add_done_callback(self._attempt_ended)
        settings = self._settings
        # No later than an idle connection would need it: `release` relies on that.
        self._wheel.wake_by(self, self._clock.now() + min(settings.connect_timeout, settings.upstream_idle))
        return attempt

    def open_ahead(self, address: Address, most: int) -> None:
        """Open connections before there are requests, until `most` wait; one after the other, in one task.

        No more than `AHEAD_MOST`. They are closed like all that wait when nobody has used them in time, and no new ones
        come in their place. As soon as somebody must `connect` there, no more are opened.
        """
        if self._closing or address in self._ahead:
            return
        missing = most - len(self._idle.get(address, ()))
        if missing > 0:
            opening = self._ahead[address] = self._loop.create_task(self._open_ahead(address, missing))
            opening.add_done_callback(lambda _: self._ahead.pop(address, None))

    def release(self, connection: UpstreamConnection) -> None:
        """Keep it for another request."""
        waiting = self._idle.get(connection.address)
        if waiting is None:
            waiting = self._idle[connection.address] = []
        elif len(waiting) >= self._settings.max_upstream_idle:
            connection.abort()
            return
        now = self._clock.now()
        connection.idle_since = now
        waiting.append(connection)
        if not self.wake_slot:  # else it wakes in time: whoever waits already is older
            self._wheel.wake_by(self, now + self._settings.upstream_idle)

    def opened(self, connection: UpstreamConnection) -> None:
        """It is open."""
        self._open.add(connection)

    def lost(self, connection: UpstreamConnection) -> None:
        """It is closed."""
        self._open.discard(connection)
        if self._closing and not self._open:
            self._closed.set()
        waiting = self._idle.get(connection.address)
        if waiting is not None and connection in waiting:
            waiting.remove(connection)
            if not waiting:
                del self._idle[connection.address]

    def wake(self, now: Instant) -> float | None:
        """Close what has waited too long, give up what takes too long; the oldest are first in each list."""
        attempts_due = self._give_up_overdue(now)
        oldest = None
        for address in list(self._idle):
            waiting = self._idle[address]
            while waiting and now - waiting[0].idle_since >= self._settings.upstream_idle:
                waiting.pop(0).abort()
            if not waiting:
                del self._idle[address]
            elif oldest is None or waiting[0].idle_since < oldest:
                oldest = waiting[0].idle_since
        if oldest is None:
            return attempts_due
        idle_due = oldest + self._settings.upstream_idle
        return idle_due if attempts_due is None else min(idle_due, attempts_due)

    def _give_up_overdue(self, now: Instant) -> float | None:
        for attempt, began_at in self._attempts.items():
            if began_at is None:  # a task that is cancelled before it begins would tell nobody
                return now + self._settings.connect_timeout
            due = began_at + self._settings.connect_timeout
            if due > now:
                return due
            if attempt not in self._overdue:
                self._overdue.add(attempt)
                attempt.cancel()
        return None

    async def close(self) -> None:
        """Close all connections and give up what connects."""
        self._closing = True
        self._wheel.forget(self)
        attempts = [*self._attempts, *self._ahead.values()]
        for attempt in attempts:
            attempt.cancel()
        if attempts:
            await asyncio.wait(attempts)
        self._idle.clear()
        if self._open:
            for connection in self._open:
                connection.abort()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.linger_timeout):
                    await self._closed.wait()

    def _attempt_ended(self, attempt: asyncio.Task[None]) -> None:
        del self._attempts[attempt]
        self._overdue.discard(attempt)

    async def _connect(self, address: Address, waiter: ConnectionWaiter) -> None:
        host, port = address
        attempt = asyncio.current_task()
        assert attempt is not None
        self._attempts[attempt] = self._clock.now()
        connection = UpstreamConnection(self, address)
        try:
            await self._loop.create_connection(lambda: connection, host, port)
        except OSError as error:
            self._abandon(connection)
            waiter.connect_failed(error.strerror or str(error))
        except asyncio.CancelledError:
            self._abandon(connection)
            if attempt not in self._overdue or attempt.cancelling() > 1:
                raise  # its waiter has given it up
            waiter.connect_failed(f"no connection within {self._settings.connect_timeout:g} s")
        else:
            waiter.connected(connection)

    async def _open_ahead(self, address: Address, count: int) -> None:
        with contextlib.suppress(OSError, TimeoutError):  # nobody waits: whoever needs one will see for himself
            async with asyncio.timeout(self._settings.upstream_idle):
                for _ in range(count):
                    if self.idle + self.opening > AHEAD_MOST:  # whoever opens has one on its way
                        return
                    await self._open_one(address)

    async def _open_one(self, address: Address) -> None:
        connection = UpstreamConnection(self, address)
        try:
            await self._loop.create_connection(lambda: connection, *address)
        except BaseException:
            self._abandon(connection)
            raise
        transport = connection.transport
        if transport is None or transport.is_closing():
            return  # the engine was quicker; it has been told lost already
        connection.idle_since = now = self._clock.now()
        self._idle.setdefault(address, []).append(connection)
        self._wheel.wake_by(self, now + self._settings.upstream_idle)

    def _abandon(self, connection: UpstreamConnection) -> None:
        """Given up between opening and use: uvloop then closes the transport without calling `connection_lost`."""
        connection.abort()
        self.lost(connection)
