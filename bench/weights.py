"""Weights fetched and verified beside other clients (`bench.fetchers`) and sha256, from the same nginx in turn."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

from bench import load
from bench.fetchers import Fetcher, Took, fetchers
from bench.figures import Effort, Figure, Target, median, percentile
from bench.peers.process import free_port
from coldstart.adapters.sources import source_of
from coldstart.cache.wanting import Progress, Wanted
from coldstart.cache.weights import WeightCache
from coldstart.core.cache.policy import FetchPolicy, RoomPolicy
from events.clock import SystemClock

GIB = 1 << 30
BUCKET = "weights"
"""The folder that clients for S3 take for a bucket."""
GATE = Target(1 / 0.85, of_ratio=True)
"""Design §11: at least 85 % of the slowest of network, disk and hash."""
HIT = Target(5.0)
READY = Target(50.0)
"""Milliseconds, design §11."""

_CONF = """daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off; sendfile on; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{ listen 127.0.0.1:{port}; root {folder}/www; }}
}}
"""


async def run(effort: Effort) -> list[Figure]:
    """Seconds and CPU seconds a GiB; milliseconds of a hit, and from the last byte to usable."""
    missing = [name for name in ("nginx", "curl") if shutil.which(name) is None]
    if missing:
        return [Figure("weights fetched and verified", why=f"{' and '.join(missing)} are not installed")]
    size = effort.size(256 << 20, 8 << 20)
    ours: list[dict[str, float]] = []
    others = fetchers()
    took: dict[str, list[Took]] = {other.name: [] for other in others if not other.lacks}
    hashes: list[Took] = []
    with load.scratch() as scratch:
        folder = Path(scratch)
        async with _nginx(folder, size) as url:
            content = folder / "www" / BUCKET / "model"
            digest = _hash(content, hashes)
            for index in range(effort.rounds):
                ours.append(_child(url, folder / f"cache-{index}"))
                for other in others:
                    if not other.lacks:
                        took[other.name].append(other.fetch(url, folder / "got"))
                _hash(content, hashes)
            hits = _hits(url, folder / "cache-0", digest, effort.size(200, 5))
    best = min(one["seconds"] for one in ours) * GIB / size
    slowest = max(min(one[0] for one in took["curl"]), min(one[0] for one in hashes)) * GIB / size
    return [
        Figure("fetched and verified, best", "s/GiB", best, "slowest of curl to a file, sha256", slowest, GATE),
        *(figure for other in others for figure in _beside(other, ours, took.get(other.name, []), hashes, size)),
        Figure("last byte to usable", "ms", median([one["ready"] for one in ours]) * 1e3, target=READY),
        Figure("hit by digest, p50", "ms", percentile(hits, 0.5) * 1e3, target=HIT),
        Figure("peak memory of the fetch beyond the interpreter", "MiB", max(one["memory"] for one in ours)),
    ]


def _beside(
    other: Fetcher, ours: list[dict[str, float]], took: list[Took], hashes: list[Took], size: int
) -> list[Figure]:  # fmt: skip
    """Clock and CPU beside a client that downloads to a file, with what a digest of that file takes."""
    if not took:
        return [Figure("fetched and verified", "s/GiB", yardstick=other.name, why=other.lacks)]
    yardstick = f"{other.name} to a file, then sha256"
    return [
        Figure(name, "s/GiB", median([one[key] for one in ours]) * GIB / size, yardstick,
               (median([one[at] for one in took]) + median([one[at] for one in hashes])) * GIB / size)
        for at, key, name in ((0, "seconds", "fetched and verified"), (1, "cpu", "fetched and verified, CPU"))
    ]  # fmt: skip


@contextlib.asynccontextmanager
async def _nginx(folder: Path, size: int) -> AsyncIterator[str]:
    """It serves one file of random bytes with sendfile."""
    port = free_port()
    (folder / "www" / BUCKET).mkdir(parents=True)
    with (folder / "www" / BUCKET / "model").open("wb") as file:
        for _ in range(0, size, 1 << 20):
            file.write(os.urandom(1 << 20))
    conf = folder / "nginx.conf"
    conf.write_text(_CONF.format(folder=folder, port=port))
    process = await asyncio.create_subprocess_exec("nginx", "-c", str(conf), stderr=asyncio.subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.02)
        yield f"http://127.0.0.1:{port}/{BUCKET}/model"
    finally:
        process.terminate()
        await process.wait()


def _hash(path: Path, seconds: list[Took]) -> str:
    """The digest; (wall, CPU) seconds are appended."""
    began, cpu = time.monotonic(), time.process_time()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    seconds.append((time.monotonic() - began, time.process_time() - cpu))
    return f"sha256:{digest}"


def _child(url: str, folder: Path) -> dict[str, float]:
    """One fetch in a process of its own, so that CPU and memory are its alone."""
    command = [sys.executable, "-m", "bench.weights", url, str(folder)]
    ran = subprocess.run(command, check=True, capture_output=True)
    told: dict[str, float] = json.loads(ran.stdout)
    return told


class _Last(Progress):
    """When the last chunk was verified."""

    at = 0.0

    def verified(self, more: int) -> None:  # noqa: ARG002 - whose signature this is
        self.at = time.monotonic()


def _weights(folder: Path) -> WeightCache:
    return WeightCache(folder, FetchPolicy(), RoomPolicy(), SystemClock())


def _fetch_once(url: str, folder: Path) -> None:
    last, weights, clock = _Last(), _weights(folder), SystemClock()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cpu, began = time.process_time(), time.monotonic()
    got = weights.fetch(Wanted(url), source_of(url, {}, FetchPolicy(), clock), last)
    ended = time.monotonic()
    got.use.end()
    print(json.dumps({
        "seconds": ended - began, "cpu": time.process_time() - cpu, "ready": ended - last.at,
        "memory": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024,
    }))  # fmt: skip


def _hits(url: str, folder: Path, digest: str, count: int) -> list[float]:
    weights, source = _weights(folder), source_of(url, {}, FetchPolicy(), SystemClock())
    seconds = []
    for _ in range(count):
        began = time.monotonic()
        got = weights.hit(Wanted(url, digest), source)
        seconds.append(time.monotonic() - began)
        assert got is not None, "fetched just before"
        got.use.end()
    return seconds


if __name__ == "__main__":
    _fetch_once(sys.argv[1], Path(sys.argv[2]))
