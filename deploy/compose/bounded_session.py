"""A session of requests whose answers have a bound in bytes and in time, to the last byte, and go to one host alone."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.response import HTTPResponse
from urllib3.util.retry import Retry

from events.clock import Clock
from events.units import Seconds

_CHUNK: Final = 64 * 1024

REDIRECTS_MOST: Final = 3


class BoundedSession(requests.Session):
    """Each answer is read here, whole. Raises requests' own exceptions: `Timeout`, or `RequestException` for one that
    is too long. (requests' `timeout` is that of one read; a server that sends a byte now and then would hold us.)"""

    def __init__(self, clock: Clock, patience: Seconds, most_bytes: int) -> None:
        super().__init__()
        self._clock, self._patience, self._most_bytes = clock, patience, most_bytes
        for url in ("http://", "https://"):
            self.bound(url)

    def bound(self, url: str) -> None:
        """Have what is asked there bounded before its body comes. Nothing is tried twice: it is asked soon again."""
        self.mount(url, _BoundedAdapter(self._patience))

    def request(self, *args: Any, **options: Any) -> requests.Response:
        """See `requests.Session.request`. Redirects are followed a few times, to the same host: headers may hold
        secrets of it."""
        until, target = self._clock.now() + self._patience, ""
        for _ in range(REDIRECTS_MOST + 1):
            found = self._whole(super().request(*args, **{**options, "stream": True, "allow_redirects": False}), until)
            if not found.is_redirect:
                return found
            target = urljoin(found.url, found.headers["location"])
            if not _same_host(found.url, target):
                raise requests.RequestException(f"it redirects to {target[:200]}; name that as its url")
            options |= {"url": target, "params": None}
        raise requests.RequestException(f"it redirects more than {REDIRECTS_MOST} times, last to {target[:200]}")

    def _whole(self, response: requests.Response, until: float) -> requests.Response:
        body = bytearray()
        try:
            for chunk in response.iter_content(_CHUNK):
                body += chunk
                if len(body) > self._most_bytes:
                    raise requests.RequestException(f"its answer has more than {self._most_bytes} bytes")
                if self._clock.now() > until:
                    raise requests.Timeout("its answer does not end")
        finally:
            response.close()
        if self._clock.now() > until:
            raise requests.Timeout("its answer does not come")
        whole = requests.Response()
        whole.status_code, whole.headers, whole.url = response.status_code, response.headers, response.url
        whole.encoding, whole.raw = response.encoding, io.BytesIO(body)
        return whole


def _same_host(url: str, target: str) -> bool:
    """Whether what is secret there may be told here: never less encrypted than before."""
    one, other = urlsplit(url), urlsplit(target)
    return one.hostname == other.hostname and other.scheme in (one.scheme, "https")


class _Hurried:
    """Before a connection of urllib3: the head of an answer comes within `patience`, or the connection is closed."""

    patience: Seconds = Seconds(0.0)
    sock: socket.socket | None

    def getresponse(self) -> HTTPResponse:
        with _closed_after(self.patience, self.sock):
            found: HTTPResponse = super().getresponse()  # type: ignore[misc] # of the class that follows
            return found


@contextmanager
def _closed_after(patience: Seconds, sock: socket.socket | None) -> Iterator[None]:
    """TimeoutError where it was closed by us: what urllib3 sees is a server that went away."""
    late = threading.Event()

    def close() -> None:
        late.set()
        try:
            if sock is not None:
                sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it was closed meanwhile

    timer = threading.Timer(patience, close)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, HTTPException) as error:
        if late.is_set():
            raise TimeoutError("no answer came") from error
        raise
    finally:
        timer.cancel()


class _BoundedAdapter(HTTPAdapter):
    def __init__(self, patience: Seconds) -> None:
        self._patience = patience
        super().__init__(max_retries=Retry(total=0))

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """See `HTTPAdapter`: with connections of ours."""
        super().init_poolmanager(*args, **options)
        plain = type("Plain", (_Hurried, HTTPConnection), {"patience": self._patience})
        secure = type("Secure", (_Hurried, HTTPSConnection), {"patience": self._patience})
        self.poolmanager.pool_classes_by_scheme = {
            "http": type("PlainPool", (HTTPConnectionPool,), {"ConnectionCls": plain}),
            "https": type("SecurePool", (HTTPSConnectionPool,), {"ConnectionCls": secure}),
        }
