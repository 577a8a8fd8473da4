"""The way to a running relume: the admin API over the standard library's HTTP client.

(aiohttp would take half a second to import, more than most commands take in all.)
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import click

from deploy.cli.failing import Refused

DEFAULT_URL: Final = "http://127.0.0.1:8081"
CONNECT_TIMEOUT: Final = 5.0
ANSWER_TIMEOUT: Final = 60.0
LONGEST_LINE: Final = 4 << 20
"""Bytes; an event has at most 1 MiB (`events.codec.MAX_EVENT_BYTES`), escapes can make it longer."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a relume answers, and what proves who asks."""

    url: str = DEFAULT_URL
    token: str = ""
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """One request. Parameters of the query that are None are left out."""

    method: str
    path: str
    query: Mapping[str, object] | None = None
    body: bytes | None = None
    kind: str = "application/json"


class Connection:
    """Asks the admin API. Each request has a connection of its own: commands make few."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._parts = urlsplit(target.url)
        if self._parts.scheme not in {"http", "https"} or not self._parts.hostname:
            raise click.UsageError(f"--admin {target.url!r} is not a URL; write {DEFAULT_URL}")

    def get(self, path: str, query: Mapping[str, object] | None = None) -> Any:
        """GET and parse JSON. Refused when the answer is no."""
        return self.ask(Question("GET", path, query))

    def ask(self, question: Question) -> Any:
        """Ask and parse JSON. Refused when the answer is no."""
        connection = self._connect()
        try:
            return json.loads(self._send(connection, question).read())
        except (OSError, http.client.HTTPException) as error:
            raise Refused(f"no whole answer from {self._target.url}", why=_reason(error)) from error
        except json.JSONDecodeError as error:
            raise self._foreign() from error
        finally:
            connection.close()

    def lines(self, path: str, query: Mapping[str, object] | None = None, *, follow: bool = False) -> Iterator[bytes]:
        """The lines of a streamed answer, without their ends, as they come."""
        connection = self._connect()
        try:
            response = self._send(connection, Question("GET", path, query))
            if follow and connection.sock is not None:
                connection.sock.settimeout(None)  # quiet is normal there: nothing may happen for hours
            while line := response.readline(LONGEST_LINE):
                yield line.rstrip(b"\r\n")
        except (OSError, http.client.HTTPException) as error:
            raise Refused(f"the stream from {self._target.url} broke off", why=_reason(error)) from error
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        connection: http.client.HTTPConnection
        if self._parts.scheme == "https":
            connection = http.client.HTTPSConnection(host, port, timeout=CONNECT_TIMEOUT, context=self._tls())
        else:
            connection = http.client.HTTPConnection(host, port, timeout=CONNECT_TIMEOUT)
        try:
            connection.connect()
        except OSError as error:
            raise self._unreachable(error) from error
        assert isinstance(connection.sock, socket.socket)
        connection.sock.settimeout(ANSWER_TIMEOUT)
        return connection

    def _send(self, connection: http.client.HTTPConnection, question: Question) -> http.client.HTTPResponse:
        headers = {"Accept": "application/json", "User-Agent": "relume-cli"}
        if question.body is not None:
            headers["Content-Type"] = question.kind
        if self._target.token:
            headers["Authorization"] = f"Bearer {self._target.token}"
        target = self._parts.path.rstrip("/") + question.path
        if given := {name: value for name, value in (question.query or {}).items() if value is not None}:
            target += "?" + urlencode({name: _text(value) for name, value in given.items()}, doseq=True)
        connection.request(question.method, target, body=question.body, headers=headers)
        response = connection.getresponse()
        if response.status >= 300:
            raise self._refused(response)
        return response

    def _refused(self, response: http.client.HTTPResponse) -> Refused:
        try:
            problem = json.loads(response.read(1 << 20))
            lines = [_field(one) for one in problem.get("problems", [])]
            name = str(problem["type"]).rpartition(":")[2]
            return Refused(problem["detail"], why="\n".join(lines), remedy=problem.get("remedy", ""), name=name)
        except (ValueError, KeyError, AttributeError):
            return self._foreign(f"status {response.status}")

    def _foreign(self, why: str = "the answer is not JSON") -> Refused:
        return Refused(
            f"what answers at {self._target.url} does not speak relume's admin API", why=why,
            remedy="name the admin port, not the gateway's, with --admin or RELUME_ADMIN",
        )  # fmt: skip

    def _unreachable(self, error: OSError) -> Refused:
        remedy = "name another address with --admin or RELUME_ADMIN"
        if isinstance(error, ssl.SSLError):
            remedy = "give the authority that signed its certificate with --ca, or yours with --cert and --key"
        elif self._parts.hostname in {"127.0.0.1", "localhost", "::1"}:
            remedy = "is relume running? start it with: relume up (or name another address with --admin)"
        return Refused(f"cannot reach relume at {self._target.url}", why=_reason(error), remedy=remedy)

    def _tls(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self._target.ca)
            if self._target.certificate is not None:
                context.load_cert_chain(self._target.certificate, self._target.key)
        except OSError as error:
            raise click.UsageError(f"the certificates cannot be used: {_reason(error)}") from error
        return context


def segment(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="")


def _text(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _field(one: Mapping[str, object]) -> str:
    value = f" (is {one['value']})" if one.get("value") is not None else ""
    remedy = f"; {one['remedy']}" if one.get("remedy") else ""
    line = f"line {one['line']}: " if one.get("line") is not None else ""
    return f"{line}{one.get('path') or 'the document'}{value}: {one.get('rule')}{remedy}"
