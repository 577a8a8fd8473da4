"""`relume tune`: a change that is worth it, by a trace or by a model's own log; nothing is applied."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.simulation.own_log import WINDOW, read_windows
from deploy.simulation.reading import BadTrace
from events.types.requests import Levels, RequestWindow
from events.types.shared import Sketch
from tests.deploy.cli.conftest import LiveAdmin, Relume
from tests.deploy.cli.test_talking import declare
from tests.support.autoscaling import T0


@pytest.fixture
def bursts(tmp_path: Path) -> list[str]:
    """Four requests at once, each ninety seconds, eleven times."""
    lines = [f"{burst * 90 + at * 0.1},1.0" for burst in range(11) for at in range(4)]
    (tmp_path / "mine.csv").write_text("\n".join(["time,seconds", *lines]), encoding="utf-8")
    return ["--trace", str(tmp_path / "mine.csv"), "--format", "csv", "--set", "slots=4", "--set", "spread=0"]


def test_the_cheapest_that_keeps_the_goal(relume: Relume, bursts: list[str]) -> None:
    """Two minutes bridge the ninety seconds and cost less than the five that there were."""
    ran = relume("tune", *bursts, "--within", "90", "-o", "json")
    answer = json.loads(ran.out)
    assert (ran.code, answer["reached"]) == (0, True)
    assert answer["after"]["withinSlo"] >= 0.9
    assert answer["after"]["gpuSeconds"] < answer["before"]["gpuSeconds"]
    assert answer["scaling"]["keepAlive"] == "2m"
    assert answer["tried"] >= 22
    assert relume("tune", *bursts, "--within", "90", "-o", "json").out == ran.out


def test_for_people(relume: Relume, bursts: list[str]) -> None:
    """The change as it would be written, and what it gives."""
    out = relume("tune", *bursts, "--within", "90").out
    assert out.startswith("spec:\n  scaling:\n")
    assert "    keepAlive: 2m" in out
    assert "# now :" in out


def test_a_goal_that_nothing_keeps(relume: Relume, bursts: list[str]) -> None:
    """The first start is late for whoever asks: exit code 1, and the best of what was tried."""
    ran = relume("tune", *bursts, "--within", "100")
    assert ran.code == 1
    assert "nothing that was tried keeps 100 %" in ran.err
    assert ran.out.startswith("spec:")


@pytest.mark.parametrize(
    "options",
    [[], ["echo", "--format", "csv"], *[["echo", "--within", part] for part in ("nan", "inf", "0", "-1", "x")]],
)
def test_wrong_use(relume: Relume, options: list[str]) -> None:
    """A model or a trace, and a trace with its format; a goal that is a part of a hundred."""
    assert relume("tune", *options).code == 2


def windows() -> list[RequestWindow]:
    """Two requests a second for half a minute, of two seconds each; the first window was told twice."""
    made = [
        RequestWindow(
            model="echo", uid="u", revision=1, gateway="g", started_at=T0 + at, ended_at=T0 + at + 1,
            running_seconds=4.0, now=Levels(running=4), arrivals=2, finishes=2,
        )
        for at in range(30)
    ]  # fmt: skip
    early = RequestWindow(
        model="echo", uid="u", revision=1, gateway="g", started_at=T0, ended_at=T0 + 0.2, arrivals=1, edge=True
    )
    return [early, *made]


def test_by_its_own_log(relume: Relume, live: LiveAdmin) -> None:
    """What the gateways told, with the slots and bounds that are declared."""
    declare(live)
    live.do(live.admin.say(*windows()))
    ran = relume("tune", "echo", "--within", "1", "--set", "start=1s", "-o", "json", live=live)
    answer = json.loads(ran.out)
    assert (ran.code, answer["requests"]) == (0, 60)
    assert answer["scaling"]["maxReplicas"] >= 1


def test_what_there_is_now_is_the_policy_that_is_declared(relume: Relume, live: LiveAdmin, tmp_path: Path) -> None:
    """Not ours under its settings; and a change to ours says so, without options that ours has not."""
    document = SLO % "availability: 99"
    document = document.replace("maxReplicas: 4", "maxReplicas: 4, policy: kpa, policyOptions: {scaleDownDelay: 30m}")
    (tmp_path / "kpa.yaml").write_text(document.replace("minReplicas: 2", "minReplicas: 0"), encoding="utf-8")
    assert relume("apply", "-f", str(tmp_path / "kpa.yaml"), live=live).code == 0
    uid = json.loads(relume("get", "models", "-o", "json", live=live).out)["items"][0]["metadata"]["uid"]
    live.do(live.admin.say(*(replace(one, uid=uid) for one in windows())))
    tune = ("tune", "echo", "--within", "50", "--set", "start=1s", "--set", "settles=40m", "-o", "json")
    answer = json.loads(relume(*tune, live=live).out)
    assert answer["scalingBefore"]["policy"] == "kpa"
    assert answer["scaling"]["policy"] == "relume"
    assert "policyOptions" not in answer["scaling"]
    assert answer["before"]["gpuSeconds"] > 1800.0, "kpa keeps what it has for half an hour, by its options"
    assert answer["after"]["gpuSeconds"] < answer["before"]["gpuSeconds"]
    own = (SLO % "").replace("maxReplicas: 4", "maxReplicas: 4, policy: 'not_here.at_all:decide'")
    (tmp_path / "own.yaml").write_text(own, encoding="utf-8")
    assert relume("apply", "-f", str(tmp_path / "own.yaml"), live=live).code == 0
    assert (ran := relume(*tune, live=live)).code == 1
    assert "not_here.at_all:decide cannot be imported" in ran.err
    assert "Traceback" not in ran.err


SLO = """apiVersion: relume.dev/v1alpha1
kind: Model
metadata: {name: echo}
spec:
  engine: {type: simulated}
  slots: 4
  slo: {%s}
  scaling: {maxReplicas: 4, minReplicas: 2}
