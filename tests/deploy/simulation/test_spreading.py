"""Work over processes: what comes of it, and that none of them outlives who asked."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from deploy.simulation.spreading import ProcessDied, spread
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]

MINUTES, MODELS = 1000, 24


def squared(number: int) -> int:
    """Something to do."""
    sys.stdout.write("words of whoever works\n")
    return number * number


def broken(number: int) -> int:
    """Something that fails."""
    if number == 3:
        raise ValueError("three is broken")
    return number


def ended(number: int) -> int:
    """A process that goes without a word."""
    if number == 3:
        os._exit(7)
    return number


def test_each_task_is_done_once(capfd: pytest.CaptureFixture[str]) -> None:
    """In any order, with its place; what is printed there is on standard error."""
    with spread(squared, range(9), 3) as done:
        assert sorted(done) == [(at, at * at) for at in range(9)]
    out, err = capfd.readouterr()
    assert (out, err.count("words of whoever works")) == ("", 9)


def test_what_fails_is_raised_here() -> None:
    """With its own type; the others are ended."""
    with pytest.raises(ValueError, match="three is broken"), spread(broken, range(9), 2) as done:
        list(done)
    children = psutil.Process().children(recursive=True)
    assert not [one for one in children if "spawn_main" in " ".join(one.cmdline())]


def test_a_process_that_is_ended_is_said() -> None:
    """For its memory, for instance. Nothing waits for its answer."""
    with pytest.raises(ProcessDied), spread(ended, range(9), 2) as done:
        list(done)


def trace(folder: Path) -> None:
    """`t.csv`: enough decisions to be worth processes."""
    head, row = ",".join(f"m{at + 1}" for at in range(MINUTES)), ",".join(["1"] * MINUTES)
    rows = "".join(f"a{at},100,{row}\n" for at in range(MODELS))
    (folder / "t.csv").write_text(f"HashApp,AverageMemUsage_MB,{head}\n{rows}", encoding="utf-8")


@contextmanager
def in_the_middle(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[psutil.Process]]]:
    """A `relume simulate` whose processes are in a policy that does not return."""
    trace(folder)
    (folder / "endless.py").write_text(
        "import os, pathlib\n\n\ndef hold(past):\n    pathlib.Path(f'in-{os.getpid()}').touch()\n"
        "    while True:\n        pass\n",
        encoding="utf-8",
    )
    running = subprocess.Popen(
        [sys.executable, "-m", "deploy.cli.main", "simulate", "--trace", "t.csv", "--format", "femux", "--policy",
         "endless:hold", "--jobs", "3", "-o", "json"],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    children: list[psutil.Process] = []
    try:
        asyncio.run(until(lambda: len(list(folder.glob("in-*"))) == 3 or running.poll() is not None, within=60.0))
        children = psutil.Process(running.pid).children(recursive=True)
        yield running, children
    finally:
        running.kill()
        running.communicate()
        for child in children:
            if child.is_running():
                child.kill()


@pytest.mark.parametrize(
    ("sign", "to_all", "code"),
    [
        (signal.SIGINT, True, 130),
        (signal.SIGINT, False, 130),
        (signal.SIGTERM, False, -15),
        (signal.SIGKILL, False, -9),
    ],
)
def test_nothing_outlives_the_command(tmp_path: Path, sign: int, to_all: bool, code: int) -> None:
    """Ctrl-C reaches all processes of a terminal; a signal or the kernel's killer only one. Nobody says a word."""
    with in_the_middle(tmp_path) as (running, children):
        assert len(children) >= 3
        (os.killpg if to_all else os.kill)(running.pid, sign)
        out, err = running.communicate(timeout=30)
        assert (running.returncode, out, err.strip()) == (code, b"", b"")
        assert not psutil.wait_procs(children, timeout=30)[1]


def test_one_that_is_killed_ends_the_command(tmp_path: Path) -> None:
    """As the kernel does when memory is short: said, with what helps, and the others are ended too."""
    with in_the_middle(tmp_path) as (running, children):
        next(one for one in children if (tmp_path / f"in-{one.pid}").exists()).kill()
        out, err = running.communicate(timeout=30)
        assert (running.returncode, out) == (1, b"")
        assert b"a process of the replay was ended" in err
        assert b"fewer --jobs" in err
        assert not psutil.wait_procs(children, timeout=30)[1]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_what_a_policy_prints_is_no_answer(tmp_path: Path, jobs: str) -> None:
    """Standard output has the JSON alone, in one process and in several."""
    trace(tmp_path)
    (tmp_path / "wordy.py").write_text(
        "print('imported')\n\n\ndef hold(past):\n    if len(past) == 9:\n        print('asked')\n    return 1\n",
        encoding="utf-8",
    )
    ran = subprocess.run(
        [sys.executable, "-m", "deploy.cli.main", "simulate", "--trace", "t.csv", "--format", "femux", "--policy",
         "wordy:hold", "--jobs", jobs, "-o", "json"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, json.loads(ran.stdout)["policies"]["wordy:hold"]["coldStarts"]) == (0, 0)
    assert ran.stderr.count(b"asked") == MODELS
