"""`relume simulate` over traces of requests: the answer, the page, and what is wrong use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploy.simulation.frontier import TRIED
from tests.deploy.cli.conftest import Relume
from tests.deploy.cli.test_simulating import FIGURES


@pytest.fixture
def requests(tmp_path: Path) -> list[str]:
    """A request each two seconds for a minute, to two models."""
    lines = [f"{at * 2},{'ab'[at % 2]},100,20" for at in range(30)]
    (tmp_path / "mine.csv").write_text("\n".join(["time,model,inputTokens,outputTokens", *lines]), encoding="utf-8")
    return ["--trace", str(tmp_path / "mine.csv"), "--format", "csv"]


def test_json(relume: Relume, requests: list[str]) -> None:
    """The fields that stay, figures that this trace can give, and the same again by the same seed."""
    asked = ("simulate", *requests, "--policy", "relume", "--policy", "kpa:target=4,panicThreshold=3", "-o", "json")
    ran = relume(*asked)
    assert (ran.code, ran.err) == (0, "")
    answer = json.loads(ran.out)
    assert answer["trace"] == {
        "file": "mine.csv", "format": "csv", "models": 2, "requests": 30, "seconds": 58.0, "seed": 0,
    }  # fmt: skip
    for figures in answer["policies"].values():
        assert set(figures) >= FIGURES
        assert figures["memoryGbSeconds"] is None
        assert figures["requests"] == 30
        assert 0 < figures["idleGpuSeconds"] <= figures["gpuSeconds"]
    assert relume(*asked).out == ran.out
    assert relume(*asked, "--seed", "5").out != ran.out


def test_table_and_page(relume: Relume, requests: list[str], tmp_path: Path) -> None:
    """For people; the page draws each policy in both charts and escapes what was typed."""
    page = tmp_path / "page.html"
    ran = relume("simulate", *requests, "--policy", "keepalive(1m)", "--policy", "oracle", "--html", str(page))
    assert ran.code == 0
    assert ran.out.splitlines()[0].startswith("POLICY")
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") == text.count("</svg>") == 2
    assert text.count("keepalive(1m)") == 4
    assert "<script" not in text


def test_the_setting_counts(relume: Relume, requests: list[str]) -> None:
    """A start of nothing holds nobody; one that takes a minute holds everybody."""
    held = []
    for start in ("0", "1m"):
        ran = relume("simulate", *requests, "--policy", "relume", "--set", f"start={start}", "-o", "json")
        held.append(json.loads(ran.out)["policies"]["relume"]["heldSecondsP99"])
    assert held[0] < 0.2
    assert held[1] > 40


def test_frontiers(relume: Relume, requests: list[str], tmp_path: Path) -> None:
    """Settings of one policy are one line of the chart; of a mere name many are tried. What all keep at equal cost is
    told in each form."""
    page = tmp_path / "page.html"
    asked = ("simulate", *requests, "--frontier", "--seeds", "2", "--policy", "kpa:target=4", "--policy", "keepalive")
    ran = relume(*asked, "-o", "json", "--html", str(page))
    assert ran.code == 0
    answer = json.loads(ran.out)
    assert answer["trace"]["requests"] == 30
    assert answer["tried"] == {"kpa": 1, "keepalive": TRIED}
    assert answer["seeds"] == 2
    assert set(answer["frontiers"]) == set(answer["equalCost"][0]["withinSlo"]) == {"kpa", "keepalive"}
    assert page.read_text(encoding="utf-8").count("<polyline") == 2
    lines = relume(*asked).out.splitlines()
    assert lines[0].startswith("SETTING")
    assert any(line.startswith("AT GPU·s") and "keepalive" in line for line in lines)


def test_a_part(relume: Relume, requests: list[str]) -> None:
    """From an instant on, for so long: six of the thirty."""
    ran = relume("simulate", *requests, "--policy", "kpa", "--from", "20s", "--for", "12s", "-o", "json")
    assert json.loads(ran.out)["trace"]["requests"] == 6


WRONG = [
    (["--policy", "kpa:cooldown=5m"], "kpa has no option 'cooldown'"),
    (["--policy", "kpa:panicThreshold=0.5"], "greater than or equal to 1.1"),
    (["--policy", "relume:target=17"], "above slots 16"),
    (["--policy", "oracle(3)"], "oracle takes no value"),
    (["--policy", "magic"], "there is no policy 'magic'"),
    (["--policy", "relume", "--set", "speed=3"], "is no setting"),
    (["--policy", "relume", "--set", "slots=0"], "whole number from 1"),
    (["--policy", "relume", "--set", "start=soon"], "is not a duration"),
    (["--policy", "relume", "--apps", "{trace}"], "--apps is for traces of minutes"),
    (["--policy", "relume", "--seeds", "2"], "--seeds goes with --frontier"),
    (["--policy", "relume", "--from", "noon"], "--from, --for"),
    (["--policy", "relume", "--thin", "0"], "--thin"),
]


@pytest.mark.parametrize(("options", "words"), WRONG)
def test_wrong_use(relume: Relume, requests: list[str], options: list[str], words: str) -> None:
    """Exit code 2, and what would be right."""
    ran = relume("simulate", *requests, *[one.replace("{trace}", requests[1]) for one in options])
    assert ran.code == 2
    assert words in ran.err


def test_refused(relume: Relume, requests: list[str], tmp_path: Path) -> None:
    """A file of another kind, and a policy that is not there: exit code 1."""
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    other = ["--trace", str(tmp_path / "other.csv"), "--format", "azure-llm", "--policy", "relume"]
    assert (ran := relume("simulate", *other)).code == 1
    assert "no column 'TIMESTAMP'" in ran.err
    assert (ran := relume("simulate", *requests, "--policy", "no.such.module:decide")).code == 1
    assert "cannot be imported" in ran.err
