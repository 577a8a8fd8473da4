"""`relume plan -f`: when there is room, from what the log tells of those who hold it; or that nobody can tell."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.codec import memory_json, policy_json
from autoscaler.core.model import Memory, Reason
from deploy.api.idling import idle_at
from events.types.decisions import WishDecided
from events.types.grants import GrantDecided, Placement, ReplicaGrant
from events.types.replicas import Card, CardsObserved
from events.types.shared import Resources
from events.types.training import Ending, MemberGrant, TrainingGranted
from events.units import Instant, Seconds
from tests.deploy.cli.conftest import LiveAdmin, Relume
from tests.support.autoscaling import POLICY
from tests.support.autoscaling import declared as model_declared
from tests.support.training_events import declared, ended, granted, observed, reclaim, resumed

GPU = Resources(gpus=1, cpu=1, memory_bytes=1 << 30)

TRAIN = """apiVersion: relume.dev/v1alpha1
kind: TrainingJob
metadata: {name: new}
spec:
  command: [train]
  members: 2
  resources: {gpus: 1, cpu: 1, memory: 1Gi}
"""


def wish(at: float | None, *reasons: str, **policy: object) -> WishDecided:
    scaling = replace(POLICY, keep_alive=Seconds(300.0), **policy)  # type: ignore[arg-type]  # real fields
    return WishDecided(
        model="llama", uid="u", revision=1, replicas=1, priority=0, reasons=reasons, snapshot={},
        policy=policy_json(scaling), memory=memory_json(Memory(last_busy_at=at)),
    )  # fmt: skip


def llama(*, drain: bool = False) -> GrantDecided:
    place = Placement(node="local", gpus=("gpu-1",))
    one = ReplicaGrant(replica="llama-1-0", revision=1, placement=place, resources=GPU, drain=drain)
    return GrantDecided(model="llama", uid="u", revision=1, wished=1, replicas=(one,))


def runs(**more: object) -> TrainingGranted:
    member = MemberGrant(member="tune-0", placement=Placement(node="local", gpus=("gpu-0",)), resources=GPU)
    return replace(granted(members=1), members=(member,), **more)  # type: ignore[arg-type]  # real fields


@pytest.fixture
def file(tmp_path: Path) -> str:
    written = tmp_path / "new.yaml"
    written.write_text(TRAIN)
    return str(written)


@pytest.fixture
def pool(live: LiveAdmin) -> LiveAdmin:
    """Two cards: one trains, one serves."""
    cards = tuple(Card(id=f"gpu-{index}", virtual=True) for index in range(2))
    node = CardsObserved(node="local", cpu=8, memory_bytes=64 << 30, cards=cards)
    live.do(live.admin.say(node, declared(), runs(), observed(), model_declared("llama"), llama()))
    return live


def test_nobody_can_tell(relume: Relume, pool: LiveAdmin, file: str) -> None:
    """It says who holds what it needs, and what of it would have to happen."""
    ran = relume("plan", "-f", file, live=pool)
    assert ran.code == 1
    assert (
        "  when there is room nobody can tell: llama serves while it is asked, training/tune trains until it is done\n"
    ) in ran.out
    (item,) = json.loads(relume("plan", "-f", file, "-o", "json", live=pool).out)["jobs"]
    assert (item["roomAt"], [one["goes"] for one in item["roomFrom"]]) == (None, ["serves", "trains"])


def test_when_all_of_it_has_a_time(relume: Relume, pool: LiveAdmin, file: str) -> None:
    """A job that a person has paused saves as long as it usually does; a model that nobody asks idles out."""
    now = pool.admin.clock.now()
    saves = reclaim(name="r2", shortage="", cause="person", since=now - 1, due=now + 120, held=runs().members)
    pool.do(pool.admin.say(resumed(), saves, wish(now - 270.0, Reason.KEEP_ALIVE)))
    out = relume("plan", "-f", file, live=pool).out
    assert "training job new: 2 members: would wait until there is room" in out
    (line,) = (line for line in out.splitlines() if "there is room in" in line)
    assert ("training/tune ends (in " in line, "llama idles out (in 3" in line) == (True, True)
    (item,) = json.loads(relume("plan", "-f", file, "-o", "json", live=pool).out)["jobs"]
    assert [one["goes"] for one in item["roomFrom"]] == ["ends", "idles_out"]
    assert item["roomAt"] == item["roomFrom"][1]["at"]
    assert item["roomFrom"][0]["at"] < item["roomAt"]


def test_who_is_going_is_counted_on(relume: Relume, pool: LiveAdmin, file: str) -> None:
    """A run that has ended and a replica that drains: it starts as soon as they have gone. Who yields to a model makes
    no room for others; who waits already comes first."""
    gone = replace(ended(Ending.SAVED), empty_at=None, members=observed().members)
    pool.do(pool.admin.say(gone, llama(drain=True)))
    assert "would be started as soon as" in relume("plan", "-f", file, live=pool).out
    waits = replace(granted(members=0, reasons=("lacks_room",)), job="older", run=0)
    yields = reclaim(name="r3", state="notified")
    pool.do(pool.admin.say(replace(observed(), run=2), runs(run=2), yields, declared("older"), waits))
    out = relume("plan", "-f", file, live=pool).out
    assert "nobody can tell: llama drains (in " in out
    assert "training/tune yields to others" in out
    assert "jobs that wait already come first: older" in out


@pytest.mark.parametrize(
    ("decided", "at"),
    [
        (None, None), (wish(100.0, Reason.KEEP_ALIVE), 400.0), (wish(100.0, Reason.STEADY), None),
        (wish(None, Reason.KEEP_ALIVE), None), (wish(100.0, Reason.KEEP_ALIVE, min_replicas=1), None),
        (wish(100.0, Reason.KEEP_ALIVE, cold_start_cost=Seconds(60.0)), None),
        (replace(wish(100.0, Reason.KEEP_ALIVE), memory={"lastBusyAt": "soon"}), None),
    ],
)  # fmt: skip
def test_when_a_model_idles_out(decided: WishDecided | None, at: float | None) -> None:
    """By the last decision alone: while nobody asks, with a keep-alive that ends, and not by a forecast."""
    assert idle_at(decided) == (None if at is None else Instant(at))
