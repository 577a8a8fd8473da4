"""The data folder: one relume each, whoever held it before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.folder import LOCK_NAME, FolderInUse, FolderUnusable, holder_of, open_folder

HOLDER = """
import pathlib, sys, time
sys.path.insert(0, {root!r})
from deploy.local.folder import open_folder
held = open_folder(pathlib.Path({folder!r}))
print("held", flush=True)
time.sleep(600)
"""


def hold(folder: Path) -> subprocess.Popen[str]:
    """Another process that holds the folder."""
    program = HOLDER.format(root=str(Path(__file__).parents[3]), folder=str(folder))
    other = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    with other.stdout:
        assert other.stdout.readline() == "held\n"
    return other


def test_second_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    """While one holds the folder another is refused and told whose it is; after kill -9 of the first it is free."""
    folder = tmp_path / "data"
    other = hold(folder)
    try:
        with pytest.raises(FolderInUse, match=f"pid {other.pid}.*--data-dir") as refused:
            open_folder(folder)
        assert refused.value.pid == other.pid
        assert holder_of(folder) == other.pid
    finally:
        other.kill()
        other.wait()
    held = open_folder(folder)
    assert (folder / LOCK_NAME).read_text() == f"{os.getpid()}\n"
    held.close()
    assert holder_of(folder) is None


def test_same_process_twice(tmp_path: Path) -> None:
    """Also within one process a folder is held once; closing gives it back."""
    held = open_folder(tmp_path)
    with pytest.raises(FolderInUse):
        open_folder(tmp_path)
    held.close()
    open_folder(tmp_path).close()


def test_owner_only(tmp_path: Path) -> None:
    """What relume makes is for its owner; a folder that was there keeps its permissions."""
    held = open_folder(tmp_path / "deep" / "data")
    assert held.path.stat().st_mode & 0o777 == 0o700
    assert held.logs.stat().st_mode & 0o777 == 0o700
    assert (held.path / LOCK_NAME).stat().st_mode & 0o777 == 0o600
    held.close()
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    open_folder(shared).close()
    assert shared.stat().st_mode & 0o777 == 0o755


def test_one_name_for_a_folder(tmp_path: Path) -> None:
    """However the folder was written, its mark is the same, so that stale processes are found."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    held = open_folder(tmp_path / "link" / ".." / "link")
    assert held.mark == str(tmp_path / "real")
    held.close()


def test_unusable(tmp_path: Path) -> None:
    """A path below a file cannot be a folder, and that is said."""
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderUnusable, match="cannot use the data folder"):
        open_folder(tmp_path / "file" / "data")
    assert holder_of(tmp_path / "nowhere") is None
