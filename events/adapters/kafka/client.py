"""Clients of kafka-python, made from the settings; and the admin client in a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from typing import Final, TypeVar
from weakref import WeakSet

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.cluster import ClusterMetadata
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import (
    AuthorizationError,
    KafkaError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
    UnknownBrokerIdError,
)
from kafka.net.compat import KafkaNetClient
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.net.selector import NetworkSelector
from kafka.producer.transaction_manager import TransactionalRequestResult
from kafka.structs import ConsumerGroupMetadata
from tenacity import Retrying, retry_if_exception, stop_after_delay, stop_when_event_set, wait_exponential_jitter
from tenacity import sleep_using_event as sleeping_with

from events.adapters.kafka.fetching import prompt
from events.adapters.kafka.settings import BY_PASSWORD, READ_FROM, KafkaSettings, Options
from events.log import LogClosed, LogUnavailable
from events.units import Seconds

T = TypeVar("T")

logger = logging.getLogger(__name__)

FIRST_WAIT: Final = 0.05  # seconds before a failed call is tried again; doubled up to LONGEST_WAIT
LONGEST_WAIT: Final = 1.0
LONGEST: Final = 300
"""Characters of an error of the client that are told."""

_NOISY: Final = ("kafka.net", "kafka.cluster", "kafka.conn", "kafka.client", "kafka.coordinator", "kafka.consumer",
                 "kafka.producer")  # fmt: skip


class _LastWord(logging.Filter):
    """Keeps why the newest connection failed, and lets nothing through. A wrong password, or a certificate that nobody
    vouches for, kafka-python tells in its log alone; its errors say that no broker answered."""

    said = ""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if text.startswith("Bootstrap connection") and not any(word in self.said for word in _TELLING):
            self.said = text
        return False


_TELLING: Final = ("Authentication", "SSL", "certificate")
"""What says more than that a connection was lost, which it may be again afterwards."""

_last_word = _LastWord()


def quieten() -> None:
    """kafka-python says at length what we say once (the brokers are away), as errors and with tracebacks."""
    for name in _NOISY:
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.CRITICAL)
    manager = logging.getLogger("kafka.net.manager")
    manager.setLevel(logging.WARNING)
    manager.addFilter(_last_word)  # once: logging knows it again


class ClosingSelector(NetworkSelector):  # type: ignore[misc]  # kafka-python has no types
    """The network loop of a client, which closes what its end leaves open.

    kafka-python 3.0.12 cancels the tasks of a loop that ends; a socket that is being connected, or that has bytes left
    to send (a goodbye to the group, say), then stays open until the garbage collector finds it.
    """

    def __init__(self, **configs: object) -> None:
        super().__init__(**configs)
        self._written: WeakSet[socket] = WeakSet()

    def wait_write(self, fileobj: socket, timeout_at: float | None = None) -> object:
        """Each socket comes here: to be connected, at the latest with its first request."""
        self._written.add(fileobj)
        return super().wait_write(fileobj, timeout_at=timeout_at)

    def close(self) -> None:
        """The loop's thread has ended when the first line is done."""
        super().close()
        for one in list(self._written):
            one.close()


def make_producer(settings: KafkaSettings, topics: Collection[str] = ()) -> KafkaProducer:
    """Connect; KafkaError when no broker answers within 5 s. `topics`: see `_make`."""
    return _make(KafkaProducer, settings.producing(), topics)


def make_consumer(settings: KafkaSettings, topics: Collection[str] = ()) -> KafkaConsumer:
    """Connect; partitions are assigned by hand. `topics`: see `_make`."""
    return prompt(_make(KafkaConsumer, settings.consuming(), topics))


@dataclass(frozen=True, slots=True)
class Membership:
    """How to be a member of a group. `name` is its client id, by which it is found when it died; `session`: seconds of
    silence after which it is dead."""

    group: str
    name: str
    session: Seconds


