"""The simulated engine as a server on a port: listens, loads, serves, closes. It can run inside a test too."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from events.clock import Clock
from runtime.engines.simulated.engine import Engine, start_fails
from runtime.engines.simulated.http import Connection
from runtime.engines.simulated.routes import Routes
from runtime.engines.simulated.settings import FailStart, Settings

_LEAST_STEPS = 10
_LONGEST_STEP = 10.0  # seconds: whoever watches the log for progress sees some


class StartFailed(Exception):
    """The start fails because the settings ask for it."""


class SimulatedServer:
    """One engine at one address. `start`, then `load`; at the end `close`. `say` gets lines for the log."""

    def __init__(self, settings: Settings, clock: Clock, say: Callable[[str], None]) -> None:
        self.engine = Engine(settings)
        self.port = settings.port
        self._settings = settings
        self._routes = Routes(self.engine, clock)
        self._say = say
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. Raises OSError when the address cannot be bound, StartFailed when told to fail."""
        if start_fails(self._settings.faults, FailStart.SPAWN):
            raise StartFailed("failing before listening, as failStart asks")
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Connection(self._routes.handle, self._connections),
            self._settings.host,
            self._settings.port,
            backlog=4096,
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self._say(f"listening at http://{self._settings.host}:{self.port} for {', '.join(self._settings.names)}")

    async def load(self, stopping: asyncio.Event) -> None:
        """Pass the start time, with lines of progress, then be ready; returns early when told to stop."""
        seconds = self.engine.start_seconds()
        steps = max(_LEAST_STEPS, math.ceil(seconds / _LONGEST_STEP))
        for step in range(1, steps + 1):
            try:
                await asyncio.wait_for(stopping.wait(), seconds / steps)
            except TimeoutError:
                if seconds >= 1.0:
                    self._say(f"loading: {step * 100 // steps} %")
            else:
                return
        if start_fails(self._settings.faults, FailStart.LOAD):
            raise StartFailed("failing to load the model, as failStart asks")
        if not start_fails(self._settings.faults, FailStart.HANG):
            self._routes.ready = True
            self._say(f"ready: {self._settings.limits.slots} slots")

    async def close(self) -> None:
        """Listen no more and cut what still runs."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._connections):
            connection.abort()
        await self._server.wait_closed()
