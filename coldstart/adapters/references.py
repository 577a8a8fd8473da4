"""Secrets by reference: ``env:NAME`` and ``file:/path``. Errors name the reference, never what it holds."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from coldstart.core.cache.errors import CredentialsMissing

SECRET_BYTES_MOST = 64 << 10
"""A choice: a service account's key file has 2 to 3 KiB."""


def secret(reference: str) -> str:
    """What the reference holds, without white space around it. CredentialsMissing: it leads nowhere."""
    kind, _, name = reference.partition(":")
    if kind == "env" and name:
        value = os.environ.get(name, "")
        if not value.strip():
            raise CredentialsMissing(reference, "the environment has no such variable, or it is empty")
        return value.strip()
    if kind == "file" and Path(name).is_absolute():
        return _file(reference, Path(name))
    raise CredentialsMissing("(not shown)", "this is no reference to a secret")


def _file(reference: str, path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            value = file.read(SECRET_BYTES_MOST).strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise CredentialsMissing(reference, f"the file cannot be read ({why})") from None
    if not value:
        raise CredentialsMissing(reference, "the file is empty")
    return value


def headers_of(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Header values by their references."""
    return {name: secret(reference) for name, reference in pairs}
