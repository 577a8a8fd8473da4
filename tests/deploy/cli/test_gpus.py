"""`relume gpus` and `relume plan -f` against a real admin server that follows a log."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.cli.gpus import picture
from events.types.caches import CacheObserved, ModelWarmth
from events.types.grants import GrantDecided, Placement, ReplicaGrant, Shortage
from events.types.replicas import Card, CardsObserved, ReplicasObserved, ReplicaState, ReplicaStatus
from events.types.shared import Resources
from events.types.training import CheckpointStatus, Ending, RunState
from tests.deploy.cli.conftest import LiveAdmin, Relume
from tests.support.training_events import declared, granted, observed

GI = 1 << 30

MODEL = """apiVersion: relume.dev/v1alpha1
kind: Model
metadata: {name: new}
spec:
  engine: {type: simulated}
  resources: RESOURCES
  scaling: {maxReplicas: 3}
"""


def grant(model: str, resources: Resources, *places: Placement) -> GrantDecided:
    replicas = tuple(
        ReplicaGrant(replica=f"{model}-1-{index}", revision=1, placement=place, resources=resources)
        for index, place in enumerate(places)
    )
    return GrantDecided(model=model, uid="u", revision=1, wished=len(places), replicas=replicas)


@pytest.fixture
def pool(live: LiveAdmin) -> LiveAdmin:
    """Two nodes: on one llama holds a card and embed a half of the next; on the other nobody holds anything."""
    live.do(live.admin.say(
        CardsObserved(node="n1", cpu=8, memory_bytes=64 * GI, cards=(
            Card(id="g0", product="NVIDIA A100-SXM4-40GB", memory_bytes=40960 << 20), Card(id="g1", virtual=True))),
        CardsObserved(node="n2", cpu=4, memory_bytes=64 * GI, cards=(Card(id="g2", virtual=True),)),
        grant("llama", Resources(gpus=1, cpu=1, memory_bytes=GI), Placement(node="n1", gpus=("g0",))),
        grant("embed", Resources(gpu_fraction=0.5, cpu=1, memory_bytes=GI), Placement(node="n1", gpus=("g1",))),
    ))  # fmt: skip
    return live


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Where a test writes its model."""
    return tmp_path / "new.yaml"


def test_the_table_says_who_holds_what(relume: Relume, pool: LiveAdmin) -> None:
    """A line a card; usable rather than nominal bytes; unknown is not zero."""
    ran = relume("gpus", live=pool)
    lines = [line.split() for line in ran.out.splitlines()]
    assert lines[0] == ["NODE", "GPU", "PRODUCT", "USABLE", "NVLINK", "NUMA", "A100S", "FREE", "HOLDERS"]
    assert lines[1] == ["n1", "g0", "NVIDIA", "A100-SXM4-40GB", "39.2Gi", "0", "-", "1", "0", "llama-1-0"]
    assert lines[2] == ["n1", "g1", "virtual", "-", "-", "-", "1", "0.5", "embed-1-0", "(0.5)"]
    assert lines[3] == ["n2", "g2", "virtual", "-", "-", "-", "1", "1"]
    assert ran.err.startswith("1.5 of 3 GPUs are free; ")


def test_the_picture_has_a_block_a_card(relume: Relume, pool: LiveAdmin) -> None:
    """One letter a model, eighths of a card."""
    ran = relume("gpus", "-o", "picture", live=pool)
    assert ran.out.splitlines() == ["n1  [BBBBBBBB] [AAAA····]", "n2  [········]", "", "A embed   B llama   · free"]


def _card(name: str, *holders: dict[str, object], part: float = 1.0, turns: int = 0) -> dict[str, object]:
    """A card, or the part of one, as the admin port tells it."""
    free = part - sum(float(str(one["share"])) for one in holders)
    return {"id": name, "turns": turns, "holders": list(holders), "free": free, "link": None, "numa": None}


def test_the_picture_of_many_models_stays_readable() -> None:
    """Beyond the letters all models share a mark; a node without cards says so."""
    holders = [{"replica": f"r{i}", "model": f"m{i:02}", "share": 0.01} for i in range(60)]
    nodes = [
        {"node": "a", "cards": [_card(str(at), holder) for at, holder in enumerate(holders)]},
        {"node": "b", "cards": []},
    ]
    lines = picture({"nodes": nodes})
    assert lines[0].count("[") == 60
    assert "[#·······]" in lines[0]
    assert lines[1] == "b  no GPU"
    assert lines[-1].endswith("# others   · free")


