"""`relume events produce`: through the admin API, and to a real Kafka."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from deploy.cli.main import run
from deploy.cli.producing import BATCH, BODY, NAMES, produce
from events.foreign import FOREIGN
from tests.deploy.cli.conftest import LiveAdmin, Relume
from tests.support.kafka_broker import Broker, shared_broker
from tests.support.kafka_logs import LEAKS, collect_leaks, wipe

SIGNAL = {"type": "relume.signal.measured.v1", "data": {"model": "echo", "name": "jobs", "value": 3}}


def lines(*events: object) -> str:
    return "".join(json.dumps(event) + "\n" for event in events)


def told(relume: Relume, live: LiveAdmin) -> list[dict[str, object]]:
    """The numbers that stand in the log."""
    ran = relume("events", "tail", "--topic", "metrics", "--no-follow", "-o", "json", live=live)
    return [json.loads(line) for line in ran.out.splitlines()]


def test_one_event(relume: Relume, live: LiveAdmin) -> None:
    """By its short name; the id is ours to choose, and the same id is the same event."""
    words = ("events", "produce", "signal.measured", "--model", "echo", "--data", '{"name": "jobs", "value": 3}')
    for _ in range(2):
        ran = relume(*words, "--id", "a", "-o", "json", live=live)
        assert (ran.code, json.loads(ran.out)) == (0, {"appended": 1, "checked": 1, "ids": ["a"]})
    assert relume(*words, live=live).err == "1 event sent\n"
    ours, other = told(relume, live)
    assert (ours["id"], ours["source"], ours["subject"]) == ("a", "relume/cli", "model/echo")
    assert other["id"] != "a"


def test_lines(relume: Relume, live: LiveAdmin, tmp_path: Path) -> None:
    """From a file and from standard input; empty lines are passed over; more than one batch."""
    file = tmp_path / "events.jsonl"
    file.write_text(lines(*[SIGNAL] * (BATCH + 7)) + "\n\n", encoding="utf-8")
    assert relume("events", "produce", "-f", str(file), live=live).err == f"{BATCH + 7} events sent\n"
    ran = relume("events", "produce", "-f", "-", "--source", "me", "-o", "json", stdin=lines(SIGNAL), live=live)
    assert json.loads(ran.out)["appended"] == 1
    events = told(relume, live)
    assert (len(events), events[-1]["source"]) == (BATCH + 8, "me")
    assert relume("events", "produce", "-f", "-", stdin="", live=live).err == "0 events sent\n"


def test_large_events_share_no_request(relume: Relume, live: LiveAdmin) -> None:
    """The admin API's bound on a body is kept."""
    big = {**SIGNAL, "data": {"model": "echo", "name": "n" * 900_000, "value": 1}}
    assert BODY < 4 * 900_000
    assert relume("events", "produce", "-f", "-", stdin=lines(*[big] * 5), live=live).err == "5 events sent\n"
    assert len(told(relume, live)) == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (lines({**SIGNAL, "data": {"model": "echo", "name": "x", "value": "many"}}), "line 2: data.value: Input"),
        (lines({**SIGNAL, "type": "relume.signal.measured.v9"}), "line 2: type: relume.signal.measured.v9"),
        (lines({"type": "order.placed", "data": {}}), "line 2: type: 'order.placed' is not an event type of relume"),
        (lines({**SIGNAL, "type": "relume.gateway.beat.v1", "data": {"gateway": "g", "boot": "b"}}),
         "line 2: relume.gateway.beat.v1 has one writer"),
        (lines([1]), "line 2: event: must be a JSON object"),
        ("{\n", "line 2 is not JSON"),
        ("x" * (1 << 20) + "xx\n", "line 2 is longer than an event may be"),
    ],
    ids=["value", "version", "type", "state", "list", "json", "size"],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line(relume: Relume, live: LiveAdmin, text: str, said: str) -> None:
    """Nothing of its batch is sent."""
    ran = relume("events", "produce", "-f", "-", stdin=lines(SIGNAL) + text, live=live)
    assert ran.code == 1
    assert said in ran.err
    assert told(relume, live) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Give a TYPE"),
        (("signal.measured", "-f", "-"), "not both"),
        (("-f", "-", "--model", "echo"), "make one event"),
        (("signal.mesured",), "did you mean signal.measured?"),
        (("wish.decided",), "may be produced"),
        (("signal.measured", "--data", "{"), "--data is not JSON"),
        (("signal.measured", "--data", "3"), "must be a JSON object"),
        (
            ("signal.measured", "--data", '{"model": "m", "name": "n", "value": 1}', "--events", "sqlite:x"),
            "Only Kafka",
        ),
    ],
)
def test_wrong_use(relume: Relume, live: LiveAdmin, words: tuple[str, ...], said: str) -> None:
    """Exit code 2 and what to write."""
    ran = relume("events", "produce", *words, live=live)
    assert (ran.code, said in ran.err) == (2, True), ran.err


def test_a_dry_run_sends_nothing(relume: Relume) -> None:
    """And needs no relume that answers."""
    ran = relume("events", "produce", "-f", "-", "--dry-run", stdin=lines(SIGNAL, SIGNAL))
    assert (ran.code, ran.err) == (0, "2 events would be sent\n")


def test_shells_complete_types() -> None:
    """As far as they are typed."""
    context = click.Context(produce)
    (argument,) = [one for one in produce.params if one.name == "kind"]
    assert [item.value for item in argument.shell_complete(context, "request.")] == [
        "request.arrived", "request.finished",
    ]  # fmt: skip


def test_what_may_be_produced_is_what_others_may_tell() -> None:
    """The help names every type, and each has a short name."""
    assert len(NAMES) == len(FOREIGN)


KAFKA = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]


class TestKafka:
    """To Kafka itself."""

    pytestmark = KAFKA

    @pytest.fixture
    def broker(self) -> Iterator[Broker]:
        broker = shared_broker()
        wipe(broker)
        yield broker
        collect_leaks()

    def test_to_kafka(
        self, broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without topics it says what to do; then the events stand there, and the counts say so."""
        url = ("--events", f"kafka://{broker.address}")
        words = ("events", "produce", "-f", "-", *url)
        self.type(monkeypatch, lines(SIGNAL))
        assert run(words) == 1
        assert "relume topics create" in capsys.readouterr().err
        assert run(("topics", "create", *url, "--kafka-partitions", "3")) == 0
        capsys.readouterr()
        self.type(monkeypatch, lines(*[SIGNAL] * 20))
        assert run(words) == 0
        assert "20 events sent" in capsys.readouterr().err

    def type(self, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
