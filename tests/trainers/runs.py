"""Runs of a framework's training: forked by its nursery, told, killed, started again."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.support.trainer_runs import ROOT, wait_until
from tests.trainers.jobs.job import Job

BOUND = 120.0
"""Seconds that anything may take on a busy machine before a test fails."""


class Nursery:
    """The process that `tests.trainers.nursery` is."""

    def __init__(self, module: str, **environment: str) -> None:
        self._compiled = tempfile.TemporaryDirectory()  # so that JAX compiles a step once for all starts
        cache = {
            "JAX_COMPILATION_CACHE_DIR": self._compiled.name,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        quiet = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1", "JAX_PLATFORMS": "cpu"}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.trainers.nursery", f"tests.trainers.jobs.{module}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", **quiet, **cache, **environment},
        )

    def ask(self, **order: Any) -> Any:
        """One order, and its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """It kills what still runs."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(BOUND)
        self._compiled.cleanup()


@dataclass
class Run:
    """One training by `job.world` ranks, over as many starts as it takes."""

    nursery: Nursery
    job: Job
    channels: dict[str, str] = field(default_factory=dict)
    children: list[int] = field(default_factory=list)
    codes: dict[int, int] = field(default_factory=dict)
    leftovers: set[tuple[int, int]] = field(default_factory=set)

    @property
    def folder(self) -> Path:
        return Path(self.job.folder)

    def start(self, **changes: Any) -> None:
        """Fork all ranks. `changes` to the job are of this start alone."""
        self.folder.mkdir(exist_ok=True)
        self.notice.unlink(missing_ok=True)
        self.reports.unlink(missing_ok=True)
        job = replace(self.job, port=free_port(), **changes)
        environment = {"RELUME_NOTICE_FILE": str(self.notice), "RELUME_REPORT_FILE": str(self.reports), **self.channels}
        log = str(self.folder / "log.txt")
        self.codes = {}
        self.leftovers = self.partials()
        self.children = [
            self.nursery.ask(
                start=asdict(replace(job, rank=rank)), environment={**environment, **launched(job, rank)}, log=log
            )
            for rank in range(job.world)
        ]

    @property
    def notice(self) -> Path:
        return self.folder / "notice.json"

    @property
    def reports(self) -> Path:
        return self.folder / "reports.jsonl"

    def tell(self, **notice: object) -> None:
        """Put a notice where the trainer looks, whole."""
        partial = self.notice.with_suffix(".partial")
        partial.write_text(json.dumps(notice))
        partial.replace(self.notice)

    def signal(self, number: int, rank: int = 0) -> None:
        """Send it to a rank."""
        os.kill(self.children[rank], number)

    def heard(self, kind: str) -> list[dict[str, Any]]:
        """The reports of that kind in this start."""
        lines = self.reports.read_text().splitlines() if self.reports.exists() else []
        return [report for line in lines if (report := json.loads(line))["kind"] == kind]

    def wait_for_step(self, step: int) -> None:
        """Wait until all ranks have trained that step, or one has ended."""
        wait_until(lambda: self.trained() >= step or self.ended(), BOUND)
        assert self.trained() >= step, self.log()

    def wait_for_save(self) -> None:
        """Wait until a save is being written."""
        wait_until(lambda: bool(self.partials() - self.leftovers) or self.ended(), BOUND)
        assert not self.ended(), self.log()

    def partials(self) -> set[tuple[int, int]]:
        """Checkpoints that are not committed, told apart though inodes are used again."""
        return {(path.stat().st_ino, path.stat().st_ctime_ns) for path in self.job.checkpoints.glob("*.partial")}

    def ended(self) -> bool:
        """Whether a rank has ended."""
        for child in self.children:
            if child not in self.codes:
                code = self.nursery.ask(wait=child, seconds=0)
                if code is not None:
                    self.codes[child] = code
        return bool(self.codes)

    def wait(self) -> list[int]:
        """The exit codes of all ranks."""
        for child in self.children:
            if child not in self.codes:
                code = self.nursery.ask(wait=child, seconds=BOUND)
                assert code is not None, f"still running: {self.log()}"
                self.codes[child] = code
        return [self.codes[child] for child in self.children]

    def kill(self) -> None:
        """SIGKILL to all ranks."""
        for child in self.children:
            if child not in self.codes:
                os.kill(child, 9)
        self.wait()

    def lines(self, rank: int) -> list[str]:
        """One for each step trained, those done again included; a last one that is cut short is left out."""
        path = self.folder / f"losses-{rank}.txt"
        text = path.read_text() if path.exists() else ""
        return text[: text.rfind("\n") + 1].splitlines()

    def trained(self) -> int:
        """The last step that all ranks have trained in their newest start; -1 before the first."""
        last = [lines[-1].split()[0] if (lines := self.lines(rank)) else -1 for rank in range(self.job.world)]
        return min(map(int, last))

    def curve(self, rank: int) -> dict[int, set[str]]:
        """Of each step what the parameters ever were after it: more than one value would be another curve."""
        found: dict[int, set[str]] = {}
        for line in self.lines(rank):
            step, digest = line.split()
            found.setdefault(int(step), set()).add(digest)
        return found

    def curves(self) -> list[dict[int, set[str]]]:
        """By rank."""
        return [self.curve(rank) for rank in range(self.job.world)]

    def committed(self) -> int:
        """The step of the newest checkpoint that has its mark; 0 for none."""
        marks = self.job.checkpoints.glob("step-*/COMMITTED")
        return max((int(mark.parent.name.partition("-")[2]) for mark in marks), default=0)

    def log(self) -> str:
        """The end of what the ranks printed."""
        path = self.folder / "log.txt"
        return path.read_text()[-4000:] if path.exists() else "nothing was printed"


def launched(job: Job, rank: int) -> dict[str, str]:
    """What torchrun tells a rank; nothing for the only one."""
    if job.world == 1:
        return {}
    who = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "WORLD_SIZE": job.world, "LOCAL_WORLD_SIZE": job.world}
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(job.port), "TORCHELASTIC_RUN_ID": "test"}
    return {**{name: str(value) for name, value in who.items()}, **place}


def free_port() -> int:
    """A port on the loopback that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
