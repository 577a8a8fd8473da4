"""One file behind nginx, and in a real S3-compatible store behind it: each connection limited, as stores limit them."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.support.kafka_broker import free_port
from tests.support.s3_store import READY_WITHIN, store_in

BUCKET, KEY = "models", "one/model.gguf"
_CONF: Final = """daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off; sendfile on; limit_rate {rate}; client_body_temp_path {folder}; proxy_temp_path {folder};
  fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder}; keepalive_requests 100000;
  limit_conn_zone $server_port zone=all:1m;
  server {{ listen 127.0.0.1:{http}; root {folder}/www; }}
  server {{ listen 127.0.0.1:{link}; root {folder}/www; limit_conn all 2; limit_conn_status 503; }}
  server {{ listen 127.0.0.1:{s3};
    location / {{ proxy_pass http://127.0.0.1:{store}; proxy_http_version 1.1; proxy_set_header Host $http_host;
      proxy_set_header Connection ""; proxy_max_temp_file_size 0; proxy_buffers 16 64k; }} }}
}}
"""


@dataclass(frozen=True, slots=True)
class Limited:
    """Where the file is: the `weights` of a declaration, by kind of source. Who reads them from S3 has the store's
    credentials in the environment variable RELUME_TEST_S3 (`s3_store.CREDENTIALS`)."""

    http: dict[str, str]
    s3: dict[str, str]
    link: dict[str, str]
    """Over HTTP, two connections at a time: twice the rate is all that can be had."""


@contextlib.contextmanager
def limited(folder: Path, model: Path, rate: str) -> Iterator[Limited]:
    """Serve the file with so many bytes a second a connection, as nginx writes them: ``80m``."""
    http, s3, link = free_port(), free_port(), free_port()
    (folder / "www").mkdir(parents=True)
    (folder / "www" / "model.gguf").hardlink_to(model)
    with store_in(folder / "s3") as store:
        store.put(BUCKET, KEY, model.read_bytes())
        conf = folder / "nginx.conf"
        ports = {"http": http, "s3": s3, "link": link, "store": store.port}
        conf.write_text(_CONF.format(folder=folder, rate=rate, **ports), encoding="utf-8")
        process = subprocess.Popen(["nginx", "-c", str(conf)], stderr=subprocess.DEVNULL)
        try:
            _wait(process, http)
            yield Limited(
                http={"uri": f"http://127.0.0.1:{http}/model.gguf"},
                link={"uri": f"http://127.0.0.1:{link}/model.gguf"},
                s3={
                    "uri": f"s3://{BUCKET}/{KEY}", "credentials": "env:RELUME_TEST_S3", "region": "us-east-1",
                    "endpoint": f"http://127.0.0.1:{s3}",
                },
            )  # fmt: skip
        finally:
            process.terminate()
            process.wait(20)


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + READY_WITHIN  # noqa: TID251 - the time of a real process
    while time.monotonic() < deadline and process.poll() is None:  # noqa: TID251 - as above
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise AssertionError("nginx did not take connections")


@dataclass(frozen=True, slots=True)
class Start:
    """One cold start, as events tell of it. Seconds and instants."""

    arrived: float
    first_byte: float
    parts: dict[str, float]
    """What the request waited for, by phase."""
    spans: tuple[tuple[str, float, float], ...]
    """Phases of the replica, with their beginning and end; they may overlap."""
    times: dict[str, float]
    """Stages of the fetch; empty where nothing was fetched."""

    @property
    def seconds(self) -> float:
        """Arrival to first byte."""
        return self.first_byte - self.arrived

    def span(self, phase: str) -> tuple[float, float]:
        """The first span of that phase."""
        return next((began, ended) for name, began, ended in self.spans if name == phase)


async def newest_start(session: aiohttp.ClientSession, admin: str, model: str) -> Start:
    """The newest cold start of a model that the log tells of, and its fetch. LookupError: none is told yet."""
    finished = [one for one in await _events(session, admin, "relume.phases") if one.get("model") == model]
    starts = [one for one in finished if "firstByteAt" in one]
    if not starts:
        raise LookupError(f"no cold start of {model} is told yet")
    start = starts[-1]
    spans: tuple[tuple[str, float, float], ...] = ()
    for state in await _events(session, admin, "relume.replicas"):
        for replica in state.get("replicas", []):
            if replica["replica"] == start["replica"] and replica.get("readyAt"):
                spans = tuple((one["phase"], one["startedAt"], one["endedAt"]) for one in replica["phases"])
    fetches = [one for one in await _events(session, admin, "relume.phases") if model in one.get("models", [])]
    times = [one["times"] for one in fetches if one.get("times")]
    fetched = start["tier"] == "remote" and times
    return Start(start["arrivedAt"], start["firstByteAt"], start["phases"], spans, times[-1] if fetched else {})


async def _events(session: aiohttp.ClientSession, admin: str, topic: str) -> list[dict[str, Any]]:
    """The data of all events of a topic."""
    async with session.get(f"{admin}/events", params={"topic": topic, "from": "beginning"}) as answer:
        answer.raise_for_status()
        return [json.loads(line)["data"] for line in (await answer.text()).splitlines()]
