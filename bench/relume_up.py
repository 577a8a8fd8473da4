"""A real `relume up` in a process of its own: desk, meter, events on SQLite, autoscaler, allocator, admin port."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from bench import machine
from bench.load import ROOT
from deploy.demo.server import Server


def model(name: str = "bench", *, slots: int = 512, able_after: float = 0.0, **scaling: object) -> str:
    """A Model document: the make-believe engine of `bench.upstream` as a `command` model, from zero."""
    command = ["{python}", "-m", "bench.upstream", "--port", "{port}", "--able-after", str(able_after)]
    numbers = {"minReplicas": 0, "maxReplicas": 1, "keepAlive": "10m"} | scaling
    document = {
        "apiVersion": "relume.dev/v1alpha1", "kind": "Model", "metadata": {"name": name},
        "spec": {
            "engine": {"type": "command", "options": {"command": command, "env": {"PYTHONPATH": str(ROOT)}}},
            "resources": {"cpu": 0.01, "memory": "64Mi"}, "slots": slots, "scaling": numbers,
            "coldStart": {"hold": {"maxRequests": 20000, "maxBytes": "512Mi", "maxWait": "5m"}},
        },
    }  # fmt: skip
    return json.dumps(document)  # JSON is YAML


class Relume:
    """A running relume. A `Proxy`; CPU and memory are those of its one process, without its replicas."""

    def __init__(self, name: str, where: dict[str, Any], session: aiohttp.ClientSession) -> None:
        self.name = name
        self.pid: int = where["pid"]
        gateway = urlsplit(where["gateway"])
        assert gateway.hostname is not None
        assert gateway.port is not None
        self.address = (gateway.hostname, gateway.port)
        self.gateway = where["gateway"]
        self.admin = f"{where['admin']}/v1alpha1"
        self.session = session

    def cpu_seconds(self) -> float:
        """CPU that it has used."""
        return machine.cpu_seconds(self.pid)

    async def wake(self, name: str = "bench") -> tuple[str, int]:
        """Ask the model once; the address of its replica."""
        asked = {"model": name, "messages": [{"role": "user", "content": "hello"}]}
        async with self.session.post(f"{self.gateway}/v1/chat/completions", json=asked) as answer:
            answer.raise_for_status()
            await answer.read()
        return await self.replica(name)

    async def replica(self, name: str) -> tuple[str, int]:
        """Where the replica of a model listens. Raises LookupError."""
        async with self.session.get(f"{self.admin}/replicas") as answer:
            for item in (await answer.json())["items"]:
                if item["spec"]["model"] == name:
                    host, _, port = item["status"]["address"].rpartition(":")
                    return host, int(port)
        raise LookupError(f"no replica of {name}")

    async def delete(self, name: str) -> None:
        """Delete a model."""
        async with self.session.delete(f"{self.admin}/models/{name}") as answer:
            answer.raise_for_status()

    async def apply(self, text: str) -> None:
        """Apply a document."""
        headers = {"Content-Type": "application/yaml"}
        async with self.session.post(f"{self.admin}/models", data=text.encode(), headers=headers) as answer:
            answer.raise_for_status()


@asynccontextmanager
async def relume_up(
    folder: Path, documents: str, name: str = "relume", access_log: str = "", more: tuple[str, ...] = ()
) -> AsyncIterator[Relume]:
    """A relume with these models, and nothing left of it afterwards. `access_log`: a path, or empty for none; `more`:
    further arguments of `relume up`."""
    written = str(_written(folder, documents))
    server = Server(folder, ("-f", written, "--access-log", access_log, "--drain-bound", "1s", *more))
    await server.start()
    try:
        where = json.loads((folder / "data" / "endpoints.json").read_text(encoding="utf-8"))
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=300)) as session:
            yield Relume(name, where, session)
    finally:
        await server.stop()


def _written(folder: Path, documents: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / "models.yaml"
    manifest.write_text(documents, encoding="utf-8")
    return manifest
