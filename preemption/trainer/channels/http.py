"""Notices over HTTP: ``POST /notice``. 200 heard, 400 no notice, 401 wrong token, 409 of a dead controller.

``GET /reports?after=N`` gives the reports after the first N, a line each, and in `Relume-Reports` how many there were
so far: so nothing needs rights in the cluster, nor a folder that both sides see.
"""

from __future__ import annotations

import hmac
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Callable

from preemption.trainer.notice import MOST_BYTES, BadNotice, Heard, Notice, decode

Hear = Callable[[Notice], Heard]
Since = Callable[[int], "tuple[bytes, int]"]
"""The reports after so many, and how many there were."""

SAID = "Relume-Reports"

SLOWEST_CLIENT = 10.0
"""Seconds that a client has for its request."""


class HttpChannel:
    """A small server on its own thread."""

    def __init__(self, address: tuple[str, int], token: str | None, hear: Hear, since: Since | None = None) -> None:
        class Handler(_Handler):
            pass

        Handler.token = token
        Handler.hear = staticmethod(hear)
        Handler.since = None if since is None else staticmethod(since)
        self._server = ThreadingHTTPServer(address, Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="relume-notices", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    token: str | None = None
    hear: Hear
    since: Since | None = None
    timeout = SLOWEST_CLIENT

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path != "/reports" or self.since is None:
            self._answer(404, "get /reports")
        elif self._may():
            name, _, after = query.partition("=")
            lines, said = self.since(int(after) if name == "after" and after.isdigit() else 0)
            self._send(200, lines, {"Content-Type": "application/jsonl", SAID: str(said)})

    def do_POST(self) -> None:
        if self.path != "/notice":
            self._answer(404, "post to /notice")
            return
        if not self._may():
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > MOST_BYTES:
            self._answer(400, f"Content-Length must be a number up to {MOST_BYTES}")
            return
        try:
            heard = self.hear(decode(self.rfile.read(int(length))))
        except BadNotice as error:
            self._answer(400, str(error))
            return
        self._answer(409 if heard is Heard.STALE else 200, heard.value)

    def _may(self) -> bool:
        offered = self.headers.get("Authorization", "")
        if self.token is None or hmac.compare_digest(offered.encode(), f"Bearer {self.token}".encode()):
            return True
        self._answer(401, "wrong or no bearer token")
        return False

    def _answer(self, status: int, text: str) -> None:
        self._send(status, (text + "\n").encode(), {"Content-Type": "text/plain; charset=utf-8"})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Say nothing: the standard error of a training run is its user's."""
