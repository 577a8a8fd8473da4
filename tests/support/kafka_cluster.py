"""Three real brokers that are one cluster: replication 3, two in sync at least, so that any one may die.

Each is broker and controller. Their data folders are copies of the formatted one (see `kafka_broker`) with a node id
and a directory id of their own.
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.kafka_broker import Broker, end_with_this_process

NODES: Final = (1, 2, 3)
SETTINGS: Final[Mapping[str, str]] = {
    "default.replication.factor": "3", "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3", "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3", "transaction.state.log.min.isr": "2",
    "controller.quorum.election.timeout.ms": "300", "controller.quorum.election.backoff.max.ms": "300",
    "controller.quorum.fetch.timeout.ms": "1000", "replica.lag.time.max.ms": "5000",
}  # fmt: skip
"""What differs from one broker alone."""


class Cluster:
    """The brokers, by node id."""

    def __init__(self, folder: Path) -> None:
        self.brokers = {node: Broker(folder / str(node)) for node in NODES}
        voters = ",".join(f"{node}@127.0.0.1:{broker.controller_port}" for node, broker in self.brokers.items())
        for node, broker in self.brokers.items():
            _number(broker.folder, node, SETTINGS | {"node.id": str(node), "controller.quorum.voters": voters})

    @property
    def address(self) -> str:
        """HOST:PORT of all, with commas."""
        return ",".join(broker.address for broker in self.brokers.values())

    def start(self) -> None:
        """Start all; returns when each takes connections."""
        for broker in self.brokers.values():
            broker.start(wait=False)
        for broker in self.brokers.values():
            broker.wait()

    def stop(self) -> None:
        """End all, at once: in order would make each wait for its successor as leader."""
        for broker in self.brokers.values():
            broker.end()


def _number(folder: Path, node: int, settings: Mapping[str, str]) -> None:
    properties = folder / "server.properties"
    lines = properties.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line.partition("=")[0] not in settings]
    properties.write_text("\n".join([*kept, *(f"{name}={value}" for name, value in settings.items())]) + "\n")
    meta = folder / "data" / "meta.properties"
    directory = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    text = re.sub(r"node\.id=.*", f"node.id={node}", meta.read_text(encoding="utf-8"))
    meta.write_text(re.sub(r"directory\.id=.*", f"directory.id={directory}", text), encoding="utf-8")


@contextmanager
def cluster_in(folder: Path) -> Iterator[Cluster]:
    """A cluster that runs, and is ended afterwards."""
    end_with_this_process()
    cluster = Cluster(folder)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()
