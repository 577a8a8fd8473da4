"""The compiled hot path: found only where it was built from the sources as they are, and turned off on request."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from compiling import modules
from compiling.finder import CompiledFinder

SHOW = "import compiling.finder, runtime.gateway.exchange as it; print(it.__file__)"


def ends(pure: str) -> str:
    """The file name's end of a hot module in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", SHOW], cwd=modules.ROOT, env={**os.environ, "RELUME_PURE": pure},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return Path(done.stdout.strip()).suffix


def test_every_module_is_there_and_counted() -> None:
    """A module that is renamed must be renamed there too."""
    assert [name for name in modules.MODULES if not modules.source(name).is_file()] == []


def test_it_can_be_turned_off() -> None:
    """RELUME_PURE=1 runs the sources, whatever was built."""
    assert ends("1") == ".py"


def test_it_is_used_where_it_was_built() -> None:
    """And only there."""
    assert ends("") == (".py" if modules.usable() is None else ".so")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of one hot module that imports another one, and a build of it."""
    monkeypatch.setattr(modules, "ROOT", tmp_path)
    monkeypatch.setattr(modules, "MODULES", ("runtime.hot",))
    (tmp_path / "runtime").mkdir()
    (tmp_path / "runtime" / "hot.py").write_text("from runtime.cold import LIMIT\n")
    (tmp_path / "runtime" / "cold.py").write_text("LIMIT = 1\n")
    folder = modules.built_into()
    folder.mkdir(parents=True)
    (folder / "stamp.json").write_text(f'{{"digest": "{modules.digest()}"}}')
    return tmp_path


def test_a_build_is_good_for_its_sources(checkout: Path) -> None:
    """Found again, as long as nothing changes."""
    assert modules.usable() == checkout / "build" / "compiled" / str(sys.implementation.cache_tag)


@pytest.mark.parametrize("name", ["hot", "cold"])
def test_an_edited_source_is_never_shadowed(checkout: Path, name: str) -> None:
    """Neither a compiled module nor one whose constants were compiled into it; nor by what is left of a build."""
    source = checkout / "runtime" / f"{name}.py"
    source.write_text(source.read_text() + "# edited\n")
    assert modules.usable() is None
    assert CompiledFinder().find_spec("runtime.hot") is None


def test_a_build_that_was_cut_short_is_none(checkout: Path) -> None:
    """The stamp is written last."""
    (modules.built_into() / "stamp.json").unlink()
    assert modules.usable() is None
    (modules.built_into() / "stamp.json").write_text("{")
    assert modules.usable() is None
