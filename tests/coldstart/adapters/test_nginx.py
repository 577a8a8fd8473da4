"""A real HTTP server whose connections are capped, as those of object stores are."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coldstart.adapters.sources import source_for
from coldstart.cache.wanting import Got, Progress, Wanted
from coldstart.cache.weights import WeightCache
from coldstart.core.cache.policy import FetchPolicy, RoomPolicy
from events.clock import SystemClock
from tests.coldstart.adapters.conftest import made
from tests.support.kafka_broker import free_port

pytestmark = pytest.mark.needs("nginx")

CAP = 2 << 20
CONF = """daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log; events {{ }}
http {{ access_log {folder}/access.log; client_body_temp_path {folder}; proxy_temp_path {folder};
  fastcgi_temp_path {folder}; uwsgi_temp_path {folder}; scgi_temp_path {folder};
  limit_conn_zone $server_port zone=all:1m;
  server {{ listen 127.0.0.1:{port}; root {folder}/www;
    location /capped/ {{ alias {folder}/www/; limit_rate {cap}; }}
    location /few/ {{ alias {folder}/www/; limit_conn all 3; limit_conn_status 503; }} }} }}
"""
CONTENT = made(11, 6 << 20)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """It serves one file: each connection with 2 MiB/s below /capped/, three connections at most below /few/."""
    folder, port = tmp_path_factory.mktemp("nginx"), free_port()
    (folder / "www").mkdir()
    (folder / "www" / "model.gguf").write_bytes(CONTENT)
    (folder / "nginx.conf").write_text(CONF.format(folder=folder, port=port, cap=CAP))
    process = subprocess.Popen(["nginx", "-c", str(folder / "nginx.conf")], stderr=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def fetch(folder: Path, address: str, policy: FetchPolicy) -> Got:
    wanted = Wanted(address)
    got = WeightCache(folder, policy, RoomPolicy(), SystemClock()).fetch(
        wanted, source_for(wanted, policy, SystemClock()), Progress()
    )
    got.use.end()
    return got


def test_capped_connections_are_added(tmp_path: Path, server: str) -> None:
    """One would take three seconds; several take clearly less."""
    policy = FetchPolicy(chunk_bytes=256 << 10, retries=200)
    got = fetch(tmp_path / "w", f"{server}/capped/model.gguf", policy)
    assert got.path.read_bytes() == CONTENT
    assert got.seconds < 0.75 * len(CONTENT) / CAP


def test_a_server_that_lets_few_in_is_not_pressed(tmp_path: Path, server: str) -> None:
    """More connections than it takes are refused with 503: fewer are used, and the content is right."""
    policy = replace(FetchPolicy(), chunk_bytes=128 << 10, connections_first=8, retries=200)
    got = fetch(tmp_path / "w", f"{server}/few/model.gguf", policy)
    assert got.path.read_bytes() == CONTENT