"""


@pytest.mark.parametrize(
    ("promise", "kept"),
    [
        ("timeToFirstToken: {p95: 400ms}", False),
        ("timeToFirstToken: {p95: 700ms}", True),
        ("latency: {p95: 1900ms}", False),
        ("latency: {p95: 2300ms}", True),
        ("timeToFirstToken: {p95: 700ms}, latency: {p50: 1s}", False),
        ("availability: 99.9", True),
    ],
)
def test_a_promise_that_the_engine_never_kept_is_not_said_to_be_kept(
    relume: Relume, live: LiveAdmin, tmp_path: Path, promise: str, kept: bool
) -> None:
    """First bytes came half a second after the slots (a second after the arrivals), and whole answers after two: by
    the log, whatever the defaults of a simulated engine are."""
    (tmp_path / "slo.yaml").write_text(SLO % promise, encoding="utf-8")
    assert relume("apply", "-f", str(tmp_path / "slo.yaml"), live=live).code == 0
    uid = json.loads(relume("get", "models", "-o", "json", live=live).out)["items"][0]["metadata"]["uid"]
    first, held = Sketch(buckets=((0, 2),), count=2, sum=2.0), Sketch(buckets=((-7, 2),), count=2, sum=1.0)
    live.do(live.admin.say(*(replace(one, uid=uid, first_byte=first, held=held) for one in windows())))
    ran = relume(
        "tune", "echo", "--within", "95", "--set", "start=10ms", "--set", "crowding=0", "-o", "json", live=live
    )
    answer = json.loads(ran.out)
    assert answer["reached"] is kept, answer["after"]
    assert (answer["before"]["withinSlo"] > 0.5) is kept
    assert ("a first token takes 0.5 s by itself" in ran.err) is not kept


@pytest.mark.parametrize(
    ("keep", "before"),
    [
        ("", {"coldStartCost": "2m30s"}),
        ("keepAlive: 1m, ", {"keepAlive": "1m"}),
        ("coldStartCost: 7s, ", {"coldStartCost": "7s"}),
        ("policyOptions: {keepExtra: 90s}, ", {"keepAlive": "5m", "policyOptions": {"keepExtra": "90s"}}),
    ],
    ids=["by the pool", "its own keep-alive", "its own price", "its own for replicas beyond the first"],
)  # fmt: skip
def test_the_pools_price_is_what_there_is_now(
    relume: Relume, live: LiveAdmin, tmp_path: Path, keep: str, before: dict[str, object]
) -> None:
    """A model of four GPUs that says nothing of its own goes by a fourth of the pool's price; a price that is found is
    told in GPU-seconds too, as the pool would say it."""
    document = f"""apiVersion: relume.dev/v1alpha1
