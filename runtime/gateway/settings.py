"""Settings of the gateway's data port: addresses, caps and bounds, resolved to plain numbers."""

from __future__ import annotations

from dataclasses import dataclass

from events.units import Bytes, Seconds


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Everything the data port may be told. Times in seconds, sizes in bytes; port 0 lets the system choose one."""

    host: str = "127.0.0.1"
    port: int = 8080
    tls_certificate: str = ""
    """PEM file with the certificate chain; empty: plain HTTP."""
    tls_key: str = ""
    """PEM file with the private key; empty: it is in the certificate's file."""
    access_log: str = ""
    """File for one JSON line a request; empty: off."""

    max_connections: int = 16_384
    """Client connections at a time; one more is answered 503 and closed."""
    max_head_bytes: Bytes = Bytes(64 * 1024)
    """Request line and headers together, and likewise of an engine's answer."""
    max_headers: int = 100
    max_body_bytes: Bytes = Bytes(32 * 1024 * 1024)
    max_buffered_bytes: Bytes = Bytes(1024 * 1024 * 1024)
    """All request bodies in memory together; one more is answered 503."""
    max_json_items: int = 1_000_000
    """Brackets and commas of a JSON body above 1 MiB: what bounds the memory and time that reading it takes."""

    head_timeout: Seconds = Seconds(10.0)
    """From the first byte of a request to the end of its headers."""
    body_grace: Seconds = Seconds(20.0)
    """A body may take this long, and more as it comes at `body_rate` or faster."""
    body_rate: int = 4096
    """Bytes a second that a slow body must keep up."""
    idle_timeout: Seconds = Seconds(75.0)
    """Keep-alive of a client connection between requests; nginx's default."""
    farewell: Seconds = Seconds(0.0)
    """In a drain, how long after its last answer a connection stays for one more request, if that answer (which may
    have begun before the drain) did not say that it is the last. A client that sends a request while we close cannot
    know whether it was taken. Zero where nobody would serve it."""
    stall_timeout: Seconds = Seconds(60.0)
    """A client that reads nothing for so long has left."""
    linger_timeout: Seconds = Seconds(2.0)
    """After refusing a body, how long to read and discard, so that the answer is not lost in a reset."""
    hold_grace: Seconds = Seconds(5.0)
    """Past its deadline, how long a held request waits for the desk's refusal before it gives up by itself."""

    connect_timeout: Seconds = Seconds(5.0)
    upstream_idle: Seconds = Seconds(4.0)
    """Pooled connections older than this are closed: cpp-httplib (llama.cpp) and uvicorn (vLLM) close after 5 s."""
    max_upstream_idle: int = 256
    """Idle pooled connections to one replica."""
    tries: int = 3
    """Replicas that one request is sent to at most, while nothing was relayed."""
    write_high_water: Bytes = Bytes(128 * 1024)
    """Bytes that may wait for a slow client before the engine is no longer read."""
