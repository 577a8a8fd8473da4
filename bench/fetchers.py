"""Clients that weights are fetched beside: who is here, and one download by each, with its seconds and its CPU.

Clients for S3 read the same file from the same nginx: of a store that is public they ask nothing but unsigned reads of
``/BUCKET/KEY``. They are in nobody's dependencies: `RELUME_BENCH_CLIENTS` names a virtual environment that has them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.plain_fetch import REGION, bucket_and_key

ELSEWHERE = "RELUME_BENCH_CLIENTS"
"""The environment variable that names a virtual environment outside the tree, with some of these."""

Took = tuple[float, float]
"""Seconds by the clock, and of CPU."""


@dataclass(frozen=True)
class Fetcher:
    """A client. `lacks`: why it is not measured, or empty. `fetch(url, folder)`: one download."""

    name: str
    lacks: str
    fetch: Callable[[str, Path], Took]


def fetchers() -> list[Fetcher]:
    """All that are known, whether they are here or not."""
    home = Path(os.environ[ELSEWHERE]) if os.environ.get(ELSEWHERE) else None
    return [
        Fetcher("curl", "" if shutil.which("curl") else "curl is not installed", _curl),
        *(_library(name, name, home) for name in ("obstore", "huggingface_hub", "boto3", "awscrt")),
        _program("aws s3 cp", "aws", home, _aws),
        _program("s5cmd cp", "s5cmd", home, _s5cmd),
    ]


def _library(name: str, module: str, home: Path | None) -> Fetcher:
    """In this environment, else in the other one."""
    if importlib.util.find_spec(module) is not None:
        return Fetcher(name, "", partial(_by_library, name, sys.executable))
    python = None if home is None else home / "bin" / "python"
    if python is None or not python.exists():
        return Fetcher(name, _absent(module), partial(_by_library, name, sys.executable))
    asked = subprocess.run([str(python), "-c", f"import {module}"], capture_output=True, check=False)
    lacks = _absent(module) if asked.returncode else ""
    return Fetcher(name, lacks, partial(_by_library, name, str(python)))


def _program(name: str, command: str, home: Path | None, fetch: Callable[[str, str, Path], Took]) -> Fetcher:
    """Of the other environment only: one from elsewhere may be a wrapper that costs more than it does."""
    path = None if home is None else home / "bin" / command
    lacks = "" if path is not None and path.exists() else _absent(command)
    return Fetcher(name, lacks, partial(fetch, str(path)))


def _absent(what: str) -> str:
    return f"{what} is not in this environment, nor in one that {ELSEWHERE} names (see docs/benchmarks.md)"


def _by_library(name: str, python: str, url: str, folder: Path) -> Took:
    script = Path(__file__).with_name("plain_fetch.py")
    ran = subprocess.run([python, str(script), name, url, str(folder)], check=True, capture_output=True)
    told: dict[str, float] = json.loads(ran.stdout)
    return told["seconds"], told["cpu"]


def _curl(url: str, folder: Path) -> Took:
    return _whole(["curl", "-sf", "-o", str(folder), url], folder, {})


def _aws(program: str, url: str, folder: Path) -> Took:
    endpoint, bucket, key = bucket_and_key(url)
    command = [
        program, "s3", "cp", "--no-sign-request", "--only-show-errors", "--region", REGION,
        "--endpoint-url", endpoint, f"s3://{bucket}/{key}", str(folder),
    ]  # fmt: skip
    return _whole(command, folder, {"AWS_CONFIG_FILE": os.devnull, "AWS_EC2_METADATA_DISABLED": "true"})


def _s5cmd(program: str, url: str, folder: Path) -> Took:
    endpoint, bucket, key = bucket_and_key(url)
    command = [program, "--endpoint-url", endpoint, "--no-sign-request", "cp", f"s3://{bucket}/{key}", str(folder)]
    return _whole(command, folder, {"AWS_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true"})


def _whole(command: list[str], target: Path, more: dict[str, str]) -> Took:
    """A program, its start too."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **more})
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    target.unlink()
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
