"""Readers of traces of minutes: in which words they refuse."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from deploy.simulation.minutes import read_azure_functions, read_femux
from deploy.simulation.reading import BadTrace

FEMUX = "HashApp,AverageMemUsage_MB,m1,m2\n"
AZURE = "HashFunction,1,2\n"

BAD = [
    ("", "is empty"),
    ("a,100,nan,1\n", "line 2: m1 is 'nan', which is no number; it must be from 0 to 1,000,000,000"),
    ("a,100,1,2\na,100,1,inf\n", "line 3: m2 is 'inf', which is too much"),
    ("a,100,-4,1\n", "m1 is '-4', which is negative"),
    ("a,100,1e30,1\n", "m1 is '1e30', which is too much"),
    ("a,100,many,1\n", "m1 is 'many', which is no number"),
    ("a,100,,1\n", "m1 is '', which is no number"),
    ("a,nan,1,1\n", "AverageMemUsage_MB is 'nan'"),
    ("a,-5,1,1\n", "AverageMemUsage_MB is '-5', which is negative"),
    ("a,5,1\n", "line 2: 3 cells under 4 headings"),
]


@pytest.mark.parametrize(("rows", "words"), BAD)
def test_femux(tmp_path: Path, rows: str, words: str) -> None:
    """With the file, the line, the column, what is there and what may be."""
    (tmp_path / "t.csv").write_text(FEMUX + rows if rows else "", encoding="utf-8")
    with pytest.raises(BadTrace, match=words):
        read_femux(tmp_path / "t.csv")


@pytest.mark.parametrize("cell", ["nan", "inf", "-3", "q", "", "1e30"])
def test_azure_functions(tmp_path: Path, cell: str) -> None:
    """A cell that is no count is named."""
    (tmp_path / "invocations.csv").write_text(f"{AZURE}a,1,1\nb,1,{cell}\n", encoding="utf-8")
    with pytest.raises(BadTrace, match=f"line 3: 2 is '{cell}'"):
        read_azure_functions(tmp_path / "invocations.csv")


@pytest.mark.parametrize(("other", "column"), [("durations", "Average"), ("memory", "AverageAllocatedMb")])
def test_the_files_beside_it(tmp_path: Path, other: str, column: str) -> None:
    """They are checked alike, and named."""
    (tmp_path / "invocations.csv").write_text(f"{AZURE}a,1,1\n", encoding="utf-8")
    (tmp_path / f"{other}.csv").write_text(f"HashFunction,{column}\na,nan\n", encoding="utf-8")
    with pytest.raises(BadTrace, match=f"{other}.csv, line 2: {column} is 'nan'"):
        read_azure_functions(tmp_path / "invocations.csv")


def test_a_mark_and_carriage_returns_change_nothing(tmp_path: Path) -> None:
    """Files of other systems, zipped ones too."""
    (tmp_path / "t.csv").write_bytes(gzip.compress(("\ufeff" + FEMUX + "a,100,1.0,2\n").replace("\n", "\r\n").encode()))
    assert read_femux(tmp_path / "t.csv").needed.tolist() == [[1, 2]]
