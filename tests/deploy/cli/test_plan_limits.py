"""`relume plan -f` knows what quotas leave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from events.types.limits import Limit, LimitKind, LimitsObserved
from events.types.replicas import Card, CardsObserved
from tests.deploy.cli.conftest import LiveAdmin, Relume

FILES = """apiVersion: relume.dev/v1alpha1
kind: Model
metadata: {name: new}
spec: {engine: {type: simulated}, resources: {gpus: 1, cpu: 1, memory: 1Gi}, scaling: {maxReplicas: 4}}
---
apiVersion: relume.dev/v1alpha1
kind: TrainingJob
metadata: {name: tune}
spec: {command: [train], members: 2, resources: {gpus: 1, cpu: 1, memory: 1Gi}}
"""


NO = "ResourceQuota q leaves 0 of gpus, and it needs 1 of gpus"


@pytest.mark.parametrize(("left", "told"), [(4, ("", "")), (3, ("", NO)), (1, (NO, NO))])
def test_a_quota_that_says_no_is_named(
    live: LiveAdmin, relume: Relume, tmp_path: Path, left: int, told: tuple[str, str]
) -> None:
    """Five GPUs are free; two replicas and then a gang of two are asked for."""
    cards = tuple(Card(id=f"gpu-{index}", virtual=True) for index in range(5))
    limit = Limit(source="ResourceQuota q", resource="gpus", kind=LimitKind.GPUS, most=float(left))
    node = CardsObserved(node="local", cpu=64, memory_bytes=64 << 30, cards=cards)
    live.do(live.admin.say(node, LimitsObserved(space="models", limits=(limit,))))
    (tmp_path / "new.yaml").write_text(FILES)
    arguments = ("plan", "-f", str(tmp_path / "new.yaml"), "--replicas", "2")
    assert relume(*arguments, live=live).code == int(any(told))
    answer = json.loads(relume(*arguments, "-o", "json", live=live).out)
    assert (answer["items"][0]["limit"], answer["jobs"][0]["limit"]) == told
    assert relume(*arguments, live=live).out.count(f"not all would be made: {NO}") == sum(map(bool, told))
