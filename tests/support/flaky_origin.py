"""An HTTP server of one file with every fault that an origin of weights can have, each by name."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Origin:
    """What is served, how often what was asked, and the faults: called with the number of the data request (from 0)."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.etag: str | None = '"v1"'
        self.modified: str | None = None
        self.ranges = True
        self.vouch = False
        self.redirect = ""
        """Where everything is, instead of here."""
        self.faults: Callable[[int], str] = lambda _: ""
        self.rate: float | None = None
        """Bytes a second of each connection."""
        self.serves: int | None = None
        """Connections that are served at a time; None: all."""
        self.others = "wait"
        """What becomes of those beyond: they `wait` until one of the others ends, as with a pool of so many workers; or
        they are told to come back in two minutes and kept (`refused`), or not (`dropped`), or just `closed`."""
        self.serving = 0
        self.most_serving = 0
        self.turned_away = 0
        self.busy = 0
        """Answers with data that are on their way."""
        self.asked = 0
        self.data_requests = 0
        self.sent = 0
        self.starts: list[int] = []
        self.headers: list[dict[str, str]] = []
        self.open_gate = threading.Event()
        self.open_gate.set()
        self.lock = threading.RLock()
        self.freed = threading.Condition(self.lock)
        self.url = ""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that left, or was killed, is no error of the origin's; anything else is shown."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # as the library calls it


@contextlib.contextmanager
def served(origin: Origin) -> Iterator[Origin]:
    """Serve it on a port of its own."""

    class Handler(_Handler):
        of = origin

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    origin.url = f"http://127.0.0.1:{server.server_address[1]}/model.gguf"
    try:
        yield origin
    finally:
        origin.open_gate.set()
        server.shutdown()
        server.server_close()
        thread.join(10)


