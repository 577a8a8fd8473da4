"""A watch that is left takes its connection with it, also to a server that says nothing to our farewell."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import ssl
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.kubernetes.api import connect
from tests.support.certificates import Authority

pytest.importorskip("kubernetes")

BOOKMARK = json.dumps({"type": "BOOKMARK", "object": {}}) + "\n"
HEAD = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{len(BOOKMARK):x}\r\n{BOOKMARK}\r\n"


@contextmanager
def mute_server(folder: Path) -> Iterator[Path]:
    """A kubeconfig for an API server that answers each watch with one bookmark, and never reads or speaks again."""
    authority = Authority(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.issue("localhost"))
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            plain, _ = listener.accept()
            with context.wrap_socket(plain, server_side=True) as connection:
                connection.recv(65536)
                connection.sendall(HEAD.encode())
                over.wait(30)

        thread = threading.Thread(target=serve)
        thread.start()
        path = folder / "kubeconfig"
        cluster = {
            "server": f"https://127.0.0.1:{listener.getsockname()[1]}",
            "certificate-authority": str(authority.certificate),
        }
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": cluster}], "users": [{"name": "it", "user": {"token": "t"}}],
        }), encoding="utf-8")  # fmt: skip
        try:
            yield path
        finally:
            over.set()
            thread.join(30)


async def watch_and_leave(kubeconfig: Path) -> None:
    """Follow a collection until its first news, be cancelled, and close."""
    api = await connect(kubeconfig)
    heard = asyncio.Event()

    async def follow() -> None:
        async for _ in api.watch("/api/v1/pods", {}):
            heard.set()

    following = asyncio.create_task(follow())
    await asyncio.wait_for(heard.wait(), 20)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await api.close()


def test_nothing_is_left_open(tmp_path: Path) -> None:
    """A farewell in TLS waits for the other's, for half a minute: nobody would be there to hear it."""
    with mute_server(tmp_path) as kubeconfig:
        asyncio.run(watch_and_leave(kubeconfig))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            gc.collect()
    assert [str(one.message) for one in told] == []