def make_member(settings: KafkaSettings, how: Membership, chosen: Collection[int] | None) -> KafkaConsumer:
    """Connect; to become a member of a group, subscribe. `chosen`: the partitions that are shared out; None: all.
    Cooperative, so that a rebalance stops only the partitions that move."""
    cooperative = {"partition_assignment_strategy": [_Assignor(chosen)], "client_id": how.name}
    return prompt(_make(KafkaConsumer, settings.grouping(how.group, how.session) | cooperative))


class _Assignor(CooperativeStickyAssignor):  # type: ignore[misc]  # kafka-python has no types
    """Deals some partitions of each topic only. Where it is one, it stays with who has it until that member leaves."""

    def __init__(self, chosen: Collection[int] | None) -> None:
        super().__init__()
        self._chosen = None if chosen is None else frozenset(chosen)

    def assign(self, cluster: ClusterMetadata, members: object) -> object:
        return super().assign(cluster if self._chosen is None else _Part(cluster, self._chosen), members)


class _Part:
    """What an assignor asks of the cluster, answered for some partitions only."""

    def __init__(self, cluster: ClusterMetadata, chosen: frozenset[int]) -> None:
        self._cluster = cluster
        self._chosen = chosen

    def topics(self) -> object:
        return self._cluster.topics()

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        found = self._cluster.partitions_for_topic(topic)
        return None if found is None else found & self._chosen


def make_worker(settings: KafkaSettings, how: Membership) -> KafkaConsumer:
    """Connect; a member whose partitions have the same numbers in all topics (which the range assignor sees to)."""
    ranged = {"partition_assignment_strategy": [RangePartitionAssignor], "client_id": how.name}
    return prompt(_make(KafkaConsumer, settings.grouping(how.group, how.session) | ranged))


class TransactionalProducer(KafkaProducer):  # type: ignore[misc]  # kafka-python has no types
    """A producer whose transactions end or fail: kafka-python 3.0.12 waits for both steps of the end without a bound,
    also when brokers that died, or stand still, keep them from coming."""

    patience = Seconds(15.0)
    """Seconds that each of the two may take."""

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata
    ) -> None:
        """Raises KafkaTimeoutError besides what the library's does: whether they count is not known then."""
        self._await(self._transaction_manager.send_offsets_to_transaction(offsets, group_metadata), "take the offsets")

    def commit_transaction(self) -> None:
        """Raises KafkaTimeoutError besides what the library's does: whether it counts is not known then."""
        self._await(self._transaction_manager.begin_commit(), "commit")

    def _await(self, result: TransactionalRequestResult, what: str) -> None:
        self._sender.wakeup()
        if not result.wait(timeout_ms=self.patience * 1000):
            raise KafkaTimeoutError(f"the brokers did not {what} within {self.patience:g} s")


def make_transactional(settings: KafkaSettings, name: str) -> TransactionalProducer:
    """Connect and begin: what an earlier producer of this name left open is ended, and it can write no more."""
    producer = _make(TransactionalProducer, settings.transacting(name))
    producer.patience = Seconds(settings.append_timeout / 2)  # so that there is time for another one
    try:
        producer.init_transactions()
    except BaseException:
        producer._sender.force_close()  # noqa: SLF001 - kafka-python has no public way out of a wedged producer
        raise
    return producer


def make_admin(settings: KafkaSettings) -> KafkaAdminClient:
    """Connect."""
    options = settings.common()
    del options["metrics_enabled"]  # it knows no such option
    return _make(KafkaAdminClient, options)


