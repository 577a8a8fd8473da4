"""Pools of GPUs on the command line, against a real admin server that follows a log."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from events.types.grants import LeadershipTaken
from events.types.reclaims import ReclaimStep
from tests.deploy.cli.conftest import LiveAdmin, Relume
from tests.support.training_events import resumed

POOL = """apiVersion: relume.dev/v1alpha1
kind: GpuPool
metadata: {name: default}
spec:
  reclaim: {budgetPerHour: 3}
  cardUnits: {H100: 3.5}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    written = tmp_path / "pool.yaml"
    written.write_text(POOL)
    return str(written)


def test_a_pool_is_applied_listed_described_and_deleted(live: LiveAdmin, relume: Relume, file: str) -> None:
    """As models are; what is left of the budget is told; YAML is what apply takes."""
    assert relume("apply", "-f", file, "--wait", live=live).err == "pool default created, revision 1\n"
    assert relume("apply", "-f", file, live=live).err == "pool default unchanged\n"
    now = live.admin.clock.now()
    yielded = replace(resumed(), history=(ReclaimStep(at=now - 60, happened="exit_saved", state="draining"),))
    live.do(live.admin.say(LeadershipTaken(pool="default", leader="here/1"), yielded, replace(yielded, id="r2")))
    lines = relume("get", "pools", "-o", "wide", live=live).out.splitlines()
    assert lines[1].split()[:6] == ["default", "here/1", "1/3", "60s", "20%", "20%"]
    assert "H100=3.5" in lines[1]
    told = relume("describe", "pool", "default", live=live).out
    assert "3 an hour; 2 jobs had to yield in the last, 1 more may" in told
    (item,) = json.loads(relume("get", "pools", "default", "-o", "json", live=live).out)["items"]
    assert item["status"]["settings"]["budgetPerHour"] == 3
    text = relume("get", "pools", "-o", "yaml", live=live).out
    assert relume("apply", "-f", "-", stdin=text, live=live).err == "pool default unchanged\n"
    assert relume("delete", "pool", "default", live=live).err == "pool default deleted; the defaults hold again\n"
    assert relume("get", "pools", live=live).err == "no pools\n"
    ran = relume("describe", "pool", "defalt", live=live)
    assert (ran.code, "there is no pool named 'defalt'" in ran.err) == (1, True)


def test_a_wrong_pool_is_refused_in_words(live: LiveAdmin, relume: Relume, tmp_path: Path) -> None:
    """With line, rule and remedy; nothing is declared."""
    wrong = tmp_path / "pool.yaml"
    wrong.write_text(POOL.replace("budgetPerHour: 3", "budgetPerHour: -3"))
    ran = relume("apply", "-f", str(wrong), live=live)
    assert ran.code == 1
    assert "spec.reclaim.budgetPerHour" in ran.err
    assert "must be at least 0" in ran.err
    ran = relume("validate", "-f", str(wrong), "-o", "json")
    assert json.loads(ran.out)["valid"] is False


def test_its_schema_is_for_editors(relume: Relume) -> None:
    """As those of models and jobs."""
    assert json.loads(relume("schema", "pool").out)["title"] == "GpuPool"
