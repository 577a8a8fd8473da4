"""A live admin server in a thread of its own, and a runner of command lines that talk to it."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from deploy.api.settings import AdminSettings
from deploy.cli import main
from tests.support.admin import Admin, running_admin

T = TypeVar("T")

DEADLINE = 20.0
"""Seconds; nothing here takes one."""


class LiveAdmin:
    """An admin server whose loop runs in a thread: tests are synchronous, as commands are."""

    def __init__(self, settings: AdminSettings | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self._context = running_admin(settings)
        self.admin: Admin = self.do(self._context.__aenter__())

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the server's loop."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self.loop)
        return future.result(DEADLINE)

    def close(self) -> None:
        """Close the server and its loop."""
        self.do(self._context.__aexit__(None, None, None))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(DEADLINE)
        self.loop.close()


@pytest.fixture
def live() -> Iterator[LiveAdmin]:
    """A running admin server."""
    running = LiveAdmin()
    yield running
    running.close()


@dataclass(frozen=True)
class Ran:
    """What a command line did."""

    code: int
    out: str
    err: str


class _Pipe(io.TextIOWrapper):
    """A standard stream that is no terminal."""

    def __init__(self, given: bytes = b"") -> None:
        super().__init__(io.BytesIO(given), encoding="utf-8", write_through=True)

    def text(self) -> str:
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode()


Relume = Callable[..., Ran]


@pytest.fixture
def relume(monkeypatch: pytest.MonkeyPatch) -> Relume:
    """Runs a command line in this process, as the entry point does; a clean environment, piped streams."""
    for name in list(os.environ):
        if name.startswith("RELUME_"):
            monkeypatch.delenv(name)

    def run(*arguments: str, stdin: str = "", live: LiveAdmin | None = None) -> Ran:
        out, err = _Pipe(), _Pipe()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", _Pipe(stdin.encode()))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            if live is not None:
                patch.setenv("RELUME_ADMIN", live.admin.url)
            code = main.run(arguments)
        return Ran(code, out.text(), err.text())

    return run
