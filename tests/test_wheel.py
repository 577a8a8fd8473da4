"""The wheel: only our packages, and a command that works from any folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from pathlib import Path
from urllib.request import urlopen

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {"autoscaler", "coldstart", "deploy", "events", "preemption", "runtime"}
DEADLINE = 120.0
"""Seconds a step may take on a machine that is busy."""

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make wheel` does, without the network."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], check=True, timeout=DEADLINE)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel; its dependencies are lent from ours, without our editable install of relume."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(folder), "platbase": str(folder)}))
    install = ["install", "--quiet", "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), *install, str(wheel)],
        check=True, timeout=DEADLINE,
    )  # fmt: skip
    # A path in a .pth file is appended to sys.path; the .pth files there, as an editable install's, are not read.
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def run(environment: Path, *arguments: str, cwd: Path) -> str:
    """What a program of the environment writes; nothing of ours is on its path but what the wheel brought."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "RELUME_"))}
    program = str(environment / "bin" / arguments[0])
    done = subprocess.run(
        [program, *arguments[1:]], cwd=cwd, env=clean, capture_output=True, text=True, check=True, timeout=DEADLINE
    )
    return done.stdout.strip()


def test_only_our_packages(wheel: Path) -> None:
    """Every module of our packages, their metadata, and nothing else: no tests, no benchmarks."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES
    ours = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert ours == {name for name in names if name.endswith(".py")}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_runs_from_any_folder(environment: Path, tmp_path: Path) -> None:
    """`relume --version` is the wheel's, and `events` is ours, out of the wheel."""
    assert run(environment, "relume", "--version", cwd=tmp_path).startswith("relume ")
    told = run(environment, "python", "-c", "import events, deploy; print(events.__file__)", cwd=tmp_path)
    assert Path(told).is_relative_to(environment)


def test_needs_nothing_of_the_checkout(environment: Path, tmp_path: Path) -> None:
    """What commands read besides modules is there: the schema and a declaration, from an empty folder."""
    schema = json.loads(run(environment, "relume", "schema", cwd=tmp_path))
    assert "spec" in schema["properties"]
    example = ROOT / "docs" / "examples" / "echo.yaml"
    run(environment, "relume", "validate", "-f", str(example), cwd=tmp_path)


def test_serves(environment: Path, tmp_path: Path) -> None:
    """`relume up` out of the wheel starts, lists the example, answers, and ends with 0."""
    example, data = ROOT / "docs" / "examples" / "echo.yaml", tmp_path / "data"
    command = [str(environment / "bin" / "relume"), "up", "-f", str(example), "--data-dir", str(data)]
    command += ["--gateway-port", "0", "--admin-port", "0"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    try:
        gateway = _gateway(process, data / "endpoints.json", tmp_path / "log")
        with urlopen(f"{gateway}/v1/models", timeout=DEADLINE) as answer:
            assert [model["id"] for model in json.load(answer)["data"]] == ["echo"]
        body = json.dumps({"model": "echo", "prompt": "hello", "max_tokens": 2}).encode()
        with urlopen(f"{gateway}/v1/completions", data=body, timeout=DEADLINE) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 2
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0
    finally:
        process.kill()
        process.wait()


def _gateway(process: subprocess.Popen[bytes], endpoints: Path, log: Path) -> str:
    for _ in range(round(DEADLINE / 0.05)):
        if endpoints.exists():
            return str(json.loads(endpoints.read_text())["gateway"])
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    raise AssertionError(log.read_text())
