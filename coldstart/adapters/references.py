"""Secrets by reference: ``env:NAME`` and ``file:/path``. Errors name the reference, never what it holds."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from coldstart.core.cache.errors import CredentialsMissing

SECRET_BYTES_MOST = 64 << 10
"""A choice: a service account's key file has 2 to 3 KiB."""

_HEADER = re.compile(r"[\t -~]*")


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
    """Header values by their references. Raises as `secret`, and where it holds what no header may have."""
    return {name: header_value(reference) for name, reference in pairs}


def header_value(reference: str) -> str:
    """The same of a secret that is sent as a header's value: visible characters, spaces and tabs (RFC 9110, 5.5)."""
    value = secret(reference)
    if _HEADER.fullmatch(value) is None:
        raise CredentialsMissing(reference, "it holds characters that no header may have (a line feed, or not ASCII)")
    return value
