"""What is left, and what is told, of Kafka clients that could not connect."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psutil
import pytest
from kafka.errors import KafkaError

from events.adapters.kafka.client import make_admin, make_consumer, make_producer, quieten, told
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


def _open_files() -> int:
    return psutil.Process().num_fds()