def test_the_picture_shows_how_cards_reach_each_other() -> None:
    """Islands of NVLink hang together, NUMA nodes are apart; the legend says so where there are any."""
    domains = [(0, 0), (0, 0), (None, 0), (1, 1), (1, 1), (None, None)]
    cards = [{**_card(str(at)), "link": link, "numa": numa} for at, (link, numa) in enumerate(domains)]
    lines = picture({"nodes": [{"node": "a", "cards": cards}]})
    card = "[········]"
    assert lines[0] == f"a  {card}={card} {card} | {card}={card} {card}"
    assert lines[-1] == "· free   = NVLink   | another NUMA node"


def test_the_picture_shows_the_turns_of_a_card_together() -> None:
    """A time-sliced card is a block as any other, and its turns stand beside each other."""
    held = {"g0::1": [{"replica": "a-r1-0", "model": "a", "share": 0.25}]}
    names = [f"g{card}::{turn}" for turn in range(4) for card in range(2)]
    cards = [_card(name, *held.get(name, []), part=0.25, turns=4) for name in names]
    lines = picture({"nodes": [{"node": "a", "cards": cards}]})
    assert lines[0] == "a  [··:AA:··:··] [··:··:··:··]"
    assert lines[-1] == "A a   · free   : a turn of the same card"


def test_json_is_the_inventory(relume: Relume, pool: LiveAdmin) -> None:
    """Fragmentation counts the free half where a whole card is typical as well as a half."""
    answer = json.loads(relume("gpus", "-o", "json", live=pool).out)
    assert (answer["total"], answer["free"]) == (3, 1.5)
    assert answer["fragmentation"] == pytest.approx(0.25 / 3, abs=1e-3)
    assert answer["nodes"][0]["cpuFree"] == 6
    assert answer["nodes"][0]["cards"][1]["holders"] == [{"replica": "embed-1-0", "model": "embed", "share": 0.5}]


def test_plan_says_where_it_would_go(relume: Relume, pool: LiveAdmin, model: Path) -> None:
    """A half goes onto the card that is broken already; nothing is declared."""
    model.write_text(MODEL.replace("RESOURCES", "{gpuFraction: 0.5, cpu: 1, memory: 1Gi}"))
    ran = relume("plan", "-f", str(model), "-o", "json", live=pool)
    (item,) = json.loads(ran.out)["items"]
    assert (ran.code, ran.err) == (0, "")
    assert (item["outcome"], item["places"], item["room"]) == ("fits", [{"node": "n1", "gpus": ["g1"]}], 3)
    assert item["fragmentationAfter"] < item["fragmentationBefore"]
    assert (item["victims"], item["message"], item["maxReplicas"]) == ([], "", 3)
    assert json.loads(relume("get", "models", "-o", "json", live=pool).out) == {"items": []}


def test_plan_says_what_is_lacking(relume: Relume, pool: LiveAdmin, model: Path) -> None:
    """Exit code 1, in the allocator's words; and how many would fit."""
    model.write_text(MODEL.replace("RESOURCES", "{gpus: 2, cpu: 1, memory: 1Gi}"))
    ran = relume("plan", "-f", str(model), live=pool)
    assert ran.code == 1
    assert "new: 1 replica more: does not fit" in ran.out
    assert "needs 2 GPUs" in ran.out
    model.write_text(MODEL.replace("RESOURCES", "{gpus: 1, cpu: 1, memory: 1Gi}"))
    ran = relume("plan", "-f", str(model), "--replicas", "2", live=pool)
    assert (ran.code, "fewer have room" in ran.out) == (1, True)


def test_words_of_a_fit(relume: Relume, pool: LiveAdmin, model: Path) -> None:
    """Where, how many, and what becomes of the rest."""
    model.write_text(MODEL.replace("RESOURCES", "{gpus: 1, cpu: 4, memory: 1Gi}"))
    ran = relume("plan", "-f", str(model), live=pool)
    assert ran.code == 0
    assert "  on n2: g2" in ran.out.splitlines()
    assert "room for 1 in all; maxReplicas is 3" in ran.out


