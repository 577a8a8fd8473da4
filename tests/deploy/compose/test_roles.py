"""Which modules each role loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.needs import ROOT

MAKE = """
import sys
from pathlib import Path
from deploy.compose import up
from deploy.compose.roles import Role, folder_of, make
from deploy.settings.settings import Settings
from events.adapters.memory import MemoryEventLog
from events.clock import SystemClock

async def main():
    settings = Settings(data_dir=Path(sys.argv[2]))
    make(Role(sys.argv[1]), settings, MemoryEventLog(SystemClock()), SystemClock(), None)

import asyncio
asyncio.run(main())
print(*sys.modules)
"""


@pytest.mark.parametrize(
    ("role", "not_its_own"),
    [
        ("gateway", {"deploy.local.cluster", "deploy.kubernetes.cluster", "autoscaler.loop", "coldstart.cache"}),
        ("autoscaler", {"deploy.kubernetes.cluster", "runtime.gateway", "runtime.desk", "coldstart.cache"}),
        ("agent", {"deploy.kubernetes.cluster", "runtime.gateway", "autoscaler.loop"}),
        ("cluster", {"deploy.kubernetes.cluster", "runtime.gateway", "autoscaler.loop"}),
    ],
)
def test_a_role_loads_its_own_parts(role: str, not_its_own: set[str], tmp_path: object) -> None:
    """A process that starts has its callers wait: modules of other roles take a fifth of the CPU of its start."""
    ran = subprocess.run(
        [sys.executable, "-c", MAKE, role, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    loaded = set(ran.stdout.split())
    assert not loaded & not_its_own
    assert f"deploy.compose.{role}" in loaded
