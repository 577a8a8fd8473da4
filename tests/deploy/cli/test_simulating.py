"""`relume simulate`: the shape of the answer, what is wrong use, and policies that are broken."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest

from tests.deploy.cli.conftest import Relume

FIGURES = {
    "coldStarts", "memoryGbSeconds", "gpuSeconds", "idleGpuSeconds", "requests", "withinSlo", "heldSecondsP99",
    "decisions", "flaps",
}  # fmt: skip


@pytest.fixture
def femux(tmp_path: Path) -> list[str]:
    """Two apps over four minutes."""
    text = "HashApp,AverageMemUsage_MB,m1,m2,m3,m4\na,500,1.0,0.0,1.0,1.0\nb,1000,0.0,2.0,0.0,0.0\n"
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    return ["--trace", str(tmp_path / "t.csv.gz"), "--format", "femux"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, where a user's own module lies."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_json(relume: Relume, femux: list[str]) -> None:
    """On standard output alone, keyed as typed, null for what such a trace cannot tell."""
    ran = relume("simulate", *femux, "--policy", "keepalive(1m)", "--policy", "oracle", "-o", "json")
    answer = json.loads(ran.out)
    assert (ran.code, ran.err) == (0, "")
    assert answer["trace"]["models"] == 2
    assert list(answer["policies"]) == ["keepalive(1m)", "oracle"]
    first = answer["policies"]["keepalive(1m)"]
    assert set(first) >= FIGURES
    assert (first["coldStarts"], first["decisions"], first["gpuSeconds"]) == (4, 8, None)
    assert first["memoryGbSeconds"] == 0.5 * (2 * 60 + 2 * 30) + 1.0 * (2 * 60 + 2 * 30)


def test_table(relume: Relume, femux: list[str]) -> None:
    """For people."""
    ran = relume("simulate", *femux, "--policy", "keepalive(1m)", "--policy", "relume")
    assert ran.code == 0
    assert ran.out.splitlines()[0].startswith("POLICY")
    assert [line.split()[0] for line in ran.out.splitlines()[1:]] == ["keepalive(1m)", "relume"]


def test_only_some_apps(relume: Relume, femux: list[str], tmp_path: Path) -> None:
    """Those that the first column of a file names."""
    (tmp_path / "apps.csv").write_text("HashApp,cold_starts\nb,3\n")
    ran = relume("simulate", *femux, "--policy", "kpa", "--apps", str(tmp_path / "apps.csv"), "-o", "json")
    assert json.loads(ran.out)["trace"]["models"] == 1


def test_azure_functions(relume: Relume, tmp_path: Path) -> None:
    """Requests are counted; what a minute needs is their time, rounded up."""
    (tmp_path / "f_invocations.csv").write_text("HashFunction,1,2\nf,120,0\n")
    (tmp_path / "f_durations.csv").write_text("HashFunction,Average\nf,1000\n")
    ran = relume(
        "simulate", "--trace", str(tmp_path / "f_invocations.csv"), "--format", "azure-functions", "--policy", "oracle",
        "-o", "json",
    )  # fmt: skip
    answer = json.loads(ran.out)["policies"]["oracle"]
    assert (answer["requests"], answer["replicaSeconds"]) == (120, 120.0)


def test_page(relume: Relume, femux: list[str], tmp_path: Path) -> None:
    """A page that is whole in itself, with each policy in it."""
    ran = relume("simulate", *femux, "--policy", "kpa", "--policy", "oracle", "--html", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert ran.code == 0
    assert page.count("<circle") == 2
    assert "<script" not in page
    assert "src=" not in page


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--policy", "best"], "no policy 'best'"),
        ([], "--policy"),
        (["--policy", "kpa", "--format", "wrong"], "'wrong' is not"),
        (["--policy", "kpa", "--frontier"], "--frontier are for traces of requests"),
        (["--policy", "kpa", "--thin", "2"], "--thin"),
    ],
)
def test_wrong_use(relume: Relume, femux: list[str], arguments: list[str], said: str) -> None:
    """Exit code 2."""
    ran = relume("simulate", *femux, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_another_format_is_refused(relume: Relume, femux: list[str]) -> None:
    """Exit code 1, with the column that is missing."""
    ran = relume("simulate", *femux[:3], "azure-functions", "--policy", "kpa")
    assert (ran.code, ran.out) == (1, "")
    assert "HashFunction" in ran.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("HashApp,AverageMemUsage_MB,m1\n", "nothing below"),
        ("HashApp,AverageMemUsage_MB,m1,m2\na,5,1\n", "line 2: 3 cells under 4 headings"),
        ("HashApp,AverageMemUsage_MB,m1\na,5,many\n", "'many'"),
    ],
)
def test_a_broken_trace_is_refused(relume: Relume, tmp_path: Path, text: str, said: str) -> None:
    """Exit code 1, and where it is broken."""
    (tmp_path / "t.csv").write_text(text)
    ran = relume("simulate", "--trace", str(tmp_path / "t.csv"), "--format", "femux", "--policy", "kpa")
    assert (ran.code, ran.out) == (1, "")
    assert said in ran.err


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise ValueError('lost')", "after 0 grains raised ValueError: lost"),
        ("raise BaseException('all')", "raised BaseException: all"),
        ("raise type('Mute', (Exception,), {'__str__': lambda _: 1 / 0})", "raised Mute, which has no words"),
        ("return type('Odd', (), {'__repr__': lambda _: 1 / 0})()", "answered <Odd instance"),
        ("return -1", "answered -1 after 0 grains"),
        ("return None", "answered None"),
        ("raise SystemExit(0)", "raised SystemExit"),
    ],
)
def test_a_broken_policy_is_named(relume: Relume, femux: list[str], here: Path, body: str, said: str) -> None:
    """Exit code 1; the others are not to blame."""
    module = f"broken_{abs(hash(body))}"
    (here / f"{module}.py").write_text(f"def hold(past):\n    {body}\n")
    ran = relume("simulate", *femux, "--policy", "kpa", "--policy", f"{module}:hold", "-o", "json")
    assert (ran.code, ran.out) == (1, "")
    assert f"{module}:hold" in ran.err
    assert said in ran.err


def test_a_policy_of_ones_own(relume: Relume, femux: list[str], here: Path) -> None:
    """It sees the past, oldest first."""
    (here / "own_policy_here.py").write_text("def hold(past):\n    return past[-1] if past else 0\n")
    answers = json.loads(
        relume("simulate", *femux, "--policy", "own_policy_here:hold", "--policy", "keepalive(1m)", "-o", "json").out
    )["policies"]
    assert answers["own_policy_here:hold"] == answers["keepalive(1m)"]


@pytest.mark.parametrize("path", ["nowhere_at_all:hold", "json:no_such_function"])
def test_a_policy_that_is_not_there(relume: Relume, femux: list[str], path: str) -> None:
    """Exit code 1, with its name."""
    ran = relume("simulate", *femux, "--policy", path)
    assert (ran.code, ran.out) == (1, "")
    assert path in ran.err
