"""Which source reads an address."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from coldstart.adapters.file_source import FileSource
from coldstart.adapters.hf_source import HfSource
from coldstart.adapters.http_source import HttpSource
from coldstart.adapters.oci_source import OciSource
from coldstart.adapters.references import header_value, headers_of
from coldstart.adapters.store_source import StoreSource
from coldstart.adapters.stores import SCHEMES
from coldstart.core.cache.errors import UnsupportedSource
from coldstart.core.cache.policy import FetchPolicy
from coldstart.core.cache.wanted import Access, Wanted
from coldstart.ports import Source
from events.clock import Clock


def source_of(address: str, headers: Mapping[str, str], policy: FetchPolicy, clock: Clock) -> Source:
    """The source of an address by its scheme; UnsupportedSource where there is none.

    `headers` are sent by HTTP sources only.
    """
    scheme = _scheme(address)
    if scheme in ("http", "https"):
        return HttpSource(address, headers, policy, clock)
    return source_for(Wanted(address), policy, clock)


def source_for(wanted: Wanted, policy: FetchPolicy, clock: Clock) -> Source:
    """The source of what is wanted, with its access. Raises UnsupportedSource, ExtraMissing or CredentialsMissing."""
    address, access, scheme = wanted.address, wanted.access, _scheme(wanted.address)
    if scheme == "file":
        return FileSource(address)
    if scheme in ("http", "https"):
        return HttpSource(address, _headers(access), policy, clock)
    if scheme in SCHEMES:
        return StoreSource(address, access, policy, clock)
    if scheme == "hf":
        return HfSource(address, access, policy, clock)
    if scheme == "oci":
        return OciSource(address, access, policy, clock)
    raise UnsupportedSource(f"no source reads {scheme or 'addresses without a scheme'}")


def _scheme(address: str) -> str:
    try:
        return urlsplit(address).scheme.lower()
    except ValueError as error:
        raise UnsupportedSource(f"the address cannot be read: {error}") from error


def _headers(access: Access) -> dict[str, str]:
    """Credentials of an HTTP source are the value of its Authorization header."""
    own = {} if access.credentials is None else {"Authorization": header_value(access.credentials)}
    return {**own, **headers_of(access.headers)}
