"""The process that fetches a set is killed again and again: files that were whole stay, and nothing half is shown."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.coldstart.adapters.conftest import Open, made
from tests.support.s3_store import SECRET_KEY
from tests.support.weight_origins import Place

ROOT = Path(__file__).resolve().parents[3]
CHUNK = 16 << 10
FILES = {"config.json": b"{}", **{f"shard-{number}.bin": made(number, 6 * CHUNK + number) for number in range(4)}}


def started(at: Place) -> subprocess.Popen[str]:
    """A fetch of the set in a process of its own, with the store's usual variables."""
    told = {
        "AWS_ACCESS_KEY_ID": "relume-test", "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": at.several.access.endpoint or "", "AWS_ALLOW_HTTP": "true",
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.fetch_once", str(at.cache), at.several.address, str(CHUNK)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **told},
    )  # fmt: skip


@pytest.mark.needs("versitygw")
def test_killed_again_and_again_a_set_goes_on(place: Open) -> None:
    """`kill -9` at random requests; what was whole is not asked for again; the end is right."""
    at = place("s3", FILES, "config.json")
    assert at.faulty is not None
    draw = random.Random(7)
    process: subprocess.Popen[str] | None = None
    last = -1

    def kill(number: int) -> str:
        if number >= last >= 0 and process is not None:
            process.send_signal(signal.SIGKILL)
        return ""

    at.faulty.faults = kill
    for _ in range(3):
        last = at.faulty.data_requests + draw.randint(3, 8)
        process = started(at)
        assert process.wait(60) == -signal.SIGKILL
        process.communicate()
        assert at.shown() == []
    last, before = -1, at.faulty.data_requests
    process = started(at)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    total = sum(map(len, FILES.values()))
    assert 0 < int(out) < total, "something had been verified before the last kill"
    assert at.faulty.data_requests - before < -(-total // CHUNK)
    assert {path.name: path.read_bytes() for path in at.shown()} == FILES
