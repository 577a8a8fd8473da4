"""An HTTP proxy in front of any server of weights, with every fault that the way to it can have, each by name."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_HOP = frozenset({"connection", "transfer-encoding", "keep-alive"})


class Faulty:
    """What stands between, and what it does to requests for data: called with their number (from 0)."""

    def __init__(self, port: int, content: bytes) -> None:
        self.upstream = port
        self.content = content
        """What the server has, for answers that only a broken server gives."""
        self.faults: Callable[[int], str] = lambda _: ""
        self.data_requests = 0
        self.asked: list[tuple[str, dict[str, str]]] = []
        """Paths and headers of all requests."""
        self.lock = threading.Lock()
        self.port = 0

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that left is no error; anything else is shown."""
        if not isinstance(sys.exception(), OSError | http.client.HTTPException):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # as the library calls it


@contextlib.contextmanager
def proxied(faulty: Faulty) -> Iterator[Faulty]:
    """Run it on a port of its own."""

    class Handler(_Handler):
        of = faulty

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    faulty.port = server.server_address[1]
    try:
        yield faulty
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


class _Handler(BaseHTTPRequestHandler):
    of: Faulty
    protocol_version = "HTTP/1.1"
    timeout = 30

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        """Passed on."""
        self.do_GET()

    def do_GET(self) -> None:
        """Passed on; what asks for data, with the fault of its number."""
        wanted = re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        data = wanted is not None and self.command == "GET" and wanted[0] != "bytes=0-0"
        with self.of.lock:
            self.of.asked.append((self.path, dict(self.headers)))
            number = self.of.data_requests
            self.of.data_requests += data
        fault = self.of.faults(number) if data else ""
        if fault in ("5xx", "throttled", "throttled-long", "gone", "forbidden", "silent"):
            self._instead(fault)
            return
        upstream = http.client.HTTPConnection("127.0.0.1", self.of.upstream, timeout=30)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _HOP:
                    upstream.putheader(name, value)
            upstream.endheaders()
            answer = upstream.getresponse()
            self._answer(answer, answer.read(), fault)
        finally:
            upstream.close()

    def _instead(self, fault: str) -> None:
        """An answer without the server."""
        if fault == "silent":
            threading.Event().wait(8)
            self.close_connection = True
            return
        status = {"5xx": 500, "throttled": 429, "throttled-long": 429, "gone": 404, "forbidden": 403}[fault]
        self.send_response(status)
        if fault.startswith("throttled"):
            self.send_header("Retry-After", "1" if fault == "throttled" else "86400")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _answer(self, answer: http.client.HTTPResponse, body: bytes, fault: str) -> None:
        status, headers = answer.status, dict(answer.headers.items())
        if fault == "whole":
            status, body = 200, self.of.content
            headers.pop("Content-Range", None)
        if fault == "corrupt":
            body = bytes(len(body))
        if fault == "other-etag":
            headers["ETag"] = '"another"'
        if fault == "other-length":
            headers["Content-Range"] = re.sub(
                r"/(\d+)", lambda found: f"/{int(found[1]) + 7}", headers["Content-Range"]
            )
        if fault == "other-range":
            headers["Content-Range"] = re.sub(
                r" (\d+)-", lambda found: f" {int(found[1]) + 1}-", headers["Content-Range"]
            )
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in _HOP | {"content-length", "date", "server"}:
                self.send_header(name, value)
        length = answer.headers.get("Content-Length") if self.command == "HEAD" else len(body)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command == "GET":
            self._send(body, fault)

    def _send(self, body: bytes, fault: str) -> None:
        with contextlib.suppress(OSError):
            if fault in ("reset", "short"):
                self.wfile.write(body[: len(body) // 2])
                self.close_connection = True
                if fault == "reset":
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.connection.close()
            elif fault == "slow":
                self.close_connection = True
                for at in range(400):
                    self.wfile.write(body[at : at + 1])
                    self.wfile.flush()
                    threading.Event().wait(0.05)
            else:
                self.wfile.write(body)
