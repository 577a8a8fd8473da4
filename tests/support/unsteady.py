"""`python -m tests.support.unsteady`: what CI asks when tests have failed: do they fail alone as well? (decision 79)

A test with a real broker, API server or engine that failed beside two others on shared cores is run again, alone, three
times. It is unsteady only if it passes each time; one failure more, a test without a service, or several failures at
once are failures. What is unsteady is told, to be mended.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
MOST: Final = 3
"""Failures of one run; more have a cause in common, and that is not chance."""
TIMES: Final = 3
COUNTS: Final = ("tests", "errors", "failures", "skipped")
ENDED: Final = "relume/ended"
"""Where a run of the tests leaves its exit status; beside it pytest leaves what failed."""

Run = Callable[[Sequence[str]], str]
"""Runs slow tests by their ids, alone; what was wrong, or nothing."""


def verdict(failed: Sequence[str], ended: int | None, run: Run) -> str:
    """Why CI fails; empty if all that failed is unsteady."""
    if ended != 1:
        return f"the tests did not run to their end: exit status {ended}"
    if not failed:
        return "no test failed, and yet the run did"
    if len(failed) > MOST:
        return f"{len(failed)} tests failed; {MOST} at most are tried again"
    for time in range(1, TIMES + 1):
        if wrong := run(failed):
            return f"failed again, alone, at the {time}. of {TIMES} times: {wrong}"
    return ""


def alone(ids: Sequence[str]) -> str:
    """One run of slow tests, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "slow", "-p", "no:cacheprovider", f"--junitxml={report}"]
        code = subprocess.run([*command, *ids], cwd=ROOT, check=False).returncode
        if not report.exists():
            return f"pytest ended with {code} and no report"
        suite = ET.parse(report).getroot().find("testsuite")
    count = dict.fromkeys(COUNTS, 0) if suite is None else {name: int(suite.get(name, 0)) for name in COUNTS}
    passed = count["tests"] - count["errors"] - count["failures"] - count["skipped"]
    return "" if code == 0 and passed == len(ids) else f"{passed} of {len(ids)} slow tests passed"


def main() -> int:
    """0 if all that failed is unsteady."""
    cache = ROOT / ".pytest_cache" / "v"
    last, ended = cache / "cache" / "lastfailed", cache / ENDED
    failed: list[str] = sorted(json.loads(last.read_text(encoding="utf-8"))) if last.exists() else []
    status: int | None = json.loads(ended.read_text(encoding="utf-8")) if ended.exists() else None
    why = verdict(failed, status, alone)
    heading = f"failed: {why}" if why else f"UNSTEADY: failed beside others, passed {TIMES} times alone; to be mended"
    print("\n".join([heading, *(f"  {one}" for one in failed)]), flush=True)  # noqa: T201 - what CI shows
    return 1 if why else 0


if __name__ == "__main__":
    sys.exit(main())
