"""The digest of a set is what the page on weights says how to compute."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.coldstart.adapters.conftest import Open, made

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "weights.md"


@pytest.mark.needs("linux")
def test_the_page_s_command_gives_the_digest(place: Open) -> None:
    """With names that sort differently in other orders."""
    files = {"b": made(1, 10), "a/z": made(2, 10), "A": b"", "a-1": made(3, 10), "with space": b"x"}
    at = place("file", files, "b")
    got = at.fetch(at.several)
    (command,) = re.findall(r"^find .*sha256sum$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    ran = subprocess.run(["sh", "-c", command], cwd=got.path, capture_output=True, text=True, check=True)
    assert f"sha256:{ran.stdout.split()[0]}" == got.manifest.digest
