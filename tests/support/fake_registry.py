"""A small OCI registry by the distribution specification, as far as one reads: challenge, token, manifest, blob.

Blobs are on another host, by a redirect, as registries before an object store do it.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from aiohttp import web

from tests.support.web_thread import served

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
RAW = "application/vnd.cncf.model.weight.v1.raw"


def sha256(content: bytes) -> str:
    """As digests are written."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def layer(name: str, content: bytes, kind: str = RAW, key: str = "org.opencontainers.image.title") -> dict[str, object]:
    """A layer of a manifest."""
    return {"mediaType": kind, "digest": sha256(content), "size": len(content), "annotations": {key: name}}


@dataclass
class Registry:
    """One repository. `auth`: how readers are told apart: "", "basic" or "bearer"; `who` is let in (None: all)."""

    auth: str = ""
    who: str | None = None
    repository: str = "org/model"
    life: float = 300.0
    """Seconds that a token says it lives."""
    manifests: dict[str, bytes] = field(default_factory=dict)
    """By tag and by digest."""
    blobs: dict[str, bytes] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Host and path of what was asked for, of this host and of the other."""
    leaked: list[str] = field(default_factory=list)
    """Authorization headers that the other host got."""
    given: bytes | None = None
    """What who asks for a token gets instead of one."""
    elsewhere: str = ""
    """The other host, where it is not this one by another name."""
    port: int = 0

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def push(self, files: dict[str, bytes], tag: str = "v1") -> str:
        """An artifact with these files; its digest."""
        self.blobs.update({sha256(content): content for content in files.values()})
        return self.put({"layers": [layer(name, content) for name, content in files.items()]}, tag)

    def put(self, manifest: dict[str, object], tag: str = "v1") -> str:
        """A manifest as it is; its digest."""
        body = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, **manifest}).encode()
        self.manifests[tag] = self.manifests[sha256(body)] = body
        return sha256(body)

    async def ping(self, request: web.Request) -> web.StreamResponse:
        """GET /v2/."""
        return self._refused(request) or web.json_response({})

    async def token(self, request: web.Request) -> web.StreamResponse:
        """GET /token?service=…&scope=…"""
        self.asked.append(("token", request.query_string))
        if self.who is not None and request.headers.get("Authorization") != _basic(self.who):
            return web.Response(status=401)
        if self.given is not None:
            return web.Response(body=self.given)
        made = f"t{len(self.asked)}"
        self.tokens = {made}  # the ones before have ended
        return web.json_response({"token": made, "expires_in": self.life})

    async def manifest(self, request: web.Request) -> web.StreamResponse:
        """GET /v2/NAME/manifests/REFERENCE."""
        body = self.manifests.get(request.match_info["reference"])
        refused = self._refused(request)
        if refused is not None or body is None:
            return refused or web.Response(status=404)
        return web.Response(body=body, content_type=MANIFEST)

    async def blob(self, request: web.Request) -> web.StreamResponse:
        """GET /v2/NAME/blobs/DIGEST: elsewhere."""
        refused = self._refused(request)
        if refused is not None:
            return refused
        there = f"{self.elsewhere or f'http://localhost:{self.port}'}/store/{request.match_info['digest']}"
        return web.Response(status=307, headers={"Location": there})

    async def store(self, request: web.Request) -> web.StreamResponse:
        """The other host: ranges."""
        self.leaked += [request.headers["Authorization"]] if "Authorization" in request.headers else []
        content = self.blobs[request.match_info["digest"]]
        span = request.http_range
        start, stop, _ = span.indices(len(content))
        told = {"Content-Range": f"bytes {start}-{stop - 1}/{len(content)}", "ETag": '"of-the-store"'}
        return web.Response(status=206, body=content[start:stop], headers=told)

    def _refused(self, request: web.Request) -> web.Response | None:
        self.asked.append((request.host, request.path))
        sent = request.headers.get("Authorization", "")
        if not self.auth or (self.auth == "basic" and sent == _basic(self.who or "")):
            return None
        if self.auth == "bearer" and sent.removeprefix("Bearer ") in self.tokens:
            return None
        how = f'Bearer realm="{self.endpoint}/token",service="here"' if self.auth == "bearer" else 'Basic realm="here"'
        return web.Response(status=401, headers={"WWW-Authenticate": how})


def _basic(who: str) -> str:
    return f"Basic {base64.b64encode(who.encode()).decode()}"


@contextlib.contextmanager
def serving(registry: Registry) -> Iterator[Registry]:
    """Serve it from a thread with a loop of its own."""
    app = web.Application()
    app.router.add_get("/v2/", registry.ping)
    app.router.add_get("/token", registry.token)
    app.router.add_get(f"/v2/{registry.repository}/manifests/{{reference}}", registry.manifest)
    app.router.add_get(f"/v2/{registry.repository}/blobs/{{digest}}", registry.blob)
    app.router.add_get("/store/{digest}", registry.store)
    with served(app) as port:
        registry.port = port
        yield registry