JOB = """apiVersion: relume.dev/v1alpha1
kind: TrainingJob
metadata: {name: tune}
spec:
  command: [train]
  members: 1
  resources: {gpus: 1, cpu: 1, memory: 1Gi}
"""

NO_RESERVE = """apiVersion: relume.dev/v1alpha1
kind: GpuPool
metadata: {name: default}
spec: {reserve: {wholeCards: 0, sharedCards: 0}}
"""


def test_documents_are_planned_in_their_order(relume: Relume, pool: LiveAdmin, model: Path) -> None:
    """As apply takes them: each sees what those before it would take; settings of the pool count for all."""
    text = MODEL.replace("RESOURCES", "{gpus: 1, cpu: 4, memory: 1Gi}")
    model.write_text(f"{text}---\n{JOB}---\n{NO_RESERVE}")
    ran = relume("plan", "-f", str(model), live=pool)
    first, second = ran.out.split("\n\n")
    assert first.startswith("model new: 1 replica more: fits now\n  on n2: g2")
    assert second.startswith("training job tune: 1 member: would wait until there is room\n  0 members have room")
    assert ran.code == 1
    model.write_text(f"{JOB}---\n{NO_RESERVE}---\n{text}")
    ran = relume("plan", "-f", str(model), "-o", "json", live=pool)
    answer = json.loads(ran.out)
    (job,), (item,) = answer["jobs"], answer["items"]
    assert (job["order"], job["starts"], job["places"], job["startedMembers"]) == (
        0, "now", [{"node": "n2", "gpus": ["g2"]}], 1,
    )  # fmt: skip
    assert (item["order"], item["outcome"], ran.code) == (2, "reclaims", 0)
    model.write_text(JOB)
    assert relume("plan", "-f", str(model), live=pool).code == 0


def test_plan_says_how_soon_it_would_answer_where(relume: Relume, pool: LiveAdmin, model: Path) -> None:
    """Of nodes with room, as their agents tell; the soonest first. Of other weights, or another revision, nothing."""
    text = MODEL.replace("RESOURCES", "{gpuFraction: 0.5, cpu: 1, memory: 1Gi}")
    model.write_text(text.replace("  resources", "  weights: {uri: /models/a.gguf}\n  resources"))
    assert relume("apply", "-f", str(model), live=pool).code == 0

    def told(node: str, tier: str, seconds: float | None, revision: int = 1) -> CacheObserved:
        warmth = ModelWarmth(model="new", tier=tier, seconds=seconds, revision=revision)
        return CacheObserved(node=node, used_bytes=0, capacity_bytes=GI, models=(warmth,))

    pool.do(pool.admin.say(told("n1", "remote", 44.0), told("n2", "memory", 1.25)))
    ran = relume("plan", "-f", str(model), live=pool)
    first, second = (line for line in ran.out.splitlines() if "has room" in line)
    assert first == "  n2 has room for 2: first token in 1.2 s; its weights are in memory"
    assert second == "  n1 has room for 1: first token in 44.0 s; they are fetched"
    pool.do(pool.admin.say(told("n1", "disk", None), told("n2", "memory", 1.25, revision=2)))
    (item,) = json.loads(relume("plan", "-f", str(model), "-o", "json", live=pool).out)["items"]
    assert [(one["node"], one["tier"], one["seconds"]) for one in item["nodes"]] == [
        ("n2", None, None), ("n1", "disk", None),
    ]  # fmt: skip
    model.write_text(model.read_text().replace("a.gguf", "b.gguf"))
    assert "has room" not in relume("plan", "-f", str(model), live=pool).out


