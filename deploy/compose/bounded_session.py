"""A session of requests whose answers have a bound in bytes and in time, to the last byte."""

from __future__ import annotations

import io
from typing import Any, Final

import requests

from events.clock import Clock
from events.units import Seconds

_CHUNK: Final = 64 * 1024


class BoundedSession(requests.Session):
    """Each answer is read here, whole. Raises requests' own exceptions: `Timeout`, or `RequestException` for one that
    is too long. (requests' `timeout` is that of one read; a server that sends a byte now and then would hold us.)"""

    def __init__(self, clock: Clock, patience: Seconds, most_bytes: int) -> None:
        super().__init__()
        self._clock, self._patience, self._most_bytes = clock, patience, most_bytes

    def request(self, *args: Any, **options: Any) -> requests.Response:
        """See `requests.Session.request`."""
        until = self._clock.now() + self._patience
        response = super().request(*args, **{**options, "stream": True})
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
        whole = requests.Response()
        whole.status_code, whole.headers, whole.url = response.status_code, response.headers, response.url
        whole.encoding, whole.raw = response.encoding, io.BytesIO(body)
        return whole
