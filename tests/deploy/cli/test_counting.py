"""`relume events stats`: by type from a running relume, by topic and group from Kafka itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from kafka import KafkaProducer

from deploy.cli.main import run
from events.names import TOPIC_KINDS
from events.types.metrics import SignalMeasured
from tests.deploy.cli.conftest import LiveAdmin, Relume
from tests.support.kafka_broker import Broker, shared_broker
from tests.support.kafka_logs import LEAKS, collect_leaks, commit, wipe

KAFKA = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]


def test_by_type(relume: Relume, live: LiveAdmin) -> None:
    """Numbers, sizes, ages, and a rate over the last minute."""
    live.do(live.admin.say(*[SignalMeasured(model="echo", name="queue", value=n) for n in range(30)]))
    answer = json.loads(relume("events", "stats", "-o", "json", live=live).out)
    row = answer["types"]["relume.signal.measured.v1"]
    assert (row["events"], row["perSecond"], answer["events"]) == (30, 0.5, 30)
    table = relume("events", "stats", live=live).out
    assert table.splitlines()[0].split() == ["TYPE", "EVENTS", "PER", "SECOND", "BYTES", "FIRST", "AGO", "LAST", "AGO"]
    assert table.splitlines()[1].split()[:3] == ["relume.signal.measured.v1", "30", "0.5"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--topic", "orders"), "give --events"),
        (("--events", "memory:"), "Only Kafka"),
    ],
)
def test_wrong_use(relume: Relume, words: tuple[str, ...], said: str) -> None:
    """Exit code 2 and what to write."""
    ran = relume("events", "stats", *words)
    assert (ran.code, said in ran.err) == (2, True), ran.err


class TestKafka:
    """From Kafka itself."""

    pytestmark = KAFKA

    @pytest.fixture
    def broker(self) -> Iterator[Broker]:
        """With the topics of relume, in three partitions, and 30 numbers of one model in one of them."""
        broker = shared_broker()
        wipe(broker)
        create = ("topics", "create", "--events", f"kafka://{broker.address}", "--kafka-partitions", "3")
        assert any(run(create) == 0 for _ in range(10)), "a broker on a busy machine may miss its own heartbeats"
        producer = KafkaProducer(bootstrap_servers=broker.address)
        for number in range(30):
            producer.send("relume.metrics", b"{}", partition=number % 2)
        producer.flush(20)
        producer.close(5)
        commit(broker, "dashboards", "relume.metrics", {0: 10})
        yield broker
        broker.revive()
        collect_leaks()

    def test_topics_and_groups(self, broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
        """Offsets, sizes, the newest time, the lag; a rate between two looks."""
        capsys.readouterr()
        url = ("--events", f"kafka://{broker.address}", "--interval", "200ms")
        assert run(("events", "stats", *url, "-o", "json", "--group", "dashboards")) == 0
        answer = json.loads(capsys.readouterr().out)
        assert {one["topic"] for one in answer["topics"]} == set(TOPIC_KINDS)
        first, _, empty = [one for one in answer["topics"] if one["topic"] == "relume.metrics"]
        assert (first["events"], first["perSecond"], first["bytes"] > 100) == (15, 0.0, True)
        assert (empty["events"], empty["newest"]) == (0, None)
        assert {"group": "dashboards", "topic": "relume.metrics", "partition": 0, "lag": 5} in answer["groups"]
        assert run(("events", "stats", *url, "--topic", "relume.metrics", "--group", "dashboards")) == 0
        rows = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert rows[1][:4] == ["relume.metrics", "3", "30", "0"]
        assert rows[-1] == ["dashboards", "relume.metrics", "1", "5"]
        assert run(("events", "stats", *url, "--topic", "relume.metrics", "--partitions")) == 0
        assert len(capsys.readouterr().out.splitlines()) == 3 + 1 + 3

    def test_watching(self, broker: Broker) -> None:
        """A JSON object a line, for programs, until it is ended; the rate shows what comes."""
        words = (sys.executable, "-m", "deploy.cli.main", "events", "stats", "--watch", "--interval", "500ms", "-o",
                 "json", "--events", f"kafka://{broker.address}", "--topic", "relume.metrics")  # fmt: skip
        with subprocess.Popen(words, stdout=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as watching:
            assert watching.stdout is not None
            assert json.loads(watching.stdout.readline())["topics"][0]["perSecond"] is None
            producer = KafkaProducer(bootstrap_servers=broker.address)
            producer.send("relume.metrics", b"{}", partition=2).get(20)
            producer.close(5)
            while json.loads(watching.stdout.readline())["topics"][2]["end"] == 0:
                pass
            watching.terminate()
            watching.wait(20)

    def test_nobody_answers(self, broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
        """Exit code 1, and why."""
        broker.stop()
        assert run(("events", "stats", "--events", f"kafka://{broker.address}")) == 1
        assert broker.address in capsys.readouterr().err
