"""Whether what a trainer tells of is a checkpoint."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local.training.checking import Checker, look_at
from deploy.local.training.story import Saved
from events.units import Instant
from preemption.trainer import manifest as manifests
from preemption.trainer.manifest import BadCheckpoint
from preemption.trainer.store import Store


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    """A whole checkpoint of step 7, and what is told of it."""
    store = Store(tmp_path / "checkpoints", 2)
    folder = store.begin(7)
    (folder / "weights").write_bytes(b"x" * 100)
    made = store.commit(7, 1, tuple(manifests.describe(folder, path) for path in manifests.files_of(folder)))
    path = str(made.path.relative_to(tmp_path))
    return Saved(7, Instant(5.0), path, made.manifest.digest, 999, 0.5, "n1")


def test_a_whole_one(tmp_path: Path, saved: Saved) -> None:
    """It is verified; its size is what its manifest says; a relative path is from where the trainer started."""
    found = look_at(saved, tmp_path)
    assert (found.step, found.size, found.verified, found.manifest) == (7, 100, True, saved.manifest)
    assert found.path == str(tmp_path / saved.path)


def test_a_bare_word(tmp_path: Path, saved: Saved) -> None:
    """Without a manifest it is what the trainer says, and not verified."""
    found = look_at(replace(saved, manifest=""), tmp_path)
    assert (found.step, found.size, found.verified, found.manifest) == (7, 999, False, "")


def unmark(folder: Path) -> None:
    (folder / manifests.COMMITTED).unlink()


def cut(folder: Path) -> None:
    (folder / "weights").write_bytes(b"x" * 99)


def mark_of_another(folder: Path) -> None:
    (folder / manifests.COMMITTED).write_text("0" * 64)


def pipe(folder: Path) -> None:
    (folder / manifests.NAME).unlink()
    os.mkfifo(folder / manifests.NAME)


def nothing(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


@pytest.mark.parametrize("breaks", [unmark, cut, mark_of_another, pipe, nothing])
async def test_broken_ones(tmp_path: Path, saved: Saved, breaks: object) -> None:
    """Each is found out, and nothing waits for a pipe."""
    assert callable(breaks)
    breaks(tmp_path / saved.path)
    checker = Checker()
    with pytest.raises(BadCheckpoint):
        await checker.check(saved, tmp_path)
    checker.close()


@pytest.mark.parametrize("wrong", [{"step": 8}, {"manifest": "f" * 64}, {"path": "a\\0b"}, {"path": "/dev/zero"}])
def test_wrong_words(tmp_path: Path, saved: Saved, wrong: dict[str, object]) -> None:
    """Another step or manifest than it has, a path that is none."""
    with pytest.raises(BadCheckpoint):
        look_at(replace(saved, **wrong), tmp_path)  # type: ignore[arg-type]  # tests pass what fits
