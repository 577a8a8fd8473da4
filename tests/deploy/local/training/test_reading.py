"""The report file: whole lines, whatever happens to the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.local.training.reading import ReportFile
from deploy.local.training.report import LONGEST_LINE


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def all_of(file: ReportFile) -> list[bytes]:
    """Until there is no more."""
    lines: list[bytes] = []
    while more := file.read():
        lines += more
    return lines


def test_only_whole_lines(tmp_path: Path) -> None:
    """The rest of a line comes with its end; at the very end what there is counts."""
    path = tmp_path / "r"
    file = ReportFile(path)
    assert file.read() == []
    append(path, b"one\ntw")
    assert all_of(file) == [b"one"]
    append(path, b"o\n\nthree")
    assert all_of(file) == [b"two"]
    assert file.read_last() == [b"three"]
    assert file.read_last() == []


def test_a_line_that_is_too_long(tmp_path: Path) -> None:
    """Nothing of it is kept, and those after it are read."""
    path = tmp_path / "r"
    file = ReportFile(path)
    append(path, b"one\n" + b"x" * (3 * LONGEST_LINE))
    assert all_of(file) == [b"one"]
    append(path, b"x" * LONGEST_LINE + b"\ntwo\n")
    assert all_of(file) == [b"two"]


def test_a_file_that_became_shorter_is_a_new_one(tmp_path: Path) -> None:
    """Somebody emptied it."""
    path = tmp_path / "r"
    file = ReportFile(path)
    append(path, b"one\ntwo\nthr")
    assert all_of(file) == [b"one", b"two"]
    path.write_bytes(b"four\n")
    assert all_of(file) == [b"four"]


def test_a_large_file_is_put_aside_and_nothing_of_it_is_lost(tmp_path: Path) -> None:
    """Also what a writer appends who had it open before; then it is removed."""
    path = tmp_path / "r"
    file = ReportFile(path, aside=10)
    with path.open("ab", buffering=0) as writer:
        writer.write(b"one is long enough\n")
        assert all_of(file) == [b"one is long enough"]
        assert not path.exists()
        writer.write(b"two\n")
        append(path, b"three\n")
        assert all_of(file) == [b"two"]
    for _ in range(4):
        lines = file.read()
        if lines:
            break
    assert lines == [b"three"]
    assert not (tmp_path / "r.old").exists()


def test_the_next_relume_finishes_the_one_put_aside(tmp_path: Path) -> None:
    """It reads it first, and then the present one."""
    path = tmp_path / "r"
    (tmp_path / "r.old").write_bytes(b"one\n")
    append(path, b"two\n")
    file = ReportFile(path)
    assert [line for _ in range(6) for line in file.read()] == [b"one", b"two"]


@settings(max_examples=50)
@given(st.lists(st.binary(min_size=1, max_size=40).filter(lambda one: one.strip() == one and b"\n" not in one)),
       st.lists(st.integers(1, 50), min_size=1))  # fmt: skip
def test_however_it_is_cut(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], cuts: list[int]) -> None:
    """Pieces of any size give the lines that were written, once each."""
    path = tmp_path_factory.mktemp("reading") / "r"
    data, file, found, at = b"".join(line + b"\n" for line in lines), ReportFile(path), [], 0
    for cut in cuts * (len(data) + 1):
        if at >= len(data):
            break
        append(path, data[at : at + cut])
        at += cut
        found += all_of(file)
    assert found == lines
