"""A small hub that answers as Hugging Face's does, as far as one asks it for models: revisions, files, redirects.

Shapes: what `huggingface_hub` reads of `/api/models/REPO/revision/REVISION?blobs=true`, and headers of
`/REPO/resolve/COMMIT/PATH` (`X-Repo-Commit`, `X-Linked-Etag`, `X-Error-Code`), as documented by its own source.
Large files (LFS) are redirected to another host, as there; small ones are answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import quote

from aiohttp import web

LFS_FROM = 1000
"""Bytes from which a file is large here."""


@dataclass
class Hub:
    """One repository's commits, and who may see it."""

    folder: Path
    repo: str = "org/model"
    token: str | None = None
    gated: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    failing: list[int] = field(default_factory=list)
    """Statuses of the next answers to questions for metadata."""
    questions: int = 0
    seen: list[tuple[str, str | None]] = field(default_factory=list)
    """Paths, and what came as Authorization."""
    cdn: str = ""
    """Where large files are; its own port else, under another name."""
    port: int = 0

    @property
    def endpoint(self) -> str:
        """What HF_ENDPOINT would say."""
        return f"http://127.0.0.1:{self.port}"

    def commit(self, files: dict[str, bytes], branch: str = "main") -> str:
        """A new commit; its name."""
        lines = "".join(f"{name} {hashlib.sha1(content).hexdigest()}\n" for name, content in sorted(files.items()))
        name = hashlib.sha1(f"{len(self.commits)}\n{lines}".encode()).hexdigest()
        self.commits[name], self.branches[branch] = files, name
        for content in files.values():
            (self.folder / hashlib.sha256(content).hexdigest()).write_bytes(content)
        return name


@contextlib.contextmanager
def running(hub: Hub) -> Iterator[Hub]:
    """Serve it from a thread with a loop of its own."""
    loop, ready = asyncio.new_event_loop(), threading.Event()

    async def serve() -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/api/models/{org}/{name}/revision/{revision}", partial(_info, hub))
        app.router.add_get("/{org}/{name}/resolve/{revision}/{path:.*}", partial(_resolve, hub))
        app.router.add_get("/cdn/{hex}", partial(_cdn, hub))
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        hub.port = runner.addresses[0][1]
        hub.cdn = f"http://localhost:{hub.port}"
        ready.set()
        return runner

    def run() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(serve())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield hub
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)


def _error(status: int, code: str, message: str) -> web.Response:
    return web.json_response(
        {"error": message}, status=status, headers={"X-Error-Code": code, "X-Error-Message": message}
    )


def _seen(hub: Hub, request: web.Request) -> web.Response | None:
    sent = request.headers.get("Authorization")
    hub.seen.append((request.path, sent))
    if f"{request.match_info['org']}/{request.match_info['name']}" != hub.repo:
        return _error(404, "RepoNotFound", "Repository not found")
    if hub.token is not None and sent != f"Bearer {hub.token}":
        return _error(401, "RepoNotFound", "Invalid username or password.")
    if hub.gated:
        return _error(403, "GatedRepo", "Access to this model is restricted.")
    return None


async def _info(hub: Hub, request: web.Request) -> web.Response:
    hub.questions += 1
    if hub.failing:
        return web.Response(status=hub.failing.pop(0), headers={"Retry-After": "0"})
    refused = _seen(hub, request)
    if refused is not None:
        return refused
    revision = request.match_info["revision"]
    commit = hub.branches.get(revision, revision)
    if commit not in hub.commits:
        return _error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
    assert request.query.get("blobs") in ("true", "True")
    siblings = [_sibling(name, content) for name, content in sorted(hub.commits[commit].items())]
    return web.json_response(
        {"id": hub.repo, "modelId": hub.repo, "sha": commit, "private": False, "siblings": siblings}
    )


def _sibling(name: str, content: bytes) -> dict[str, object]:
    told: dict[str, object] = {"rfilename": name, "size": len(content), "blobId": _git_hash(content)}
    if len(content) >= LFS_FROM:
        told["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    return told


def _git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


async def _resolve(hub: Hub, request: web.Request) -> web.StreamResponse:
    refused = _seen(hub, request)
    if refused is not None:
        return refused
    commit, path = request.match_info["revision"], request.match_info["path"]
    content = hub.commits.get(commit, {}).get(path)
    if content is None:
        return _error(404, "EntryNotFound", "Entry not found")
    hexed = hashlib.sha256(content).hexdigest()
    headers = {"X-Repo-Commit": commit}
    if len(content) >= LFS_FROM:
        linked = {"X-Linked-Etag": f'"{hexed}"', "X-Linked-Size": str(len(content))}
        location = f"{hub.cdn}/cdn/{hexed}?X-Amz-Signature=hush-{quote(path)}"
        return web.Response(status=302, headers={**headers, **linked, "Location": location})
    return web.FileResponse(hub.folder / hexed, headers={**headers, "ETag": f'"{_git_hash(content)}"'})


async def _cdn(hub: Hub, request: web.Request) -> web.StreamResponse:
    hub.seen.append((request.path, request.headers.get("Authorization")))
    return web.FileResponse(hub.folder / request.match_info["hex"])
