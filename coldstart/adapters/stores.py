"""Opening an object store by its scheme: where it is, and who asks."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from coldstart.adapters.references import secret
from coldstart.core.cache.errors import CredentialsMissing, ExtraMissing, UnsupportedSource
from coldstart.core.cache.policy import FetchPolicy
from coldstart.core.cache.wanted import Access

if TYPE_CHECKING:
    from obstore.store import ObjectStore

SCHEMES: Final = ("s3", "gs", "az")
ANONYMOUS: Final = "none"
"""Instead of a reference: public objects, asked for without credentials."""

_ALLOW_HTTP: Final = {"s3": "AWS_ALLOW_HTTP", "gs": "GOOGLE_ALLOW_HTTP", "az": "AZURE_ALLOW_HTTP"}
"""The library reads these by itself only where it is given no settings of its connections."""

_SLOWEST: Final = 256 << 10
"""Bytes a second below which a range is given up: obstore cannot tell a trickle, only bound the whole. A choice."""


def opened(scheme: str, bucket: str, access: Access, policy: FetchPolicy) -> ObjectStore:
    """The store. What `access` leaves out comes from the store's usual environment variables, as obstore reads them.

    Raises ExtraMissing, CredentialsMissing, or UnsupportedSource where the library does not take the settings.
    """
    try:
        from obstore import exceptions, store  # noqa: PLC0415 - an extra, and 20 ms
    except ImportError as error:
        raise ExtraMissing(scheme, "stores") from error
    makers = {"s3": store.S3Store, "gs": store.GCSStore, "az": store.AzureStore}
    given = {
        **_credentials(scheme, access.credentials),
        **({} if access.endpoint is None else {"endpoint" if scheme != "gs" else "base_url": access.endpoint}),
        **({} if access.region is None or scheme != "s3" else {"region": access.region}),
    }
    client: dict[str, object] = {
        "connect_timeout": timedelta(seconds=policy.connect),
        "read_timeout": timedelta(seconds=policy.stall),
        "timeout": timedelta(seconds=4 * policy.stall + policy.chunk_bytes / _SLOWEST),
        "user_agent": "relume",
    }
    plain = os.environ.get(_ALLOW_HTTP[scheme], "").lower() in ("1", "true", "yes")
    if plain or (access.endpoint or "").startswith("http://"):
        client["allow_http"] = True
    try:
        made: ObjectStore = makers[scheme](bucket, client_options=client, retry_config={"max_retries": 0}, **given)
    except (exceptions.BaseError, ValueError) as error:
        raise UnsupportedSource(f"{scheme}://{bucket} cannot be opened ({type(error).__name__})") from None
    return made


def _credentials(scheme: str, reference: str | None) -> dict[str, Any]:
    """The library's names for what the reference holds."""
    if reference is None:
        return {}
    if reference == ANONYMOUS:
        return {"skip_signature": True}
    held = secret(reference)
    if scheme == "gs":
        return {"service_account_key": held}
    parts = held.split(":")
    if scheme == "az" and len(parts) == 2:
        return {"account_name": parts[0], "account_key": parts[1]}
    if scheme == "s3" and len(parts) in (2, 3):
        names = ("access_key_id", "secret_access_key", "session_token")
        return dict(zip(names, parts, strict=False))
    form = "ACCOUNT:KEY" if scheme == "az" else "ACCESS_KEY:SECRET_KEY, or ACCESS_KEY:SECRET_KEY:SESSION_TOKEN"
    raise CredentialsMissing(reference, f"{scheme}:// needs {form} there")
