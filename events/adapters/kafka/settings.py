"""What the Kafka log can be told, and which options of the client follow from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

from events.codec import MAX_EVENT_BYTES
from events.log import Retention
from events.units import Seconds

Options = dict[str, object]
"""Keyword arguments of a kafka-python client."""

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM"]
Compression = Literal["gzip", "snappy", "lz4", "zstd"]

BY_PASSWORD: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PACKAGES: Final = {"GSSAPI": "gssapi", "AWS_MSK_IAM": "botocore"}
"""What kafka-python needs besides for a mechanism."""
READ_FROM: Final = "read_from"
"""An option that no client knows: who makes the client puts what reads a token from that file in its place."""

RECORD_BYTES: Final = 2 * MAX_EVENT_BYTES
"""Largest batch of our topics: one event of the largest size and what Kafka adds (its own default is 1 MiB)."""


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """How clients prove who they are, and whom they trust."""

    protocol: Protocol = "PLAINTEXT"
    ca: Path | None = None
    """Certificates (PEM) of authorities that brokers are trusted by; None: those of the system."""
    certificate: Path | None = None
    """Our own certificate chain (PEM), for brokers that ask for one."""
    key: Path | None = None
    check_hostname: bool = True
    mechanism: Mechanism | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    token_file: Path | None = None
    """With OAUTHBEARER: a file with the token (RFC 6750), read at each connection, so that it may be renewed."""

    def __post_init__(self) -> None:
        if wrong := self._wrong():
            raise ValueError(f"{self.protocol} {wrong}")
        package = PACKAGES.get(self.mechanism or "")
        if package is not None and find_spec(package) is None:
            raise ValueError(f"{self.mechanism} needs a package that is not installed: pip install {package}")
        if (self.certificate is None) != (self.key is None):
            raise ValueError("a certificate needs its key, and a key its certificate")

    def _wrong(self) -> str:
        told, user, token = self.mechanism, bool(self.username and self.password), self.token_file is not None
        if not self.protocol.startswith("SASL"):
            spare = told or self.username or self.password or token
            return "takes no mechanism, username, password or token; SASL_SSL does" if spare else ""
        if told is None or (told in BY_PASSWORD and (token or not user)):
            return f"needs a mechanism, and with {', '.join(BY_PASSWORD)} a username and a password"
        if told == "OAUTHBEARER" and not token:
            return "with OAUTHBEARER needs a file with the token"
        if told not in BY_PASSWORD and (self.username or self.password):
            return f"with {told} takes no username or password"
        return f"with {told} takes no token" if token and told != "OAUTHBEARER" else ""

    def options(self) -> Options:
        """The options of every client."""
        found: Options = {"security_protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            found |= {
                "ssl_check_hostname": self.check_hostname,
                "ssl_cafile": _text(self.ca), "ssl_certfile": _text(self.certificate), "ssl_keyfile": _text(self.key),
            }  # fmt: skip
        if self.mechanism is not None:
            found["sasl_mechanism"] = self.mechanism
        if self.mechanism in BY_PASSWORD:
            found |= {"sasl_plain_username": self.username, "sasl_plain_password": self.password}
        if self.token_file is not None:
            found[READ_FROM] = self.token_file
        return found


def _nobody() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Servers, topics, bounds. Bounds are in events unless they say bytes."""

    servers: tuple[str, ...]
    """HOST:PORT of some brokers; the others are found through them."""
    security: KafkaSecurity = field(default_factory=KafkaSecurity)
    client_id: str = "relume"
    partitions: int = 12
    """Partitions of each topic that is created. Topics that exist keep theirs, all the same number, for ever: the
    partition of a model follows from it. (12 is divided evenly by 1, 2, 3, 4, 6 and 12 processes.)"""
    replication: int = -1
    """Copies of each topic that is created; -1: what the brokers say. 3, with min.insync.replicas=2, survives one."""
    create_topics: bool = True
    """Whether missing topics are created at open; else they must be there."""
    retention: Retention = field(default_factory=Retention)
    """News and queues are deleted after the age; states are compacted, but not before it."""
    compression: Compression | None = None
    """Of batches that we produce."""
    tend: bool = True
    """Whether this log takes part in tending the topics: strays put right, dead letters written (see `tending`)."""
    offer_bound: int = 65_536
    """Offers that may wait, in flight or for the broker; further ones are dropped and counted."""
    append_bound: int = 65_536
    """Appended events that may wait; a further append raises LogUnavailable."""
    in_flight_bound: int = 1000
    """Events given to the client and not acknowledged; it has no bound of its own."""
    subscriber_bound: int = 4096
    """Records that wait in memory for one subscriber; beyond, its consumer pauses."""
    append_timeout: Seconds = Seconds(30.0)
    """Longest wait for an append to be durable; then LogUnavailable (it may still be written: append it again)."""
    delivery_timeout: Seconds = Seconds(60.0)
    """After so long without an acknowledgement the producer is thrown away and made anew."""
    open_timeout: Seconds = Seconds(30.0)
    """Longest wait for the brokers at open."""
    request_timeout: Seconds = Seconds(10.0)
    session_timeout: Seconds = Seconds(6.0)
    """After so long without a heartbeat a member of a group is dead, and others take its partitions. 6 s is the least
    that brokers allow unless told otherwise (`group.min.session.timeout.ms`); of brokers that refuse it, twice as much
    is asked, and so on."""
    heartbeat: Seconds = Seconds(0.5)
    """Between heartbeats of a member: so long may it take until it hears that the group deals its partitions anew."""
    identity: Callable[[], str] = _nobody
    """A name that no other living process has, and that the next one in its place has again; empty: it has none, or not
    yet. Asked at each joining of a group, in the client's thread: what an earlier process of this name left in the
    group is taken out of it then. (Who must not: two living processes of one name would do so to each other.)"""
    max_event_bytes: int = MAX_EVENT_BYTES

    def __post_init__(self) -> None:
        if not self.servers or not all(self.servers):
            raise ValueError("Kafka needs at least one server, HOST:PORT")
        if self.partitions < 1 or self.in_flight_bound < 1:
            raise ValueError("partitions and in_flight_bound must be at least 1")
        if self.delivery_timeout < self.request_timeout:
            raise ValueError("delivery_timeout must not be smaller than request_timeout")

    def common(self) -> Options:
        """The options of every client. The longest pause between connection attempts is 30 s by default: far too long
        for who waits for a broker that is back."""
        return {
            "bootstrap_servers": list(self.servers),
            "client_id": self.client_id,
            "reconnect_backoff_ms": 50,
            "reconnect_backoff_max_ms": 500,
            "retry_backoff_ms": 50,
            "request_timeout_ms": round(self.request_timeout * 1000),
            "bootstrap_timeout_ms": round(min(self.open_timeout, 5.0) * 1000),
            "metrics_enabled": False,
            **self.security.options(),
        }

    def producing(self) -> Options:
        """Idempotent, acknowledged by all in-sync replicas; a batch leaves as soon as the one before it has left."""
        return self.common() | {
            "acks": "all",
            "enable_idempotence": True,
            "linger_ms": 0,
            "batch_size": 65_536,
            "compression_type": self.compression,
            "delivery_timeout_ms": round(self.delivery_timeout * 1000),
            "max_block_ms": 5000,
            "max_request_size": RECORD_BYTES,
        }

    def transacting(self, name: str) -> Options:
        """`producing` in transactions. One that its producer left open is ended by the brokers after 10 s, or when a
        producer of the same name begins."""
        return self.producing() | {
            "transactional_id": name,
            "transaction_timeout_ms": 10_000,
            "max_block_ms": round(self.request_timeout * 1000),
        }

    def consuming(self) -> Options:
        """Positions and commits are ours; memory is bounded by the bytes of a fetch."""
        return self.common() | {
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "isolation_level": "read_committed",  # what a transaction took back never was
            "allow_auto_create_topics": False,
            "max_partition_fetch_bytes": RECORD_BYTES,
            "fetch_max_bytes": 8 * RECORD_BYTES,
            "fetch_max_wait_ms": 500,
        }

    def grouping(self, group: str, session: Seconds) -> Options:
        """A member of a group, which is dead after `session` seconds of silence."""
        return self.consuming() | {
            "group_id": group,
            "session_timeout_ms": round(session * 1000),
            "heartbeat_interval_ms": round(self.heartbeat * 1000),
            "max_poll_interval_ms": 30_000,  # also how long a rebalance waits for a member; ours poll all the time
        }


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