kind: GpuPool
metadata: {{name: default}}
spec: {{coldStartCost: 10m}}
---
apiVersion: relume.dev/v1alpha1
kind: Model
metadata: {{name: echo}}
spec:
  engine: {{type: simulated}}
  slots: 4
  resources: {{gpus: 4}}
  scaling: {{{keep}maxReplicas: 2}}
"""
    (tmp_path / "both.yaml").write_text(document, encoding="utf-8")
    assert relume("apply", "-f", str(tmp_path / "both.yaml"), live=live).code == 0
    uid = json.loads(relume("get", "models", "-o", "json", live=live).out)["items"][0]["metadata"]["uid"]
    live.do(live.admin.say(*(replace(one, uid=uid) for one in windows())))
    tune = ("tune", "echo", "--within", "1", "--set", "start=1s")
    told = json.loads(relume(*tune, "-o", "json", live=live).out)
    stays = {key: told["scalingBefore"].get(key) for key in ("keepAlive", "coldStartCost", "policyOptions")}
    assert {key: value for key, value in stays.items() if value is not None} == before
    priced = "coldStartCost" in told["scaling"]
    assert ("GPU-seconds; in the GpuPool, for all models" in relume(*tune, live=live).out) is priced


def test_a_model_that_nobody_asked_for(relume: Relume, live: LiveAdmin) -> None:
    """There is nothing to go by."""
    declare(live)
    assert (ran := relume("tune", "echo", live=live)).code == 1
    assert "nobody has asked for echo" in ran.err


def test_windows_become_requests() -> None:
    """Spread over their windows, as long as the mean; a window that grew counts once."""

    def event(begin: float, arrivals: int, finishes: int) -> dict[str, Any]:
        data = {
            "model": "m", "startedAt": begin, "endedAt": begin + 1, "arrivals": arrivals, "finishes": finishes,
            "runningSeconds": 3.0,
        }  # fmt: skip
        return {"type": WINDOW, "source": "g", "data": data}

    past = read_windows([event(10.0, 1, 0), event(10.0, 2, 1), event(20.0, 1, 1)], "m")
    trace = past.trace
    assert (past.seconds, past.first) == (3.0, None)
    assert trace.arrived.tolist() == [0.0, 0.5, 10.25]
    assert trace.seconds.tolist() == [3.0] * 3
    with pytest.raises(BadTrace, match="no request to m has ended"):
        read_windows([event(10.0, 1, 0)], "m")
    with pytest.raises(BadTrace, match="more than 20000000 requests"):
        read_windows([event(10.0, 1, 1), event(20.0, 2**62, 1)], "m")
    with pytest.raises(BadTrace, match="span 11574 days"):
        read_windows([event(10.0, 1, 1), event(1e9, 1, 1)], "m")
    for seconds in (1e300, -1.0):
        told = event(10.0, 1, 1)
        told["data"] |= {"runningSeconds": seconds}
        with pytest.raises(BadTrace, match="which cannot be"):
            read_windows([told], "m")
