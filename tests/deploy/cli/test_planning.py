"""`relume plan` over files: the answer's shape, what is generated, and what is wrong use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.deploy.cli.conftest import Relume

NODES = "sn,cpu_milli,memory_mib,gpu,model\na,8000,65536,2,A\nb,8000,65536,1,B\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
    "p0,1000,1024,1,1000,A\np1,1000,1024,1,500,\np2,1000,1024,1,500,\np3,1000,1024,2,1000,\np4,1000,1024,0,,\n"
)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Three cards on two nodes, and five pods of which one cannot be placed."""
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    return ["--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "pods.csv")]


@pytest.mark.parametrize("placement", ["relume", "fgd", "bestfit"])
def test_a_cluster_is_filled(relume: Relume, files: list[str], placement: str) -> None:
    """Each pod once, in the order of the file; figures on standard output alone."""
    ran = relume("plan", *files, "--placement", placement, "-o", "json")
    answer = json.loads(ran.out)
    assert (ran.code, ran.err) == (0, "")
    assert (answer["placed"], answer["failed"]) == (4, 1)
    assert answer["allocatedGpuFraction"] == pytest.approx(2 / 3, abs=1e-6)
    assert answer["arrivedGpuFraction"] == pytest.approx(4 / 3, abs=1e-6)
    assert 0 <= answer["fragmentation"] <= 1 / 3
    assert answer["seconds"] >= 0


def test_a_seed_fills_until_it_is_full(relume: Relume, files: list[str]) -> None:
    """More pods are drawn; the same seed gives the same figures but for the seconds."""
    answers = [json.loads(relume("plan", *files, "--seed", "3", "-o", "json").out) for _ in range(2)]
    for answer in answers:
        del answer["seconds"]
    assert answers[0] == answers[1]
    assert answers[0]["arrivedGpuFraction"] >= 1.3
    assert answers[0]["allocatedGpuFractionAtFullArrivals"] is not None


def test_words_for_people(relume: Relume, files: list[str]) -> None:
    """Without -o json."""
    assert "4 pods placed, 1 failed" in relume("plan", *files).out


def test_generate_and_plan(relume: Relume, tmp_path: Path) -> None:
    """What is generated is what plan reads."""
    made = json.loads(relume("plan", "--generate", str(tmp_path / "c"), "--scale", "0.01", "-o", "json").out)
    ran = relume("plan", "--nodes", made["nodes"], "--pods", made["pods"], "-o", "json")
    assert json.loads(ran.out)["placed"] > 50


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--generate DIR"),
        (["--nodes", "nodes.csv"], "--pods PODS.csv"),
        (["--placement", "worst"], "'worst' is not one of"),
        (["--nodes", "nowhere.csv", "--pods", "pods.csv"], "does not exist"),
        (["--generate", "x", "--nodes", "nodes.csv"], "--nodes does not go with --generate"),
        (["--nodes", "nodes.csv", "--pods", "pods.csv", "--arrivals", "2"], "goes with --seed"),
    ],
)
def test_wrong_use(
    relume: Relume, files: list[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    """Exit code 2, and what to write instead."""
    monkeypatch.chdir(Path(files[1]).parent)
    ran = relume("plan", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_a_broken_file_is_refused(relume: Relume, files: list[str], tmp_path: Path) -> None:
    """Exit code 1, with file, line and column."""
    (tmp_path / "pods.csv").write_text(PODS + "p5,1000,1024,1,5000,\n")
    ran = relume("plan", *files)
    assert (ran.code, ran.out) == (1, "")
    assert "line 7: gpu_milli is '5000'" in ran.err
