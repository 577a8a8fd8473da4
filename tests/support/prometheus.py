"""A real Prometheus on a free port, which scrapes one address of ours each second."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from tests.support.kafka_broker import free_port

_CONFIG = """
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
- job_name: engine
  static_configs: [{targets: ["127.0.0.1:%d"]}]
"""
READY = 30.0


def there() -> bool:
    """Whether it is installed."""
    return shutil.which("prometheus") is not None


@asynccontextmanager
async def prometheus(folder: Path, target: int) -> AsyncIterator[str]:
    """Its URL, once it answers; it scrapes `/metrics` of that port."""
    _write_config(folder, target)
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        "prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(READY), aiohttp.ClientSession() as session:
            while not await _ready(session, url):  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(0.1)
        yield url
    finally:
        process.terminate()
        await process.wait()


def _write_config(folder: Path, target: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prometheus.yml").write_text(_CONFIG % target, encoding="utf-8")


async def _ready(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(f"{url}/-/ready") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False
