"""What obstore's errors mean. Their texts are not passed on: they may hold signed addresses."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Final

from coldstart.core.cache.errors import Interrupted, SourceRefused, Throttled, VersionMoved

_STATUS = re.compile(r"(?:status code|status):? (\d{3})")

_REFUSED: Final = {
    "PermissionDeniedError": "the credentials are not enough (403)",
    "UnauthenticatedError": "the credentials are not right (401)",
    "FileNotFoundError": "there is no such object (404)",
    "InvalidPathError": "the library cannot name this object",
    "NotSupportedError": "the store cannot do that",
}


@contextlib.contextmanager
def telling(shown: str) -> Iterator[None]:
    """Errors of the library as ours. `shown`: the address without secrets."""
    from obstore.exceptions import BaseError  # noqa: PLC0415 - an extra; who opened the store was told if it is missing

    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        raise told(error, shown) from None


def told(error: Exception, shown: str) -> Exception:
    """By the error's kind, else by the HTTP status in its text, else by how the connection failed."""
    kind, text = type(error).__name__, str(error)
    if kind == "PreconditionError":
        return VersionMoved()
    if "169.254." in text or "metadata.google.internal" in text:
        return SourceRefused(shown, "there are no credentials, and this machine's cloud gives none")
    if kind in _REFUSED:
        return SourceRefused(shown, _REFUSED[kind])
    found = _STATUS.search(text)
    if found is not None:
        return _by_status(found[1], shown)
    slow = "timed out" in text or "TimedOut" in text
    return Interrupted(f"{'it took too long' if slow else 'the connection failed'} ({kind})")


def _by_status(status: str, shown: str) -> Exception:
    if status in ("429", "503"):
        return Throttled(f"it answers {status}", None)
    if status.startswith("4") and status not in ("408", "425"):
        return SourceRefused(shown, f"it answers {status}")
    return Interrupted(f"it answers {status}")
