"""Notices in a file: JSON that the controller puts there whole, by rename; or Kubernetes' downward API.

The downward API gives a pod's annotations as lines ``key="value"``; the kubelet writes them anew within about a minute,
so this is the slow way in.
"""

from __future__ import annotations

import json
from pathlib import Path

from preemption.trainer.notice import MOST_BYTES, BadNotice, Notice, decode

ANNOTATION = "relume.dev/notice"


class FileChannel:
    """Looks at a file that may not be there. `look` returns what is new in it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = b""

    def look(self) -> Notice | None:
        """The notice that stands there, when it has changed since the last look. Raises BadNotice, once a text."""
        try:
            with self._path.open("rb") as file:
                text = file.read(MOST_BYTES + 1)
        except OSError:  # not there yet, or not readable now: the next look may find it
            return None
        if text == self._seen:
            return None
        self._seen = text
        return self._read(text)

    def _read(self, text: bytes) -> Notice | None:
        return decode(text) if text.strip() else None


class AnnotationsChannel(FileChannel):
    """Looks at a pod's annotations as the downward API shows them."""

    def _read(self, text: bytes) -> Notice | None:
        for line in text.decode("utf-8", "replace").splitlines():
            key, equals, value = line.partition("=")
            if equals and key == ANNOTATION:
                try:
                    return decode(json.loads(value))  # the value is quoted as Go does, which for JSON's texts is JSON
                except ValueError as error:
                    raise BadNotice(f"annotation {ANNOTATION}: {error}") from None
        return None
