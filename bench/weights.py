"""Weights fetched and verified, beside curl, obstore, huggingface_hub and sha256 alone, from the same nginx in turn."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.util
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
from bench.figures import Effort, Figure, Target, median, percentile
from bench.peers.process import free_port
from coldstart.adapters.sources import source_of
from coldstart.cache.wanting import Progress, Wanted
from coldstart.cache.weights import WeightCache
from coldstart.core.cache.policy import FetchPolicy, RoomPolicy
from events.clock import SystemClock

GIB = 1 << 30
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
    libraries: dict[str, list[dict[str, float]]] = {name: [] for name in LIBRARIES if _installed(name)}
    curls: list[tuple[float, float]] = []
    hashes: list[tuple[float, float]] = []
    with load.scratch() as scratch:
        folder = Path(scratch)
        async with _nginx(folder, size) as url:
            digest = _hash(folder / "www" / "model", hashes)
            for index in range(effort.rounds):
                curls.append(_curl(url, folder / "curl"))
                ours.append(_child(url, folder / f"cache-{index}"))
                for name, told in libraries.items():
                    told.append(_child(url, folder / name, name))
                _hash(folder / "www" / "model", hashes)
            hits = _hits(url, folder / "cache-0", digest, effort.size(200, 5))
    share, cpu = GIB / size, median([one["cpu"] for one in ours])
    slowest = max(min(curl[0] for curl in curls), min(one[0] for one in hashes))
    return [
        Figure("fetched and verified, best", "s/GiB", min(one["seconds"] for one in ours) * share,
               "slowest of curl to a file, sha256", slowest * share, GATE),
        Figure("fetched and verified, CPU", "s/GiB", cpu * share,
               "curl to a file, then sha256", _cpu(curls, hashes) * share),
        *(
            Figure(f"fetched and verified, CPU (beside {name})", "s/GiB", cpu * share, f"{name} to a file, then sha256",
                   (median([one["cpu"] for one in told]) + median([one[1] for one in hashes])) * share)
            for name, told in libraries.items()
        ),
        Figure("last byte to usable", "ms", median([one["ready"] for one in ours]) * 1e3, target=READY),
        Figure("hit by digest, p50", "ms", percentile(hits, 0.5) * 1e3, target=HIT),
        Figure("peak memory of the fetch beyond the interpreter", "MiB", max(one["memory"] for one in ours)),
    ]  # fmt: skip


@contextlib.asynccontextmanager
async def _nginx(folder: Path, size: int) -> AsyncIterator[str]:
    """It serves one file of random bytes with sendfile."""
    port = free_port()
    (folder / "www").mkdir()
    with (folder / "www" / "model").open("wb") as file:
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
        yield f"http://127.0.0.1:{port}/model"
    finally:
        process.terminate()
        await process.wait()


def _curl(url: str, target: Path) -> tuple[float, float]:
    """(wall, CPU) seconds of a plain download to a file."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(["curl", "-sf", "-o", str(target), url], check=True)
    wall, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    target.unlink()
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _cpu(curls: list[tuple[float, float]], hashes: list[tuple[float, float]]) -> float:
    """What the same takes with plain tools."""
    return median([curl[1] for curl in curls]) + median([one[1] for one in hashes])


def _hash(path: Path, seconds: list[tuple[float, float]]) -> str:
    """The digest; (wall, CPU) seconds are appended."""
    began, cpu = time.monotonic(), time.process_time()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    seconds.append((time.monotonic() - began, time.process_time() - cpu))
    return f"sha256:{digest}"


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _child(url: str, folder: Path, how: str = "relume") -> dict[str, float]:
    """One fetch in a process of its own, so that CPU and memory are its alone."""
    command = [sys.executable, "-m", "bench.weights", url, str(folder), how]
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


def _plain_obstore(url: str, target: Path) -> None:
    from obstore.store import HTTPStore  # noqa: PLC0415 - an extra

    base, _, name = url.rpartition("/")
    store = HTTPStore.from_url(base, client_options={"allow_http": True, "timeout": "600s"})
    with target.open("wb") as file:
        for piece in store.get(name).stream(min_chunk_size=1 << 20):
            file.write(piece)


def _plain_hub(url: str, target: Path) -> None:
    from huggingface_hub.file_download import http_get  # noqa: PLC0415 - an extra

    with target.open("wb") as file:
        http_get(url, file)


LIBRARIES = {"obstore": _plain_obstore, "huggingface_hub": _plain_hub}
"""A plain download to a file by each; neither takes a digest of it."""


def _library_once(url: str, folder: Path, name: str) -> None:
    folder.mkdir(exist_ok=True)
    LIBRARIES[name](url, folder / "warm")  # what importing and connecting takes is not the download's
    cpu, began = time.process_time(), time.monotonic()
    LIBRARIES[name](url, folder / "model")
    print(json.dumps({"seconds": time.monotonic() - began, "cpu": time.process_time() - cpu}))
    shutil.rmtree(folder)


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
    if sys.argv[3] == "relume":
        _fetch_once(sys.argv[1], Path(sys.argv[2]))
    else:
        _library_once(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
