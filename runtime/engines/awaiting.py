"""An engine that runs before its weights are here: what it and relume say to each other over a socket that it inherits.

The engine does what it can without its weights, which is mostly to import its libraries, and says that it is ready for
them. relume then sends one line with their paths, and with it the descriptors of their uses, which the engine keeps
open: as long as it lives they are not evicted. Where the socket ends before, so has relume, or the start.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

READY: Final = b"ready\n"
"""The engine's word."""
MOST: Final = 1 << 20
"""Bytes of the line with the paths. A path has 4,096 at most, and a model some adapters. A choice."""
DESCRIPTORS_MOST: Final = 253
"""In one message (SCM_MAX_FD of Linux)."""


class NoWeights(Exception):
    """The socket ended, or said something else: there are no weights to wait for any more."""


@dataclass(frozen=True, slots=True)
class Paths:
    """Where the weights are: the model's, and those of LoRA adapters in the order of the declaration."""

    weights: str
    adapters: tuple[str, ...] = ()


def send(to: socket.socket, paths: Paths, uses: Sequence[int]) -> None:
    """relume's side: tell the engine. Raises OSError where it has ended."""
    line = json.dumps({"weights": paths.weights, "adapters": paths.adapters}).encode() + b"\n"
    socket.send_fds(to, [line], list(uses))


def wait(descriptor: int) -> Paths:
    """The engine's side: say that it is ready, and return when the weights are here. NoWeights: they never will be."""
    with socket.socket(fileno=descriptor) as connection:
        line = b""
        try:
            connection.sendall(READY)
            while not line.endswith(b"\n") and len(line) < MOST:
                more, _, _, _ = socket.recv_fds(connection, MOST, DESCRIPTORS_MOST)  # they stay open, unnamed
                if not more:
                    break
                line += more
            told = json.loads(line)
            return Paths(str(told["weights"]), tuple(map(str, told["adapters"])))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise NoWeights("relume ended, or gave this start up, before the weights were here") from error
