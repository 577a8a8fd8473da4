"""`relume topics check|create`, on a real broker and without one."""

from __future__ import annotations

import json

import pytest
from kafka import KafkaAdminClient

from deploy.cli.main import run
from events.names import TOPIC_KINDS, Topic
from tests.support.kafka_broker import Broker
from tests.support.kafka_logs import LEAKS

KAFKA = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, object]]:
    """The exit code, and the JSON that alone stands on standard output."""
    code = run(["topics", *arguments, "-o", "json"])
    answer: dict[str, object] = json.loads(capsys.readouterr().out)
    return code, answer


class TestOnABroker:
    """With real topics."""

    pytestmark = KAFKA

    def test_missing_created_fit(self, broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
        """Nothing is there; all are created as asked; then all are fit, and creating again does nothing."""
        url = ("--events", f"kafka://{broker.address}", "--kafka-partitions", "2")
        code, state = ask(capsys, "check", *url)
        assert (code, state["fit"]) == (1, False)
        assert state["problems"] == [f"missing: {', '.join(TOPIC_KINDS)}; create them with: relume topics create"]
        assert run(["topics", "create", *url, "--kafka-replication", "2"]) == 1
        said = capsys.readouterr().err
        assert "could not be created" in said
        assert "as many brokers as --kafka-replication wants" in said
        code, state = ask(capsys, "create", *url)
        assert (code, sorted(state["created"])) == (0, sorted(TOPIC_KINDS))
        assert {(one["partitions"], one["replication"]) for one in state["topics"]} == {(2, 1)}
        code, state = ask(capsys, "create", "--events", f"kafka://{broker.address}")
        assert (code, state["created"], state["fit"]) == (0, [], True)
        assert run(["topics", "check", *url]) == 0
        rows = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert ["relume.models", "state", "2", "1", "fit"] in rows

    def test_what_is_not_fit(self, broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
        """A state that would be deleted, news that would be compacted, producers' clocks, uneven partitions: each is
        told with its remedy, and nothing is changed."""
        admin = KafkaAdminClient(bootstrap_servers=broker.address)
        stamped = {"message.timestamp.type": "LogAppendTime"}
        admin.create_topics({
            Topic.MODELS: {"num_partitions": 2, "configs": {"cleanup.policy": "delete", **stamped}},
            Topic.DECISIONS: {"num_partitions": 2, "configs": {"cleanup.policy": "compact,delete", **stamped}},
            Topic.REQUESTS: {"num_partitions": 2, "configs": {"cleanup.policy": "compact", **stamped}},
            Topic.METRICS: {"num_partitions": 2, "configs": {"cleanup.policy": "delete", "retention.ms": "60000"}},
            Topic.PHASES: {"num_partitions": 1, "configs": {"cleanup.policy": "delete", **stamped}},
        }, wait_for_metadata=True)  # fmt: skip
        admin.close()
        code, state = ask(capsys, "check", "--events", f"kafka://{broker.address}")
        problems = {one["name"]: " ".join(one["problems"]) for one in state["topics"] if one["problems"]}
        assert code == 1
        assert "cleanup.policy is delete, so states would be forgotten; set it to compact" in problems[Topic.MODELS]
        assert "take delete out" in problems[Topic.DECISIONS]
        assert "set it to delete" in problems[Topic.REQUESTS]
        assert "set it to LogAppendTime" in problems[Topic.METRICS]
        assert "retention.ms is 60000, less than what --events-age says (604800000)" in problems[Topic.METRICS]
        assert "topics have 1, 2 partitions; all must have the same number" in problems[Topic.PHASES]


def test_topics_of_another_log(capsys: pytest.CaptureFixture[str]) -> None:
    """Only Kafka has topics: wrong use."""
    assert run(["topics", "check", "--events", "memory:"]) == 2
    assert "give --events kafka://HOST:PORT" in capsys.readouterr().err


def test_wrong_settings(capsys: pytest.CaptureFixture[str]) -> None:
    """As with `relume up`: wrong use, told in words."""
    assert run(["topics", "check", "--events", "kafka://b", "--kafka-security", "ssl"]) == 2
    assert "write kafka://HOST:PORT[,HOST:PORT]" in capsys.readouterr().err