class _TokenFile(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """The token that stands in a file now. Asked at each connection, in the client's thread."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def token(self) -> str:
        """Without a file an empty one, which brokers refuse: the connection is tried again, as with a wrong one."""
        try:
            return self._path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            logger.warning("the token for Kafka cannot be read: %s", error)
            return ""


def _make(kind: Callable[..., T], options: Options, topics: Collection[str] = ()) -> T:
    """A client that cannot connect leaves its thread and its sockets behind (kafka-python 3.0.12): end them here, or a
    long absence of the brokers would leave thousands.

    `topics`: those that exist, and that it will need. It knows their leaders from its first answer on; a topic that it
    first hears of with a record to send costs that record, and all behind it, 100 ms or more: the first question is on
    its way before the topic is in it, and the next is not asked for so long.
    """
    options = dict(options)
    if isinstance(path := options.pop(READ_FROM, None), Path):
        options["sasl_oauth_token_provider"] = _TokenFile(path)
    made: list[KafkaNetClient] = []

    def remembered(**configs: object) -> KafkaNetClient:
        made.append(KafkaNetClient(net=ClosingSelector(**configs), **configs))
        made[-1].cluster._topics.update(topics)  # noqa: SLF001 - what is public asks at once, without a deadline
        return made[-1]

    try:
        client = kind(**options, kafka_client=remembered)
    except BaseException as error:
        for network in made:
            network.close()  # ends its thread too
        made.clear()
        if isinstance(error, KafkaError | OSError):
            raise error.with_traceback(None) from None  # its frames hold the sockets
        raise
    _last_word.said = ""
    return client


def passes(error: BaseException) -> bool:
    """Whether trying again may help: the brokers are away, restart, or elect. Wrong credentials do not get right."""
    if isinstance(error, AuthorizationError | SaslAuthenticationFailedError):
        return False
    if isinstance(error, UnknownBrokerIdError):  # there is no controller just now; kafka-python takes it for a mistake
        return True
    return isinstance(error, OSError) or (isinstance(error, KafkaError) and bool(error.retriable))


def told(settings: KafkaSettings, error: BaseException) -> str:
    """An error of the client in a sentence."""
    name = type(error).__name__
    text = str(error).removeprefix(f"{name}: ")
    if len(text) > LONGEST:  # some name each partition there is
        text = f"{text[:LONGEST]}…"
    said = f"; {_last_word.said}" if "bootstrap" in text and _last_word.said else ""
    if said and settings.security.mechanism is not None:
        proof = "password" if settings.security.mechanism in BY_PASSWORD else "proof of who we are"
        said += f"; is the {proof} right? (brokers may just disconnect whose is not)"
    return f"Kafka at {','.join(settings.servers)}: {name.removesuffix('Error')}: {text}{said}"


class Admin:
    """The admin client in its thread. Work is done in order; what fails in passing is tried again, within bounds."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._closing = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="relume-kafka-admin")
        self._client: KafkaAdminClient | None = None

    def submit(self, work: Callable[[KafkaAdminClient], T], within: float) -> Future[T]:
        """Do it in the thread, for at most about `within` seconds. The future raises LogUnavailable or LogClosed."""
        try:
            return self._thread.submit(self._attempt, work, within)
        except RuntimeError as error:  # the thread has been shut down
            raise LogClosed("the log is closed") from error

    async def call(self, work: Callable[[KafkaAdminClient], T], within: float | None = None) -> T:
        """Do it in the thread and wait."""
        bound = self._settings.request_timeout if within is None else within
        return await asyncio.wrap_future(self.submit(work, bound))

    def close(self) -> None:
        """Give up what is under way; waits for nothing."""
        self._closing.set()
        try:
            self._thread.submit(self._drop)
        except RuntimeError:  # closed before
            return
        self._thread.shutdown(wait=False)

    def _attempt(self, work: Callable[[KafkaAdminClient], T], within: float) -> T:
        tries = Retrying(
            stop=stop_after_delay(within) | stop_when_event_set(self._closing),
            wait=wait_exponential_jitter(multiplier=FIRST_WAIT, max=LONGEST_WAIT, jitter=FIRST_WAIT),
            retry=retry_if_exception(passes),
            sleep=sleeping_with(self._closing),
            reraise=True,
        )
        try:
            answer: T = tries(self._once, work)
        except (KafkaError, OSError) as error:
            if self._closing.is_set():
                raise LogClosed("the log is closed") from error
            raise LogUnavailable(told(self._settings, error)) from error
        return answer

    def _once(self, work: Callable[[KafkaAdminClient], T]) -> T:
        if self._client is None:
            self._client = make_admin(self._settings)
        try:
            return work(self._client)
        except (KafkaError, OSError):
            self._drop()  # a client that saw a broker die may stay confused; a new one costs 20 ms
            raise

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            try:
                client.close()
            except (KafkaError, OSError) as error:
                logger.debug("closing an admin client: %s", error)
