"""What is left, and what is told, of Kafka clients that could not connect."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import psutil
import pytest
from kafka.errors import KafkaError
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaTCPTransport

from events.adapters.kafka.client import ClosingSelector, make_admin, make_consumer, make_producer, quieten, told
from events.adapters.kafka.settings import KafkaSettings
from events.units import Seconds
from tests.support.kafka_broker import free_port
from tests.support.kafka_logs import LEAKS, collect_leaks

pytestmark = LEAKS


@pytest.mark.parametrize("make", [make_producer, make_consumer, make_admin])
def test_clients_that_cannot_connect_leave_nothing(make: Callable[[KafkaSettings], object]) -> None:
    """No thread and, once garbage is collected, no file: brokers may stay away for days."""
    quieten()  # records of the client's log hold exceptions, which hold sockets
    settings = KafkaSettings((f"127.0.0.1:{free_port()}",), open_timeout=Seconds(0.3))
    threads, files = threading.active_count(), _open_files()
    for _ in range(3):
        with pytest.raises(KafkaError):
            make(settings)
    collect_leaks()
    assert threading.active_count() == threads
    assert _open_files() <= files


def test_what_the_client_says_is_told() -> None:
    """Why no connection was made stands in kafka-python's log alone; it is told with the servers' names."""
    settings = KafkaSettings((f"127.0.0.1:{free_port()}",), open_timeout=Seconds(0.3))
    quieten()
    with pytest.raises(KafkaError) as caught:
        make_admin(settings)
    assert f"Kafka at {settings.servers[0]}: KafkaTimeout: Unable to bootstrap" in told(settings, caught.value)
    assert "Bootstrap connection to" in told(settings, caught.value)
    collect_leaks()


@pytest.mark.parametrize(("selector", "closed"), [(NetworkSelector, False), (ClosingSelector, True)])
def test_a_loop_that_ends_leaves_no_socket_open(selector: type[NetworkSelector], *, closed: bool) -> None:
    """A connection is closed with bytes to send that its peer does not read. (The plain selector leaves the socket
    open: once that changes, ours has nothing left to do.)"""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        ours.setblocking(False)
        net = selector()
        transport = KafkaTCPTransport(net, ours)
        transport.write(bytes(1 << 24))
        transport.close()
        net.poll(timeout_ms=10)
        net.close()
        assert (ours.fileno() == -1) is closed


def _open_files() -> int:
    return psutil.Process().num_fds()
