"""Which source reads an address."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from coldstart.adapters.file_source import FileSource
from coldstart.adapters.http_source import HttpSource
from coldstart.core.cache.errors import UnsupportedSource
from coldstart.core.cache.policy import FetchPolicy
from coldstart.ports import Source
from events.clock import Clock


def source_of(address: str, headers: Mapping[str, str], policy: FetchPolicy, clock: Clock) -> Source:
    """The source of an address by its scheme; UnsupportedSource where there is none."""
    try:
        scheme = urlsplit(address).scheme.lower()
    except ValueError as error:
        raise UnsupportedSource(f"the address cannot be read: {error}") from error
    if scheme == "file":
        return FileSource(address)
    if scheme in ("http", "https"):
        return HttpSource(address, headers, policy, clock)
    raise UnsupportedSource(f"no source reads {scheme or 'addresses without a scheme'}")
