"""Weights from the Hugging Face Hub, or a server that answers like it: ``hf://ORG/NAME[@REVISION][/PATH]``.

`huggingface_hub` is asked for metadata only: the commit, the files, their sizes and the SHA-256 of the large ones.
Bytes come by our own fetcher: that library's takes ten times the CPU, checks sizes only and does not resume across
processes (field note on cold starts, §2 and §5). Everything is read at the commit that was found first.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from coldstart.adapters.http_channel import HttpChannel, host_of, retry_after
from coldstart.adapters.references import header_value
from coldstart.core.cache.content import Described, Listing
from coldstart.core.cache.errors import (
    ExtraMissing,
    Interrupted,
    SourceBroken,
    SourceOffline,
    SourceRefused,
    Throttled,
    UnsupportedSource,
)
from coldstart.core.cache.policy import FetchPolicy
from coldstart.core.cache.selection import split_parts
from coldstart.core.cache.wanted import Access
from coldstart.ports import Channel
from events.clock import Clock
from events.units import Bytes

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo, RepoSibling

_ADDRESS = re.compile(r"^(?P<repo>[^/@]+/[^/@]+)(?:@(?P<revision>[^/]+))?(?:/(?P<path>.*))?$")
_COMMIT = re.compile(r"^[0-9a-f]{40}$")
_BUSY = frozenset({408, 425, 500, 502, 504})


class HfSource:
    """A repository of a model, a folder of it, or a file of it (with the other parts, where it is one of several)."""

    def __init__(self, address: str, access: Access, policy: FetchPolicy, clock: Clock) -> None:
        found = _ADDRESS.match(address.partition("://")[2])
        if found is None:
            raise UnsupportedSource("hf:// names ORG/NAME, then @REVISION and /PATH if need be")
        try:
            from huggingface_hub import constants, get_token  # noqa: PLC0415 - an extra, and a quarter of a second
        except ImportError as error:
            raise ExtraMissing("hf", "hf") from error
        self._address = address
        self._repo = found["repo"]
        self._revision = unquote(found["revision"] or "main")
        self._path = unquote(found["path"] or "").rstrip("/")
        self._offline = bool(constants.HF_HUB_OFFLINE)
        self._endpoint = (access.endpoint or constants.ENDPOINT).rstrip("/")
        self._token = get_token() if access.credentials is None else header_value(access.credentials)
        self.headers: Mapping[str, str] = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        self.policy = policy
        self.clock = clock
        self.onward: dict[str, str] = {}
        self.tls: ssl.SSLContext | None = None
        self._commit = self.fixed() or ""
        self._prefix = ""
        self._tags: dict[str, str] = {}

    def shown(self) -> str:
        """The address."""
        return self._address

    def fixed(self) -> str | None:
        """The commit, where the revision is one."""
        return self._revision if _COMMIT.match(self._revision) else None

    def connect(self) -> Channel:
        """For one thread at a time."""
        return HttpChannel(self, host_of(urlsplit(self._endpoint)))

    def url(self, of: Described) -> str:
        """Where the hub has a file of this commit; it redirects to where the bytes are."""
        return f"{self._endpoint}/{self._repo}/resolve/{self._commit}/{quote(self._prefix + of.name)}"

    def guard(self, of: Described) -> dict[str, str]:  # noqa: ARG002 - whose signature this is
        """None: the commit is in the address, and ETags differ between the hub and where it redirects to."""
        return {}

    def same(self, of: Described, version: str) -> bool:
        """All ranges of a file have the same version, whatever that is called where the bytes are."""
        return self._tags.setdefault(of.name, version) == version

    def describe(self) -> Listing:
        """One question for the commit and all its files."""
        info = self._info()
        if not info.sha or info.siblings is None:
            raise SourceBroken(self.shown(), "it tells no commit and files")
        self._commit = info.sha
        self._tags.clear()
        files = tuple(_described(sibling) for sibling in info.siblings)
        below = f"{self._path}/" if self._path else ""
        if not below:
            return Listing(files, "", info.sha, pinned=True)
        self._prefix = below
        inside = tuple(_renamed(file, below) for file in files if file.name.startswith(below))
        if inside:
            return Listing(inside, "", info.sha, pinned=True)
        return self._one(files, info.sha)

    def _one(self, files: tuple[Described, ...], commit: str) -> Listing:
        folder, _, name = self._path.rpartition("/")
        self._prefix = f"{folder}/" if folder else ""
        wanted = {self._prefix + part for part in split_parts(name)}
        found = tuple(_renamed(file, self._prefix) for file in files if file.name in wanted)
        if not any(file.name == name for file in found):
            raise SourceRefused(self.shown(), f"commit {commit} has no {self._path}")
        return Listing(found, name, commit, pinned=True)

    def _info(self) -> ModelInfo:
        from huggingface_hub import HfApi, errors  # noqa: PLC0415 - as above
        from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined] # noqa: PLC0415 - of its HTTP library

        if self._offline:
            raise SourceOffline(self.shown(), "HF_HUB_OFFLINE is set")
        api = HfApi(endpoint=self._endpoint, token=self._token or False, library_name="relume")
        try:
            return api.model_info(
                self._repo,
                revision=self._revision,
                files_metadata=True,
                timeout=self.policy.connect + self.policy.stall,
            )
        except errors.HFValidationError as error:
            raise UnsupportedSource("hf:// names ORG/NAME, then @REVISION and /PATH if need be") from error
        except errors.HfHubHTTPError as error:
            raise self._told(error) from None
        except (OSError, HTTPError) as error:
            raise Interrupted(f"the connection failed ({type(error).__name__})") from None

    def _told(self, error: Exception) -> Exception:
        """Its own words are not passed on: they may hold what was sent."""
        answer = getattr(error, "response", None)
        status = 0 if answer is None else int(answer.status_code)
        if answer is not None and status in (429, 503):
            return Throttled(f"it answers {status}", retry_after(answer.headers.get("Retry-After"), self.clock.now()))
        if status in _BUSY:
            return Interrupted(f"it answers {status}")
        why = {
            "RepositoryNotFoundError": "there is no such repository, or the token does not open it",
            "GatedRepoError": "its owner must let you in first, and the token must be yours",
            "RevisionNotFoundError": f"it has no revision {self._revision}",
        }.get(type(error).__name__, f"it answers {status}")
        return SourceRefused(self.shown(), why)


def _described(sibling: RepoSibling) -> Described:
    """Large files have a SHA-256; the others a git hash, which is a version and no digest of ours."""
    digest = None if sibling.lfs is None else f"sha256:{sibling.lfs.sha256}"
    size = sibling.size if sibling.lfs is None else sibling.lfs.size
    if size is None:
        raise Interrupted(f"it tells no size of {sibling.rfilename}")
    return Described(sibling.rfilename, Bytes(size), digest or str(sibling.blob_id), ranges=True, digest=digest)


def _renamed(file: Described, prefix: str) -> Described:
    return Described(file.name.removeprefix(prefix), file.bytes, file.version, file.ranges, file.digest)
