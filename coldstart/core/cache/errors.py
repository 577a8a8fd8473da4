"""What can go wrong with cached weights: one error a cause, with the numbers. Each says what to do about it."""

from __future__ import annotations

from events.units import Bytes, Seconds, format_quantity


class CacheError(Exception):
    """A fetch, or an operation on the cache, that cannot be done. `remedy` says what a person can do."""

    remedy = ""


class NoSpace(CacheError):
    """The disk, or the cache's capacity, has no room, and nothing may be evicted."""

    remedy = "free space, raise --capacity, or evict and unpin what is not needed (relume cache ls)"

    def __init__(self, needed: Bytes, free: Bytes, capacity: Bytes, *, why: str) -> None:
        super().__init__(
            f"{format_quantity(needed)} are needed and {format_quantity(free)} of {format_quantity(capacity)} "
            f"can be freed: {why}"
        )
        self.needed = needed
        self.free = free
        self.capacity = capacity


class OverQuota(NoSpace):
    """The quota of these weights has no room, and nothing of it may be evicted. Told before the first byte."""

    remedy = "raise the quota (the file of cache_quotas), or evict and unpin what it holds (relume cache du, cache ls)"

    def __init__(
        self, name: str, match: str, size: tuple[Bytes, Bytes | None], files: tuple[int, int | None]
    ) -> None:  # fmt: skip
        needed, most = size
        bounds = [] if most is None else [f"{format_quantity(needed)} are needed of {format_quantity(most)} at most"]
        bounds += [] if files[1] is None else [f"{files[0]} files of {files[1]} at most"]
        CacheError.__init__(
            self,
            f"quota {name} ({match}): {', '.join(bounds)}; the rest of it is in use, pinned or another's too",
        )
        self.needed, self.capacity = needed, most or Bytes(0)
        self.free = Bytes(0)


class TooLarge(CacheError):
    """More than the cache may ever hold. Told before the first byte."""

    remedy = "raise --capacity"

    def __init__(self, needed: Bytes, capacity: Bytes) -> None:
        super().__init__(f"{needed} bytes are needed, and the cache holds {capacity} bytes at most")
        self.needed = needed
        self.capacity = capacity


class DigestMismatch(CacheError):
    """The content is not what was asked for. Nothing of it is kept."""

    remedy = "check --digest, and whether the source serves what it should"

    def __init__(self, wanted: str, got: str, source: str) -> None:
        super().__init__(f"{source} has the digest {got}, and {wanted} was asked for")
        self.wanted = wanted
        self.got = got


class SourceRefused(CacheError):
    """The source said no: 401, 403, 404 and the like. Trying again would not help."""

    remedy = "check the address and the credentials"

    def __init__(self, source: str, why: str) -> None:
        super().__init__(f"{source} refused: {why}")


class SourceUnavailable(CacheError):
    """The source gave no content within the retries and the patience that a fetch has. What was verified is kept."""

    remedy = "try again: verified chunks are kept, and only the rest is fetched"

    def __init__(self, source: str, why: str) -> None:
        super().__init__(f"{source} could not be read: {why}")


class SourceBroken(CacheError):
    """The source breaks the protocol: no length, a range that was not asked for, too many redirects."""

    remedy = "the server must send Content-Length, and honour Range or answer 200"

    def __init__(self, source: str, why: str) -> None:
        super().__init__(f"{source} answers wrongly: {why}")


class SourceChanged(CacheError):
    """The content changed while it was fetched, again and again."""

    remedy = "fetch an address whose content stays, or try when it is not being written"

    def __init__(self, source: str, times: int) -> None:
        super().__init__(f"{source} changed {times} times while it was fetched")


class UnsupportedSource(CacheError):
    """No source reads this address."""

    remedy = (
        "write file:///path, http:// or https://, s3://BUCKET/KEY, gs://BUCKET/KEY, az://CONTAINER/KEY, "
        "hf://ORG/NAME[@REVISION][/PATH], or oci://REGISTRY/NAME[:TAG][@sha256:DIGEST]"
    )


class ExtraMissing(CacheError):
    """The library that reads such addresses is not installed."""

    def __init__(self, scheme: str, extra: str) -> None:
        super().__init__(f"{scheme}:// is read by a library that is not installed")
        self.remedy = f"pip install 'relume[{extra}]'"


class CredentialsMissing(CacheError):
    """A reference to a secret leads nowhere. The text names the reference, never what it holds."""

    remedy = "set the variable, or write credentials: env:NAME or file:/path"

    def __init__(self, reference: str, why: str) -> None:
        super().__init__(f"credentials {reference}: {why}")


class SourceOffline(CacheError):
    """The source may not be asked (offline), and the weights are not in the cache."""

    remedy = "fetch them once while online, or pin a revision that is in the cache (relume cache ls)"

    def __init__(self, source: str, why: str) -> None:
        super().__init__(f"{source} is not in the cache, and nobody may be asked: {why}")


class OddName(CacheError):
    """A file of the source has a name that could leave the snapshot's folder, or differ from disk to disk."""

    remedy = "exclude it, or rename it at the source"

    def __init__(self, source: str, name: str, why: str) -> None:
        super().__init__(f"{source} has a file named {name[:200]!r}: {why}")


class TooManyFiles(CacheError):
    """More files than a set may have."""

    remedy = "name a narrower folder or prefix"

    def __init__(self, source: str, count: int, most: int) -> None:
        super().__init__(f"{source} has {count} files or more, and a set has {most} at most")


class NothingLeft(CacheError):
    """The source has no files, or include and exclude leave none."""

    remedy = "check the address, and weights.include and weights.exclude (* crosses /, case counts)"

    def __init__(self, source: str, count: int) -> None:
        super().__init__(f"of the {count} files of {source}, include and exclude leave none")


class Incomplete(CacheError):
    """Files that belong together are not all there."""

    remedy = "let include and exclude leave all parts, or complete the source"

    def __init__(self, source: str, because: str, missing: str, count: int) -> None:
        super().__init__(f"{source} lacks {missing}, which {because} needs ({count} missing)")


class NotCached(CacheError):
    """Nothing of this name is in the cache."""

    remedy = "relume cache ls"

    def __init__(self, name: str, times: int = 0) -> None:
        several = f"is in the cache {times} times: name a digest"
        super().__init__(f"{name} {several if times else 'is not in the cache'}")


class InUse(CacheError):
    """Someone holds a use of these weights."""

    remedy = "end what uses them, and try again"

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is in use")


class Pinned(CacheError):
    """The weights are pinned, so that they stay."""

    remedy = "relume cache pin --off NAME first"

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is pinned")


class FolderTaken(CacheError):
    """Another process writes to this cache: each folder has one writer."""

    remedy = "wait for it to end, or give another --data-dir"

    def __init__(self, folder: str, pid: int | None) -> None:
        super().__init__(f"{folder} is written by {'another process' if pid is None else f'process {pid}'}")
        self.pid = pid


class Retryable(Exception):
    """One try of one range failed; the next may not. Never leaves the fetch."""


class Interrupted(Retryable):
    """Reset, closed early, timed out, 5xx, stalled."""


class Throttled(Retryable):
    """The source asks for patience: 429 or 503 with Retry-After (seconds; None: it did not say how long)."""

    def __init__(self, why: str, retry_after: Seconds | None) -> None:
        super().__init__(why)
        self.retry_after = retry_after


class VersionMoved(Exception):
    """The content is no longer that of the plan: 412, another ETag, another length. The plan is made anew."""


class RangesIgnored(Exception):
    """Asked for a range, the source sends the whole: it is read as a whole, in one stream."""
