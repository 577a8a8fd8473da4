"""Free ports for replicas on the loopback interface.

The kernel says which port is free; until the engine has bound it, somebody else may. So no port is given twice within
the last `MEMORY` ones (two replicas never race for one), and an engine that ends because its address is in use is
started again at once on another port, which counts as no failure (`is_conflict`).
"""

from __future__ import annotations

import re
import socket
from collections import deque
from collections.abc import Iterable
from typing import Final

MEMORY: Final = 512
"""Ports remembered: far below the 28,232 of Linux's default range, far above what starts in a minute."""
TRIES: Final = 64
_CONFLICT: Final = re.compile(
    r"address already in use|address in use|EADDRINUSE|errno 98\b|errno 48\b|couldn't bind|failed to bind",
    re.IGNORECASE,
)


class NoFreePort(Exception):
    """The machine has no port left for a replica."""


class Ports:
    """Chooses ports."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.host = host
        self._recent: deque[int] = deque(maxlen=MEMORY)

    def choose(self) -> int:
        """A port that is free now and was not given lately. Raises NoFreePort."""
        for _ in range(TRIES):
            port = self._free()
            if port not in self._recent:
                self._recent.append(port)
                return port
        raise NoFreePort(f"no port on {self.host} that was not given within the last {MEMORY} starts")

    def _free(self) -> int:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((self.host, 0))
            except OSError as error:
                raise NoFreePort(f"the system gives no port on {self.host}: {error}") from error
            port: int = probe.getsockname()[1]
            return port


def is_conflict(log_tail: Iterable[str]) -> bool:
    """Whether an engine's last lines say that its port was taken."""
    return any(_CONFLICT.search(line) for line in log_tail)
