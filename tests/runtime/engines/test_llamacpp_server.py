"""The llama.cpp server program, as far as it goes without a model."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from deploy.demo.model import cached_path
from runtime.engines.llamacpp_server import BadWeights, check_gguf, find_weights, main

GGUF = b"GGUF" + struct.pack("<I", 3)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not a GGUF file"),
        (b"GGU", "not a GGUF file"),
        (b"PK\x03\x04" + bytes(20), "not a GGUF file"),
        (b"GGUF" + struct.pack("<I", 1), "version 1"),
        (b"GGUF" + struct.pack(">I", 3), "version"),
    ],
    ids=["empty", "short", "zip", "old", "big endian"],
)
def test_other_files_are_told_from_gguf(tmp_path: Path, content: bytes, said: str) -> None:
    """Before llama.cpp is loaded, and named."""
    path = tmp_path / "w.gguf"
    path.write_bytes(content)
    with pytest.raises(BadWeights, match=said) as caught:
        check_gguf(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["a.gguf"], "a.gguf"),
        (["a.gguf", "mmproj-a.gguf", "README.md"], "a.gguf"),
        (["a-00001-of-00002.gguf", "a-00002-of-00002.gguf"], "a-00001-of-00002.gguf"),
        (["a.gguf", "b.gguf"], None),
        ([], None),
    ],
    ids=["one", "with projector", "split", "two", "none"],
)
def test_a_folder_must_hold_one_model(tmp_path: Path, names: list[str], chosen: str | None) -> None:
    """Of a split one the first part is loaded; llama.cpp finds the others."""
    for name in names:
        (tmp_path / name).write_bytes(GGUF)
    if chosen is None:
        with pytest.raises(BadWeights, match="exactly one"):
            find_weights(str(tmp_path))
    else:
        assert find_weights(str(tmp_path)) == tmp_path / chosen


def test_missing_weights_end_with_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And exit code 1."""
    code = main(["--weights", str(tmp_path / "none.gguf"), "--port", "1", "--alias", "m"])
    assert code == 1
    assert capsys.readouterr().err == (
        f"relume-llamacpp: {tmp_path}/none.gguf does not exist; check spec.weights.uri\n"
    )


def test_weights_that_never_come_end_it_with_one_clear_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And exit code 1: relume is dead, or gave the start up."""
    monkeypatch.setitem(sys.modules, "xllamacpp", ModuleType("xllamacpp"))
    ours, theirs = socket.socketpair()
    ours.close()
    assert main(["--weights-from", str(theirs.detach()), "--port", "1", "--alias", "m"]) == 1
    assert "before the weights were here" in capsys.readouterr().err


def test_a_missing_engine_names_the_extra(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the command that installs it, and exit code 3."""
    path = tmp_path / "w.gguf"
    path.write_bytes(GGUF)
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    assert main(["--weights", str(path), "--port", "1", "--alias", "m"]) == 3
    assert "pip install 'relume[llamacpp]'" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.needs("model")
def test_cut_off_weights_end_with_llama_cpps_reason_and_ours(tmp_path: Path) -> None:
    """Exit code 1; our line names the file, llama.cpp's lines (which its own thread writes) the reason."""
    path = tmp_path / "cut.gguf"
    with cached_path().open("rb") as whole:
        path.write_bytes(whole.read(4_000_000))
    flags = ["--weights", str(path), "--port", "0", "--alias", "m", "--gpu-layers", "0"]
    ended = subprocess.run(
        [sys.executable, "-m", "runtime.engines.llamacpp_server", *flags],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert "corrupted or incomplete" in ended.stderr
    assert f"could not serve {path}" in ended.stderr
    assert "Traceback" not in ended.stderr