def test_moves_against_fragmentation(relume: Relume, live: LiveAdmin) -> None:
    """Two halves on two cards: one moves to the other's card, which makes room for a whole one. Replicas that do not
    serve yet stay, and why there is no move is said."""
    halves = Resources(gpu_fraction=0.5, cpu=1, memory_bytes=GI)
    places = [Placement(node="n", gpus=(card,)) for card in ("g0", "g1")]
    cards = tuple(Card(id=f"g{index}", virtual=True) for index in range(3))
    whole = grant("big", Resources(gpus=2, cpu=1, memory_bytes=GI))
    short = Shortage(replicas=1, message="", resources=Resources(gpus=2, cpu=1))
    live.do(live.admin.say(
        CardsObserved(node="n", cpu=8, memory_bytes=64 * GI, cards=cards), grant("embed", halves, *places),
        replace(whole, wished=1, shortage=short),
    ))  # fmt: skip
    ran = relume("gpus", "defragment", live=live)
    assert ran.err.startswith("no move: nothing that holds a GPU may be moved")
    ready = tuple(
        ReplicaStatus(replica=f"embed-1-{index}", uid="u", revision=1, state=ReplicaState.READY, node="n",
                      gpus=place.gpus, resources=halves)
        for index, place in enumerate(places)
    )  # fmt: skip
    live.do(live.admin.say(ReplicasObserved(model="embed", uid="u", replicas=ready)))
    plan = json.loads(relume("gpus", "defragment", "-o", "json", live=live).out)
    (move,) = plan["moves"]
    assert (move["source"]["gpus"], move["target"]["gpus"]) in ((["g0"], ["g1"]), (["g1"], ["g0"]))
    assert plan["fragmentationAfter"] < plan["fragmentationBefore"]
    assert {"needs": "2 GPU, 1 CPU, 0Gi", "before": 0, "after": 1} in plan["makesRoomFor"]
    assert (move["price"], plan["message"]) == (30.0, "")
    ran = relume("gpus", "defragment", live=live)
    assert ran.out.splitlines()[0].split() == ["MOVE", "FROM", "TO", "GAINED", "PRICE", "HOW"]
    assert "room for 1 more with 2 GPU, 1 CPU, 0Gi each, instead of 0" in ran.err


def test_a_card_is_kept_out_of_use_by_hand(relume: Relume, pool: LiveAdmin, model: Path) -> None:
    """It is shown with the reason, nothing is planned on it, and it is in the log; said otherwise, it is used again."""
    assert relume("gpus", "cordon", "g2", "--reason", "ECC errors", live=pool).code == 0
    assert "cordoned: ECC errors" in relume("gpus", live=pool).out
    model.write_text(MODEL.replace("RESOURCES", "{gpus: 1, cpu: 1, memory: 1Gi}"))
    assert relume("plan", "-f", str(model), live=pool).code == 1
    assert json.loads(relume("gpus", "-o", "json", live=pool).out)["free"] == 1.5
    ran = relume("gpus", "uncordon", "n2/g2", live=pool)
    assert ran.err == "GPU n2/g2 may be used, and counts as empty\n"
    assert relume("plan", "-f", str(model), live=pool).code == 0
    for named in ("n2/g9", "g9"):
        ran = relume("gpus", "cordon", named, live=pool)
        assert (ran.code, "no " in ran.err) == (1, True)


def test_what_a_run_left_on_its_cards_is_held(relume: Relume, pool: LiveAdmin) -> None:
    """A run that has ended holds its cards until they are seen empty, also when its grant is gone."""
    seen = replace(observed(), members=(replace(observed().members[0], node="n2", gpus=("g2",)),))
    left = replace(seen, state=RunState.ENDED, ended_at=seen.started_at, ending=Ending.LOST)
    pool.do(pool.admin.say(declared(), granted(members=0), left))
    assert "tune-0" in relume("gpus", live=pool).out
    pool.do(pool.admin.say(replace(left, empty_at=left.ended_at)))
    assert "tune-0" not in relume("gpus", live=pool).out


def test_a_wrong_document_is_refused(relume: Relume, pool: LiveAdmin, model: Path) -> None:
    """As `apply` does."""
    model.write_text(MODEL.replace("RESOURCES", "{gpus: -1}"))
    assert relume("plan", "-f", str(model), live=pool).code == 1


