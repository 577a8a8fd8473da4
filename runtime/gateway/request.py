"""A request that was read whole: what it wants, its ticket, and its head as an engine gets it."""

from __future__ import annotations

from typing import Final

from events.units import Instant, Seconds, parse_duration
from runtime.gateway.errors import Failure, bad_request
from runtime.gateway.ids import Identities
from runtime.gateway.request_head import RequestHead
from runtime.gateway.routing import Target
from runtime.ports import Lease, ModelRoute, TicketRequest

_BODILESS: Final = frozenset({b"GET", b"HEAD", b"DELETE"})
_START: Final = b"%b %b HTTP/1.1\r\nHost: %b\r\n%bx-relume-model: %b\r\n"


class Request:
    """One request. `body` is empty again once the engine answers; `size` stays."""

    __slots__ = ("arrived_at", "body", "caller", "head", "id", "model", "size", "target", "told", "trace")

    def __init__(
        self,
        head: RequestHead,
        target: Target | Failure,
        body: bytes | bytearray,
        arrived_at: Instant,
        identities: Identities,
    ) -> None:
        self.head = head
        self.target = target
        self.body = body
        self.size = len(body)
        self.arrived_at = arrived_at
        self.model: str | None = None
        self.caller: str | None = None
        """Known once it has a ticket."""
        self.id, self.told, self.trace = identities.of(head.noted)
        """Its unique id; the id that the client is told; its traceparent."""

    def ticket(self, route: ModelRoute, caller: str, stream: bool) -> TicketRequest:
        """Its place in the queue: it waits as long as the model allows, or less if the client says so."""
        self.model = route.model
        self.caller = caller
        wait = route.max_wait
        wanted = self.head.noted.get(b"x-relume-timeout")
        if wanted is not None:
            wait = min(wait, _timeout(wanted))
        deadline = Instant(self.arrived_at + wait)
        return TicketRequest(self.id, route.model, caller, self.arrived_at, deadline, self.size, stream)

    def for_engine(self, lease: Lease, plain: bool) -> bytes:
        """The head to send to a replica. `plain`: it must not compress, since the client's head is sent already."""
        head = self.head
        sent_for = (lease.host, lease.port, lease.model, plain)
        if head.sent_for != sent_for:
            head.sent_for = sent_for
            head.sent = _start(head, lease, plain)
        if self.size or head.method not in _BODILESS:
            size = str(self.size).encode("ascii")
            return b"%bContent-Length: %b\r\nx-request-id: %b\r\ntraceparent: %b\r\n\r\n" % (
                head.sent, size, self.told, self.trace,
            )  # fmt: skip
        return b"%bx-request-id: %b\r\ntraceparent: %b\r\n\r\n" % (head.sent, self.told, self.trace)


def _start(head: RequestHead, lease: Lease, plain: bool) -> bytes:
    """What is the same for all requests that come with this head and go to this replica: kept with the head."""
    lines = head.forwarded()
    if plain:
        kept = (line for line in lines.splitlines(keepends=True) if not line.lower().startswith(b"accept-encoding:"))
        lines = b"".join(kept)
    return _START % (head.method, head.target, _authority(lease), lines, lease.model.encode())


def _authority(lease: Lease) -> bytes:
    host = f"[{lease.host}]" if ":" in lease.host else lease.host
    return f"{host}:{lease.port}".encode("ascii")


def _timeout(written: bytes) -> Seconds:
    try:
        timeout = parse_duration(written.decode("ascii"))
    except ValueError as error:
        raise bad_request("invalid_timeout", f"x-relume-timeout: {error}", "x-relume-timeout") from None
    if timeout <= 0:
        raise bad_request("invalid_timeout", "x-relume-timeout is longer than nothing.", "x-relume-timeout")
    return timeout
