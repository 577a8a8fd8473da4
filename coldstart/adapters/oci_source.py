"""Weights from an OCI registry: ``oci://REGISTRY/NAME[:TAG][@sha256:DIGEST]``, an artifact whose layers are files.

A manifest tells names, lengths and SHA-256 of all layers, so every file's digest is known before it is read, and other
nodes can give it; a blob is an HTTP resource with ranges. Layers are what `oras push` and ModelPack's raw types make:
one file each, named by an annotation. Layers that are archives (KitOps' default) are refused: unpacking them would cost
the ranges, the digests and a second copy.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlsplit

from coldstart.adapters.http_channel import HttpChannel, host_of
from coldstart.adapters.oci_login import Login, user_and_password
from coldstart.adapters.references import secret
from coldstart.adapters.stores import ANONYMOUS
from coldstart.core.cache.content import Described, Listing
from coldstart.core.cache.errors import SourceBroken, SourceRefused, UnsupportedSource
from coldstart.core.cache.policy import FetchPolicy
from coldstart.core.cache.selection import split_parts
from coldstart.core.cache.wanted import Access
from coldstart.ports import Channel
from events.clock import Clock
from events.units import Bytes

MANIFEST_BYTES_MOST: Final = 4 << 20
"""What registries must take at least, and mostly take at most (distribution specification)."""
_ADDRESS: Final = re.compile(
    r"^(?P<registry>[A-Za-z0-9.\-]+(?::\d+)?)/(?P<name>[a-z0-9]+(?:[._/\-]+[a-z0-9]+)*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?$"
)
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_NAMES: Final = ("org.opencontainers.image.title", "org.cncf.model.filepath")
"""Annotations of a layer that name its file: of oras and all that follow it, and of ModelPack."""
_PACKED: Final = re.compile(r"(\.|\+)(tar|gzip|zstd)\b")


class OciSource:
    """An artifact: one file, or all that it has. `access.endpoint`: the registry's own address, or a mirror's."""

    def __init__(self, address: str, access: Access, policy: FetchPolicy, clock: Clock) -> None:
        found = _ADDRESS.match(address.partition("://")[2])
        if found is None:
            raise UnsupportedSource("oci:// names REGISTRY/NAME, then :TAG and @sha256:DIGEST if need be")
        self._address = address
        self._name, self._digest = found["name"], found["digest"]
        self._reference = self._digest or found["tag"] or "latest"
        self._base = (access.endpoint or f"https://{found['registry']}").rstrip("/")
        given = access.credentials
        held = None if given in (None, ANONYMOUS) else user_and_password(given, secret(given))
        self._login = Login(self._base, self._name, held, policy, clock)
        self.policy = policy
        self.clock = clock
        self.onward: dict[str, str] = {}
        self.tls: ssl.SSLContext | None = None
        self._tags: dict[str, str] = {}

    @property
    def headers(self) -> Mapping[str, str]:
        """For the registry itself; blobs often are elsewhere."""
        return self._login.headers()

    def shown(self) -> str:
        """The address."""
        return self._address

    def fixed(self) -> str | None:
        """The manifest's digest, where the address has it."""
        return self._digest

    def connect(self) -> Channel:
        """For one thread at a time."""
        return self._channel()

    def _channel(self) -> HttpChannel:
        return HttpChannel(self, host_of(urlsplit(self._base)))

    def url(self, of: Described) -> str:
        """The blob."""
        return f"{self._base}/v2/{self._name}/blobs/{of.version}"

    def guard(self, of: Described) -> dict[str, str]:  # noqa: ARG002 - whose signature this is
        """None: the digest is in the address."""
        return {}

    def same(self, of: Described, version: str) -> bool:
        """All ranges of a blob have the same version, whatever that is called where the bytes are."""
        return self._tags.setdefault(of.name, version) == version

    def describe(self) -> Listing:
        """One question for all files."""
        self._tags.clear()
        body = self._manifest()
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        if self._digest not in (None, digest):
            raise SourceBroken(self.shown(), "it gives another manifest than the one with this digest")
        files = tuple(self._file(layer) for layer in self._layers(body))
        names = {file.name for file in files}
        first = min(names)
        return Listing(files, first if names == set(split_parts(first)) else "", digest, pinned=True)

    def _manifest(self) -> bytes:
        channel = self._channel()
        url = f"{self._base}/v2/{self._name}/manifests/{quote(self._reference, safe=':')}"
        try:
            with channel.asked(url, {"Accept": _MANIFEST}) as answer:
                return answer.read(MANIFEST_BYTES_MOST)
        except (OSError, http.client.HTTPException) as error:
            raise SourceBroken(self.shown(), f"its manifest cannot be read ({type(error).__name__})") from error
        finally:
            channel.close()

    def _layers(self, body: bytes) -> list[dict[str, object]]:
        try:
            read = json.loads(body)
        except (ValueError, RecursionError):
            raise SourceBroken(self.shown(), "its manifest is no JSON") from None
        layers = read.get("layers") if isinstance(read, dict) else None
        if isinstance(read, dict) and "manifests" in read:
            raise SourceRefused(self.shown(), "it is an index of several artifacts; name one of them by its @sha256:…")
        if not isinstance(layers, list) or not layers or not all(isinstance(layer, dict) for layer in layers):
            raise SourceBroken(self.shown(), "its manifest has no layers")
        return layers

    def _file(self, layer: dict[str, object]) -> Described:
        digest, size, kind = layer.get("digest"), layer.get("size"), str(layer.get("mediaType", ""))
        annotations = layer.get("annotations")
        named = annotations if isinstance(annotations, dict) else {}
        name = next((named[key] for key in _NAMES if isinstance(named.get(key), str)), None)
        if _PACKED.search(kind):
            raise SourceRefused(self.shown(), f"a layer is an archive ({kind}); push the files as they are")
        if name is None:
            raise SourceRefused(
                self.shown(), f"a layer ({kind}) has no name; push files with their titles, as oras does"
            )
        if not isinstance(size, int) or size < 0 or not re.fullmatch(r"sha256:[0-9a-f]{64}", str(digest)):
            raise SourceBroken(self.shown(), f"{name} has no length, or no SHA-256")
        return Described(name, Bytes(size), str(digest), ranges=True, digest=str(digest))