@pytest.mark.parametrize("arguments", [["--nodes", "x"], ["--seed", "1"], ["--generate", "x"]])
def test_files_of_models_and_of_clusters_do_not_mix(
    relume: Relume, model: Path, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").write_text("")
    wanted = [*arguments[:1], "y"] if arguments[0] == "--generate" else arguments
    ran = relume("plan", "-f", str(model), *wanted)
    assert (ran.code, "does not go with -f" in ran.err) == (2, True)


def test_no_node_yet(relume: Relume, live: LiveAdmin, model: Path) -> None:
    """Before the adapter has reported anything: nothing, not a failure."""
    assert json.loads(relume("gpus", "-o", "json", live=live).out)["total"] == 0
    model.write_text(MODEL.replace("RESOURCES", "{gpus: 1, cpu: 1, memory: 1Gi}"))
    ran = relume("plan", "-f", str(model), live=live)
    assert (ran.code, "no node has reported" in ran.out) == (1, True)


def test_instances_are_cards_of_their_own(relume: Relume, live: LiveAdmin, model: Path) -> None:
    """A MIG instance is shown with its profile, and a model that wants it is told which it would get."""
    instances = (Card(id=f"MIG-{i}", product="NVIDIA A100-SXM4-40GB", profile="1g.5gb") for i in range(2))
    live.do(live.admin.say(
        CardsObserved(node="n", cpu=8, memory_bytes=64 * GI, cards=tuple(instances)),
        grant("small", Resources(mig_profile="1g.5gb", cpu=1, memory_bytes=GI), Placement(node="n", gpus=("MIG-0",))),
    ))  # fmt: skip
    lines = [line.split() for line in relume("gpus", live=live).out.splitlines()]
    shown = [(line[1], line[4], *line[8:]) for line in lines[1:]]
    assert shown == [("MIG-0", "1g.5gb", "0.143", "0", "small-1-0", "(0.143)"), ("MIG-1", "1g.5gb", "0.143", "0.143")]
    told = json.loads(relume("gpus", "-o", "json", live=live).out)
    assert (told["total"], told["free"]) == (0.29, 0.14), "sevenths of a card, not cards"
    assert relume("gpus", "-o", "picture", live=live).out.splitlines()[0] == "n  [A] [·]"
    model.write_text(MODEL.replace("RESOURCES", "{migProfile: 1g.5gb, cpu: 1, memory: 1Gi}"))
    (item,) = json.loads(relume("plan", "-f", str(model), "-o", "json", live=live).out)["items"]
    assert (item["places"], item["room"]) == ([{"node": "n", "gpus": ["MIG-1"]}], 1)
    model.write_text(MODEL.replace("RESOURCES", "{migProfile: 3g.20gb, cpu: 1, memory: 1Gi}"))
    assert "the cards here are split into 1g.5gb" in relume("plan", "-f", str(model), live=live).out


def test_the_plan_names_victims_and_why_others_are_spared(relume: Relume, live: LiveAdmin, model: Path) -> None:
    """Training that runs is priced: the job that saved just now yields, the protected one is told as such."""
    now = live.admin.clock.now()
    spare = declared("spare")
    spare = replace(spare, spec={**spare.spec, "preemption": {"protected": True}})
    saved = replace(observed(), started_at=now - 900, checkpoint=replace(saved_checkpoint(), at=now - 5))
    live.do(live.admin.say(
        CardsObserved(node="local", cpu=8, memory_bytes=64 * GI, cards=(
            Card(id="gpu-0", virtual=True), Card(id="gpu-1", virtual=True))),
        declared(), granted(), saved, spare,
        replace(granted(), job="spare", members=(replace(granted(members=2).members[1], member="spare-0"),)),
    ))  # fmt: skip
    model.write_text(MODEL.replace("RESOURCES", "{gpus: 1, cpu: 0.1, memory: 64Mi}"))
    ran = relume("plan", "-f", str(model), "-o", "json", live=live)
    (answer,) = json.loads(ran.out)["items"]
    assert (ran.code, answer["outcome"]) == (0, "reclaims")
    assert (answer["fragmentationBefore"], answer["fragmentationAfter"]) == (
        0.0,
        0.0,
    )  # the victim's cards are free then
    assert [(one["job"], one["whole"]) for one in answer["victims"]] == [("tune", True)]
    assert {one["job"]: one["why"] for one in answer["verdicts"]} == {"tune": "taken", "spare": "protected"}
    assert "tune would yield (all of it)" in relume("plan", "-f", str(model), live=live).out


def saved_checkpoint() -> CheckpointStatus:
    checkpoint = observed().checkpoint
    assert checkpoint is not None
    return checkpoint
