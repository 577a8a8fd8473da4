"""What a trainer says, for those who see no folder of its: over HTTP, and in the container's termination message."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from preemption.trainer import clock
from preemption.trainer.channels.http import SAID, HttpChannel
from preemption.trainer.notice import Heard
from preemption.trainer.report import KEPT, Reporter
from tests.support.kafka_broker import free_port

SMALL = Path(__file__).resolve().parents[2] / "support" / "small_trainer.py"


def asked(port: int, path: str, token: str = "t") -> tuple[list[str], int]:
    """The kinds of the reports, and how many there were."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        kinds = [json.loads(line)["kind"] for line in answer.read().splitlines()]
        return kinds, int(answer.headers[SAID])


def refusal(port: int, path: str, token: str = "t") -> int:
    """The status of an answer that has no reports."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        asked(port, path, token)
    with refused.value as error:
        return int(error.code)


def test_reports_are_asked_for_from_where_one_was() -> None:
    """Only what is new comes; a number that no such trainer has reached is of an earlier one, and gets all."""
    reporter = Reporter(None, None, keeps=True)
    channel = HttpChannel(("127.0.0.1", 0), "t", lambda _: Heard.NEW, reporter.since)
    try:
        assert asked(channel.port, "/reports?after=0") == ([], 0)
        for kind in ("started", "step", "saved"):
            reporter.say(kind, step=1)
        assert asked(channel.port, "/reports") == (["started", "step", "saved"], 3)
        assert asked(channel.port, "/reports?after=2") == (["saved"], 3)
        assert asked(channel.port, "/reports?after=3") == ([], 3)
        assert asked(channel.port, "/reports?after=99") == (["started", "step", "saved"], 3)
        for path, token, status in (("/reports", "x", 401), ("/else", "t", 404)):
            assert refusal(channel.port, path, token) == status
    finally:
        channel.close()


def test_only_so_many_reports_are_kept() -> None:
    """Who asks too rarely misses the oldest, and memory has a bound."""
    reporter = Reporter(None, None, keeps=True)
    for step in range(KEPT + 10):
        reporter.say("step", step=step)
    lines, said = reporter.since(0)
    assert (said, len(lines.splitlines())) == (KEPT + 10, KEPT)
    assert json.loads(lines.splitlines()[0])["step"] == 10


def test_a_channel_without_reports_has_none_to_give() -> None:
    """A server that was made for notices alone says 404."""
    channel = HttpChannel(("127.0.0.1", 0), None, lambda _: Heard.NEW)
    try:
        assert refusal(channel.port, "/reports") == 404
    finally:
        channel.close()


def test_the_last_words_prove_the_save(tmp_path: Path) -> None:
    """A trainer that was told over HTTP, asked over HTTP, and left: its termination message has the save with its
    manifest, and that it left."""
    port, log = free_port(), tmp_path / "termination-log"
    log.touch()
    environment = {
        "PATH": str(Path(sys.executable).parent), "PYTHONPATH": str(SMALL.parents[2]),
        "RELUME_NOTICE_LISTEN": f"127.0.0.1:{port}", "RELUME_NOTICE_TOKEN": "t", "RELUME_TERMINATION_LOG": str(log),
    }  # fmt: skip
    command = [sys.executable, str(SMALL), str(tmp_path), "10000", "--pause", "0.02"]
    process = subprocess.Popen(command, env=environment)
    try:
        until = clock.steady_now() + 60
        while "started" not in _answered(port):
            assert clock.steady_now() < until
            clock.pause(0.05)
        body = json.dumps({"id": "a1", "epoch": 1}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/notice", body, {"Authorization": "Bearer t"}, method="POST"
        )
        urllib.request.urlopen(request, timeout=5).close()
        assert process.wait(60) == 75
    finally:
        process.kill()
        process.wait()
    saved, left = [json.loads(line) for line in log.read_text().splitlines()]
    assert (saved["kind"], left["kind"], saved["id"], left["id"]) == ("saved", "leaving", "a1", "a1")
    assert len(saved["manifest"]) == 64
    assert saved["step"] == left["step"]


def _answered(port: int) -> list[str]:
    try:
        return asked(port, "/reports")[0]
    except OSError:
        return []
