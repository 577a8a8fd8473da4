"""The embedded model cold, over HTTP and from an S3-compatible store with 80 MiB/s a connection, and over HTTP with two
connections at most.

Is the start one pipeline: the slowest of network, disk and digest, and then the engine? Beside it stand, from the same
rounds, each of the three alone with the same file, the engine's load from weights in memory, and the sum of all. On a
machine whose cores are taken "alone" is the best of all rounds, and what a start's own stages took says more.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.util
import json
import mmap
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import load
from bench.figures import Effort, Figure, Target, median
from bench.relume_up import Relume, relume_up
from bench.unpacked import unpack
from coldstart.adapters.sources import source_for
from coldstart.core.cache.plan import spans
from coldstart.core.cache.policy import FetchPolicy
from coldstart.spec import WeightsSpec
from deploy.demo.model import cached_path
from events.clock import SystemClock
from tests.support import s3_store
from tests.support.limited_origins import Start, limited, newest_start

RATE: Final = "80m"
"""Bytes a second of each connection, as object stores were seen to cap them (field note on cold starts, §5)."""
GATE: Final = Target(1 / 0.85, of_ratio=True)
"""Design §11: start = max(network, disk, hash) + load, of which at least 85 % is reached."""
ENGINE: Final = ("load", "warmup", "answer")
LINK: Final = "link"
"""Two connections at most, 160 MiB/s together: the network is slowest also where cores are busy."""
STAGES: Final = ("network", "disk", "digest")
PIECE: Final = FetchPolicy().chunk_bytes
TOLD_WITHIN: Final = 60.0


@dataclass(frozen=True, slots=True)
class Alone:
    """Seconds of each with nothing beside it."""

    network: float
    disk: float
    digest: float

    @property
    def sum(self) -> float:
        """One after the other."""
        return self.network + self.disk + self.digest

    @property
    def slowest(self) -> float:
        """Of a pipeline of them."""
        return max(self.network, self.disk, self.digest)


async def run(effort: Effort) -> list[Figure]:
    """Seconds to the first byte, cold; and where they went."""
    missing = _missing()
    if missing:
        return [Figure("cold start of the embedded model", why=f"{' and '.join(missing)} are not here")]
    with load.scratch() as scratch:
        folder = Path(scratch)
        model = folder / "model.gguf"
        if effort.quick:
            shutil.copyfile(cached_path(), model)
        else:
            unpack(cached_path(), model)
        with limited(folder / "origins", model, RATE) as weights:
            os.environ["RELUME_TEST_S3"] = s3_store.CREDENTIALS
            places = {"HTTP": weights.http, "S3": weights.s3}
            if not effort.quick:
                places[LINK] = weights.link
            alone = {name: list[Alone]() for name in places}
            starts = {name: list[tuple[Start, Start]]() for name in places}
            for index in range(effort.rounds):
                for name, where in places.items():
                    connections = 2 if name == LINK else FetchPolicy().connections_most
                    alone[name].append(_alone(where, connections, model, folder / "alone"))
                for name, pair in (await _round(places, folder / f"round-{index}")).items():
                    starts[name].append(pair)
    return [figure for name in places for figure in _figures(name, starts[name], _best(alone[name]))]


def _best(rounds: list[Alone]) -> Alone:
    return Alone(*(min(getattr(one, stage) for one in rounds) for stage in STAGES))


def _missing() -> list[str]:
    needs = {
        "nginx": shutil.which("nginx"), "an S3-compatible store": s3_store.there(),
        "the small model": cached_path().is_file(), "xllamacpp": importlib.util.find_spec("xllamacpp"),
    }  # fmt: skip
    return [name for name, there in needs.items() if not there]


async def _round(places: dict[str, dict[str, str]], folder: Path) -> dict[str, tuple[Start, Start]]:
    """Each model cold with its weights far away, and once more with its weights in memory."""
    async with relume_up(folder, "---\n".join(_model(name.lower(), where) for name, where in places.items())) as relume:
        found = {}
        for name in places:
            cold = await _start(relume, name.lower(), None)
            await _until_zero(relume, name.lower())
            found[name] = cold, await _start(relume, name.lower(), cold)
            await _until_zero(relume, name.lower())
    shutil.rmtree(folder)
    return found


def _model(name: str, where: dict[str, str]) -> str:
    document = {
        "apiVersion": "relume.dev/v1alpha1", "kind": "Model", "metadata": {"name": name},
        "spec": {
            "engine": {"type": "llamacpp"}, "weights": where, "resources": {"cpu": 1, "memory": "2Gi"}, "slots": 1,
            "scaling": {"minReplicas": 0, "maxReplicas": 1, "keepAlive": "1s", "stableWindow": "4s",
                        "panicWindow": "1s"},
        },
    }  # fmt: skip
    return json.dumps(document) + "\n"


async def _start(relume: Relume, model: str, before: Start | None) -> Start:
    """The cold start that one request for a token meets."""
    asked = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
    async with relume.session.post(f"{relume.gateway}/v1/chat/completions", json=asked) as answer:
        answer.raise_for_status()
        await answer.read()
    async with asyncio.timeout(TOLD_WITHIN):
        while True:
            with contextlib.suppress(LookupError):
                start = await newest_start(relume.session, relume.admin, model)
                if before is None or start.arrived > before.arrived:
                    return start
            await asyncio.sleep(0.05)


async def _until_zero(relume: Relume, model: str) -> None:
    async with asyncio.timeout(TOLD_WITHIN):
        while True:
            async with relume.session.get(f"{relume.admin}/models/{model}") as answer:
                if (await answer.json())["status"]["state"] == "Zero":
                    return
            await asyncio.sleep(0.05)


def _alone(where: dict[str, str], connections: int, model: Path, folder: Path) -> Alone:
    folder.mkdir()
    try:
        return Alone(
            _timed(lambda: _read(where, connections)), _timed(lambda: _write(model, folder / "w")), _digest(model)
        )
    finally:
        shutil.rmtree(folder)


def _timed(work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _read(where: dict[str, str], connections: int) -> None:
    """So many connections, each reading one chunk after the other to nowhere."""
    policy = FetchPolicy()
    source = source_for(WeightsSpec.model_validate(where).resolve(), policy, SystemClock())
    file = source.describe().files[0]
    chunks = deque(spans(file.bytes, policy.chunk_bytes))
    failed: list[Exception] = []

    def reader() -> None:
        buffer, channel = memoryview(mmap.mmap(-1, policy.chunk_bytes)), source.connect()
        try:
            while True:
                span = chunks.popleft()
                channel.read(span, file, buffer[: span.length])
        except IndexError:
            return  # all are read
        except Exception as error:  # noqa: BLE001 - told below
            failed.append(error)
        finally:
            channel.close()

    readers = [threading.Thread(target=reader) for _ in range(connections)]
    for thread in readers:
        thread.start()
    for thread in readers:
        thread.join()
    if failed:
        raise failed[0]


def _write(model: Path, target: Path) -> None:
    """From memory to a file that was given its length before, as a fetch does."""
    size = model.stat().st_size
    piece = memoryview(os.urandom(PIECE))
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
        for at in range(0, size, PIECE):
            os.pwrite(descriptor, piece[: min(PIECE, size - at)], at)
    finally:
        os.close(descriptor)


def _digest(model: Path) -> float:
    """SHA-256 of as many bytes in memory."""
    piece, whole = os.urandom(PIECE), hashlib.sha256()
    began = time.monotonic()
    for _ in range(0, model.stat().st_size, PIECE):
        whole.update(piece)
    return time.monotonic() - began


def _figures(name: str, pairs: list[tuple[Start, Start]], alone: Alone) -> list[Figure]:
    cold, warm = min((pair[0] for pair in pairs), key=_seconds), min((pair[1] for pair in pairs), key=_seconds)
    engine, spawn = sum(warm.parts.get(part, 0.0) for part in ENGINE), warm.parts.get("spawn", 0.0)
    seconds = [pair[0].seconds for pair in pairs]
    early = next((ended - began for phase, began, ended in cold.spans if phase == "spawn"), 0.0)
    own = sum(cold.parts.get(part, 0.0) for part in ("hold", *ENGINE))
    said = {stage: getattr(alone, stage) for stage in STAGES}
    rest = {part: cold.parts.get(part, 0.0) for part in ("hold", "fetch", "read", "spawn", *ENGINE)}
    return [
        Figure(f"{name}: cold to first byte, best", "s", cold.seconds,
               "slowest of network, disk, digest alone, then load and answer", alone.slowest + engine, GATE,
               min(seconds), max(seconds)),
        Figure(f"{name}: the same", "s", cold.seconds, "network, disk, digest, spawn, load and answer in turn",
               alone.sum + spawn + engine),
        Figure(f"{name}: the same", "s", cold.seconds, "the slowest of its own stages, then load and answer",
               max(cold.times[stage] for stage in STAGES) + own, GATE),
        Figure(f"{name}: the same", "s", cold.seconds, "its own stages, spawn, load and answer in turn",
               sum(cold.times[stage] for stage in STAGES) + early + own),
        Figure(f"{name}: weights in memory to first byte", "s", median([pair[1].seconds for pair in pairs])),
        *(
            Figure(f"{name}: stage {stage} at work", "s", cold.times[stage], "alone", said[stage])
            for stage in STAGES
        ),
        Figure(f"{name}: before the first byte was asked for", "ms", 1e3 * cold.times["prepare"]),
        Figure(f"{name}: from the last digest to usable", "ms", 1e3 * cold.times["publish"]),
        Figure(f"{name}: spawn beside the fetch", "s", early, "with weights in memory", spawn),
        *(
            Figure(f"{name}: waited for {part}{' after it' if part == 'spawn' else ''}", "s", seconds_)
            for part, seconds_ in rest.items() if seconds_ > 0
        ),
    ]  # fmt: skip


def _seconds(start: Start) -> float:
    return start.seconds
