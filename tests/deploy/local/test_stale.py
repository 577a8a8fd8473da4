"""Stale processes: exactly those of this folder's replicas are found and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from deploy.local import stale
from deploy.local.environment import MARK_DATA, MARK_REPLICA
from deploy.local.stale import StaleProcessesRemain, find_marked, kill_marked
from tests.support.local_cluster import alive


@pytest.fixture
def sleepers(tmp_path: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Sleeping processes with different marks."""
    mine = str(tmp_path)
    marks = {
        "first": {MARK_REPLICA: "m-r1-0", MARK_DATA: mine},
        "second": {MARK_REPLICA: "m-r1-1", MARK_DATA: mine},
        "other folder": {MARK_REPLICA: "m-r1-0", MARK_DATA: mine + "/other"},
        "shell of a person": {MARK_DATA: mine},
    }
    command = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
    started = {name: subprocess.Popen(command, env=env) for name, env in marks.items()}
    yield started
    for process in started.values():
        process.kill()
        process.wait()


def running(sleepers: dict[str, subprocess.Popen[bytes]]) -> set[str]:
    """Those that live."""
    return {name for name, process in sleepers.items() if process.poll() is None}


def test_only_this_folders_replicas(tmp_path: Path, sleepers: dict[str, subprocess.Popen[bytes]]) -> None:
    """Both marks must be there and name this folder; a person's shell with the folder's name is spared."""
    assert {process.pid for process in find_marked(str(tmp_path))} == {
        sleepers["first"].pid, sleepers["second"].pid,
    }  # fmt: skip
    killed = kill_marked(str(tmp_path))
    assert sorted((one.pid, one.replica) for one in killed) == sorted(
        [(sleepers["first"].pid, "m-r1-0"), (sleepers["second"].pid, "m-r1-1")]
    )
    assert running(sleepers) == {"other folder", "shell of a person"}


def test_one_replica(tmp_path: Path, sleepers: dict[str, subprocess.Popen[bytes]]) -> None:
    """One replica's processes can be cleared away without touching its siblings, and also when they are stopped."""
    sleepers["second"].send_signal(signal.SIGSTOP)
    kill_marked(str(tmp_path), "m-r1-1")
    assert running(sleepers) == {"first", "other folder", "shell of a person"}


def test_never_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relume that was started by a replica of its own folder does not kill itself or what started it."""
    here = psutil.Process(os.getpid())
    monkeypatch.setattr(stale, "_environment", lambda _: {MARK_REPLICA: "m-r1-0", MARK_DATA: str(tmp_path)})
    found = {process.pid for process in find_marked(str(tmp_path))}
    assert found
    assert not found & {os.getpid(), *(parent.pid for parent in here.parents())}


def test_cannot_be_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sleepers: dict[str, subprocess.Popen[bytes]]
) -> None:
    """What does not end is named, since its cards and memory are not free."""
    monkeypatch.setattr(psutil.Process, "kill", lambda _: None)
    with pytest.raises(StaleProcessesRemain, match=rf"{sleepers['first'].pid} \(m-r1-0\)"):
        kill_marked(str(tmp_path), "m-r1-0", bound=0.1)
    assert "first" in running(sleepers)


LARGE = "import sys, time; held = bytearray(b'x') * (1 << 29); print(flush=True); time.sleep(600)"
"""A process whose memory takes the kernel a while to free."""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing tells a process that ends from one that is gone")
def test_one_that_is_ending_is_waited_for(tmp_path: Path) -> None:
    """Somebody else killed it: its marks are gone with its memory, and what it holds is not free before it is gone."""
    env = {MARK_REPLICA: "m-r1-0", MARK_DATA: str(tmp_path)}
    with subprocess.Popen([sys.executable, "-S", "-c", LARGE], env=env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
        kill_marked(str(tmp_path), "m-r1-0")
        assert not alive(process.pid)


def test_one_that_never_gets_through_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be a stranger's, so that a start goes on."""
    monkeypatch.setattr(stale, "is_ending", lambda pid: pid == os.getpid())
    assert kill_marked(str(tmp_path), bound=0.05) == []
    assert f"processes [{os.getpid()}] have been ending for 0.05 s" in caplog.text