class _Handler(BaseHTTPRequestHandler):
    of: Origin
    protocol_version = "HTTP/1.1"
    timeout = 30

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def setup(self) -> None:
        """A connection was made."""
        super().setup()
        self.is_served = False

    def finish(self) -> None:
        """It has ended."""
        with self.of.lock:
            self.of.serving -= self.is_served
            self.of.freed.notify_all()
        super().finish()

    def _served(self) -> bool:
        """Whether this connection is one of those that are served; waits for it where others do."""
        origin = self.of

        def free() -> bool:
            return self.is_served or origin.serves is None or origin.serving < origin.serves

        with origin.lock:
            if not free():
                origin.turned_away += 1
                if origin.others != "wait":
                    return False
                origin.freed.wait_for(free, 20)
            origin.serving += not self.is_served
            origin.most_serving = max(origin.most_serving, origin.serving)
            self.is_served = True
            return True

    def do_GET(self) -> None:
        """Answer, with the fault of this request if it asks for data."""
        origin = self.of
        if not self._served():
            self.close_connection = origin.others != "refused"
            if origin.others == "closed":
                return
            end = {"Connection": "close"} if self.close_connection else {}
            self._empty(429, {"Retry-After": "120", **end})
            return
        if origin.redirect:
            with origin.lock:
                origin.headers.append(dict(self.headers))
            self._empty(302, {"Location": origin.redirect})
            return
        wanted = re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")) if origin.ranges else None
        self.probe = probe = wanted is not None and wanted[1] == wanted[2] == "0" and len(origin.content) > 1
        with origin.lock:
            origin.asked += 1
            origin.headers.append(dict(self.headers))
            number = origin.data_requests
            fault = "" if probe else origin.faults(number)
            if not probe:
                origin.data_requests += 1
        if not probe:
            origin.open_gate.wait(20)
        getattr(self, f"fault_{fault.replace('-', '_')}")(wanted) if fault else self._answer(wanted)

    def _answer(self, wanted: re.Match[str] | None, *, content: bytes | None = None, etag: str | None = None) -> None:
        origin = self.of
        whole = origin.content if content is None else content
        tag = origin.etag if etag is None else etag
        if self.headers.get("If-Match") not in (None, tag):
            self._empty(412)
            return
        start, end = (int(wanted[1]), min(int(wanted[2]), len(whole) - 1)) if wanted else (0, len(whole) - 1)
        if wanted and start >= len(whole):
            self._empty(416, {"Content-Range": f"bytes */{len(whole)}"})
            return
        body = whole[start : end + 1]
        self._head(206 if wanted else 200, len(body), tag, f"bytes {start}-{end}/{len(whole)}" if wanted else None)
        if self.probe:
            self._send(body)
            return
        with origin.lock:
            origin.starts.append(start)
            origin.busy += 1
        self._send(body)
        with origin.lock:
            origin.busy -= 1

    def _head(self, status: int, length: int, tag: str | None, shown: str | None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        if tag:
            self.send_header("ETag", tag)
        if self.of.modified:
            self.send_header("Last-Modified", self.of.modified)
        if shown:
            self.send_header("Content-Range", shown)
        if self.of.vouch:
            digest = base64.b64encode(hashlib.sha256(self.of.content).digest()).decode()
            self.send_header("Repr-Digest", f"sha-256=:{digest}:")
        self.end_headers()

    def _send(self, body: bytes) -> None:
        piece = 64 << 10 if self.of.rate is None else max(1 << 10, min(64 << 10, int(self.of.rate / 100)))
        for at in range(0, len(body), piece):
            part = body[at : at + piece]
            try:
                self.wfile.write(part)
            except OSError:
                self.close_connection = True
                return
            with self.of.lock:
                self.of.sent += 0 if self.probe else len(part)
            if self.of.rate is not None:
                threading.Event().wait(len(part) / self.of.rate)

    def _empty(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()

    def fault_reset(self, wanted: re.Match[str] | None) -> None:
        """Half of what was promised, then RST."""
        self._head(
            206, 1 << 20, self.of.etag, f"bytes {wanted[1]}-{wanted[2]}/{len(self.of.content)}" if wanted else None
        )
        self.wfile.write(b"x" * 1000)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def fault_short(self, wanted: re.Match[str] | None) -> None:
        """Fewer bytes than promised, then a clean end."""
        assert wanted
        start, end = int(wanted[1]), int(wanted[2])
        self._head(206, end - start + 1, self.of.etag, f"bytes {start}-{end}/{len(self.of.content)}")
        self.wfile.write(self.of.content[start : (start + end) // 2])
        self.close_connection = True

    def fault_5xx(self, _: object) -> None:
        """Internal error."""
        self._empty(500)

    def fault_throttled(self, _: object) -> None:
        """Too many, come back in a second."""
        self._empty(429, {"Retry-After": "1"})

    def fault_throttled_minute(self, _: object) -> None:
        """Too many, come back in almost a minute."""
        self._empty(429, {"Retry-After": "50"})

    def fault_throttled_long(self, _: object) -> None:
        """Too many, come back tomorrow."""
        self._empty(429, {"Retry-After": "86400"})

    def fault_gone(self, _: object) -> None:
        """Not found."""
        self._empty(404)

    def fault_forbidden(self, _: object) -> None:
        """Not you."""
        self._empty(403)

    def fault_whole(self, _: object) -> None:
        """200 instead of 206."""
        self._answer(None)

    def fault_other_etag(self, wanted: re.Match[str] | None) -> None:
        """Another version, without minding If-Match."""
        self._head(206, 10, '"v2"', f"bytes {wanted[1]}-{wanted[2]}/{len(self.of.content)}" if wanted else None)
        self.wfile.write(b"0123456789")

    def fault_other_range(self, wanted: re.Match[str] | None) -> None:
        """Not the bytes that were asked for."""
        assert wanted
        self._head(206, 10, self.of.etag, f"bytes {int(wanted[1]) + 1}-{int(wanted[1]) + 10}/{len(self.of.content)}")
        self.wfile.write(b"0123456789")

    def fault_other_length(self, wanted: re.Match[str] | None) -> None:
        """The range that was asked for, of a file of another length."""
        assert wanted
        self._head(206, 10, self.of.etag, f"bytes {wanted[1]}-{wanted[2]}/{len(self.of.content) + 7}")
        self.wfile.write(b"0123456789")

    def fault_corrupt(self, wanted: re.Match[str] | None) -> None:
        """The right headers, wrong bytes."""
        self._answer(wanted, content=bytes(len(self.of.content)))

    def fault_slow(self, wanted: re.Match[str] | None) -> None:
        """A byte now and then: never silent, never done."""
        assert wanted
        start, end = int(wanted[1]), int(wanted[2])
        self._head(206, end - start + 1, self.of.etag, f"bytes {start}-{end}/{len(self.of.content)}")
        with contextlib.suppress(OSError):
            for _ in range(400):
                self.wfile.write(b"s")
                self.wfile.flush()
                threading.Event().wait(0.05)
        self.close_connection = True

    def fault_silent(self, _: object) -> None:
        """Nothing at all."""
        threading.Event().wait(8)
        self.close_connection = True

    def fault_redirect(self, _: object) -> None:
        """To the same again."""
        self._empty(302, {"Location": self.path})
