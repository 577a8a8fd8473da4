"""OpenAI's own client against a relume of a test, the real small model's declaration, and what reached the gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import openai

from deploy.demo.model import cached_path
from tests.support.running import Running, running

HELLO: list[Any] = [{"role": "user", "content": "Say hello."}]
"""The messages of a chat that is about nothing."""

ACCESS_LOG = "access.jsonl"

Result = TypeVar("Result")


@asynccontextmanager
async def logged(folder: Path, documents: str, *arguments: str) -> AsyncIterator[Running]:
    """A relume as `running` gives it, whose access log `reached` can read."""
    async with running(folder, documents, "--access-log", str(folder / ACCESS_LOG), *arguments) as relume:
        yield relume


def asynchronous(relume: Running, **options: Any) -> openai.AsyncOpenAI:
    """The asynchronous client; a context manager."""
    return openai.AsyncOpenAI(**_options(relume, options))


async def synchronously(relume: Running, use: Callable[[openai.OpenAI], Result], **options: Any) -> Result:
    """What `use` returns, given the synchronous client in a thread of its own."""

    def run() -> Result:
        with openai.OpenAI(**_options(relume, options)) as client:
            return use(client)

    return await asyncio.to_thread(run)


def _options(relume: Running, options: Mapping[str, Any]) -> dict[str, Any]:
    return {"base_url": f"{relume.gateway}/v1", "api_key": "tests", "timeout": 100} | dict(options)


def levels(running: int, held: int) -> Callable[[dict[str, Any]], bool]:
    """For `Running.until`: so many requests run, and so many wait."""
    return lambda status: (status["runningRequests"], status["heldRequests"]) == (running, held)


def access_lines(relume: Running) -> list[dict[str, Any]]:
    """The whole lines of the access log so far: one for each request that has ended."""
    text = (relume.folder / ACCESS_LOG).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


async def reached(relume: Running, count: int, **wanted: object) -> list[dict[str, Any]]:
    """The lines of the access log with these values, once there are `count`; more or fewer fail the test."""
    lines: list[dict[str, Any]] = []
    for _ in range(100):
        lines = [line for line in access_lines(relume) if all(line[key] == value for key, value in wanted.items())]
        if len(lines) >= count:
            break
        await asyncio.sleep(0.05)
    assert len(lines) == count, f"{len(lines)} requests with {wanted} reached the gateway, not {count}: {lines}"
    return lines


def llamacpp(name: str = "smollm2", *, options: str = "", slots: int = 2, extra: str = "") -> str:
    """A Model document of the real small model: at most one replica, kept for a minute."""
    return f"""apiVersion: relume.dev/v1alpha1
kind: Model
metadata: {{name: {name}}}
spec:
  engine: {{type: llamacpp, options: {{{options}}}}}
  weights: {{uri: {json.dumps(str(cached_path()))}}}
  resources: {{cpu: 0.2, memory: 512Mi}}
  slots: {slots}
  scaling: {{minReplicas: 0, maxReplicas: 1, keepAlive: 60s}}
{extra}
"""


def command(name: str, *flags: str, extra: str = "") -> str:
    """A Model document of a command: the simulated engine, started as a user would start any server."""
    module = ["{python}", "-m", "runtime.engines.simulated_server", "--host", "{host}", "--port", "{port}"]
    argv = [*module, "--model", "{model}", "--max-num-seqs", "{slots}", "--instance", "{replica}", *flags]
    return f"""apiVersion: relume.dev/v1alpha1
kind: Model
metadata: {{name: {name}}}
spec:
  engine: {{type: command, options: {{command: {json.dumps(argv)}, busyPath: /running, metricsPath: /metrics}}}}
  resources: {{cpu: 0.1, memory: 64Mi}}
  slots: 4
  scaling: {{minReplicas: 0, maxReplicas: 2, keepAlive: 5s}}
{extra}
"""


def together(*documents: str) -> str:
    """Several documents in one file."""
    return "---\n".join(documents)


async def addresses_of(relume: Running, model: str) -> list[str]:
    """Where the model's replicas listen, as far as they do."""
    async with relume.session.get(f"{relume.admin}/replicas", params={"model": model}) as answer:
        answer.raise_for_status()
        items = (await answer.json())["items"]
    return [item["status"]["address"] for item in items if item["status"]["address"]]


async def stats_of(relume: Running, model: str, ids: int = 0) -> list[dict[str, Any]]:
    """What the model's simulated engines counted, with the last `ids` ids of requests in the order they came in."""
    found = []
    for address in await addresses_of(relume, model):
        async with relume.session.get(f"http://{address}/stats", params={"ids": ids}) as answer:
            answer.raise_for_status()
            found.append(await answer.json())
    return found
