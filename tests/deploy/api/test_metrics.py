"""/metrics: parsed by Prometheus's own parser; histograms and counters folded from events."""

from __future__ import annotations

import functools

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploy.api import metrics
from deploy.api.ports import Reading
from deploy.api.tallies import Histogram
from events.types.decisions import WishDecided
from events.types.phases import ColdStartFinished
from events.types.replicas import ReplicaState
from events.types.requests import RequestWindow
from events.types.shared import Sketch
from runtime.core.sketch import bucket_of
from tests.support.admin import ECHO, Admin, Load, observed, replica


async def scrape(admin: Admin) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample by name and labels."""
    text = await admin.text("/metrics")
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}


def window(uid: str, started_at: float = 1.0, **more: object) -> RequestWindow:
    return RequestWindow(
        model="echo", uid=uid, revision=1, gateway="g", started_at=started_at, ended_at=started_at + 1,
        **more,  # type: ignore[arg-type]  # tests name fields
    )  # fmt: skip


def sketch(*seconds: float) -> Sketch:
    counts: dict[int, int] = {}
    for value in seconds:
        counts[bucket_of(value)] = counts.get(bucket_of(value), 0) + 1
    return Sketch(buckets=tuple(sorted(counts.items())), count=len(seconds), sum=sum(seconds))


async def declared(admin: Admin) -> str:
    """Declare echo; its uid."""
    _, body = await admin.apply()
    uid = body["items"][0]["metadata"]["uid"]
    assert isinstance(uid, str)
    return uid


async def test_gauges_from_states_and_the_desk(admin: Admin) -> None:
    """Held, running, wish and replicas by state, under vLLM's names and ours."""
    uid = await declared(admin)
    admin.traffic.loads = [Load("echo", running=3, held=8)]
    both = (replica(uid=uid), replica("echo-r1-1", ReplicaState.STARTING, uid))
    await admin.say(observed(*both, uid=uid))
    values = await scrape(admin)
    assert values["vllm:num_requests_running", (("model_name", "echo"),)] == 3
    assert values["vllm:num_requests_waiting", (("model_name", "echo"),)] == 8
    assert values["relume_held_requests", (("model", "echo"),)] == 8
    assert values["relume_replicas", (("model", "echo"), ("state", "Ready"))] == 1
    assert values["relume_replicas", (("model", "echo"), ("state", "Failed"))] == 0
    assert values["relume_models", (("state", "Ready"),)] == 1
    assert ("relume_wish_replicas", (("model", "echo"),)) not in values, "nothing was wished: that is not zero"


async def test_windows_add_up_once(admin: Admin) -> None:
    """A window that grew replaces itself; the next one adds."""
    uid = await declared(admin)
    await admin.say(
        window(uid, arrivals=2, finishes=1, tokens_out=10, first_byte=sketch(0.03)),
        window(uid, arrivals=5, finishes=4, tokens_out=30, first_byte=sketch(0.03, 0.03, 2.0)),
        window(uid, started_at=2.0, arrivals=1, finishes=1, tokens_out=5, first_byte=sketch(20.0)),
    )
    values = await scrape(admin)
    assert values["relume_requests_arrived_total", (("model", "echo"),)] == 6
    assert values["vllm:request_success_total", (("model_name", "echo"),)] == 5
    assert values["vllm:generation_tokens_total", (("model_name", "echo"),)] == 35
    name = "gen_ai_server_time_to_first_token_seconds"
    buckets = {le: values[f"{name}_bucket", (("gen_ai_request_model", "echo"), ("le", le))]
               for le in ("0.02", "0.04", "2.5", "10.0", "30.0", "+Inf")}  # fmt: skip
    assert buckets == {"0.02": 0, "0.04": 2, "2.5": 3, "10.0": 3, "30.0": 4, "+Inf": 4}
    assert values[f"{name}_count", (("gen_ai_request_model", "echo"),)] == 4
    assert values[f"{name}_sum", (("gen_ai_request_model", "echo"),)] == pytest.approx(22.06)


async def test_phases_of_a_start_are_counted_once(admin: Admin) -> None:
    """A replica that is observed ready again and again has started once."""
    uid = await declared(admin)
    for _ in range(3):
        await admin.say(observed(replica(uid=uid), uid=uid))
    values = await scrape(admin)
    assert values["relume_cold_start_phase_seconds_count", (("phase", "load"),)] == 1
    assert values["relume_cold_start_phase_seconds_sum", (("phase", "load"),)] == 1.5


async def test_decisions_reasons_and_cold_starts(admin: Admin) -> None:
    """Decisions count by model, reasons by reason, cold starts against the promise."""
    await declared(admin)
    wish = WishDecided(model="echo", uid="u", revision=1, replicas=1, priority=1, reasons=("edge", "backlog"),
                       snapshot={}, policy={}, memory={})  # fmt: skip
    cold = ColdStartFinished(model="echo", request="r", replica="x", arrived_at=10.0, first_byte_at=14.0,
                             sla_seconds=3.0, held_requests=1)  # fmt: skip
    await admin.say(wish, wish, cold)
    values = await scrape(admin)
    assert values["relume_decisions_total", (("model", "echo"),)] == 2
    assert values["relume_decision_reasons_total", (("reason", "backlog"),)] == 2
    assert values["relume_cold_start_seconds_sum", (("model", "echo"),)] == 4.0
    assert values["relume_cold_starts_over_sla_total", (("model", "echo"),)] == 1
    topic = (("topic", "relume.decisions"), ("type", "relume.wish.decided.v1"))
    assert values["relume_events_total", topic] == 2


async def test_readings_of_other_parts(admin: Admin) -> None:
    """Numbers that no event tells are there under relume_; the loop's lag always is."""
    admin.readings.readings = [
        Reading("log_dropped_total", "Dropped.", 4, "counter"), Reading("log_pending", "Pending.", 2),
        Reading("pool_size", "Pool.", 1, labels=(("pool", "a"),)),
        Reading("pool_size", "Pool.", 3, labels=(("pool", "b"),)),
    ]  # fmt: skip
    values = await scrape(admin)
    assert values["relume_log_dropped_total", ()] == 4
    assert values["relume_log_pending", ()] == 2
    assert values["relume_pool_size", (("pool", "b"),)] == 3
    assert ("relume_loop_lag_seconds", ()) in values


async def test_a_deleted_model_leaves_no_series(admin: Admin) -> None:
    """What is not declared is not exposed: memory and scrapes stay bounded."""
    uid = await declared(admin)
    await admin.say(window(uid, arrivals=2))
    async with admin.http.delete("/v1alpha1/models/echo"):
        pass
    await admin.say(window(uid, started_at=3.0, arrivals=2))
    assert "echo" not in await admin.text("/metrics")


async def test_names_that_nobody_declared_are_not_counted(admin: Admin) -> None:
    """A stranger's events cannot make series."""
    await admin.say(window("u", arrivals=2))
    assert "echo" not in await admin.text("/metrics")


async def test_labels_are_bounded(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models beyond the bound count together, and nothing is lost from the sums."""
    monkeypatch.setattr(metrics, "_Labels", functools.partial(metrics._Labels, 2))
    documents = [ECHO.replace("name: echo", f"name: m{n}").replace("org/echo", f"a{n}") for n in range(5)]
    assert (await admin.apply("---\n".join(documents)))[0] == 200
    admin.traffic.loads = [Load(f"m{n}", running=1) for n in range(5)]
    values = await scrape(admin)
    running = {labels[0][1]: value for (name, labels), value in values.items() if name == "relume_running_requests"}
    assert running == {"m0": 1, "m1": 1, "_other": 3}


def test_histogram_counts_up_to_each_bound() -> None:
    """A value on a bound counts below it; the last bucket counts everything."""
    histogram = Histogram((1.0, 2.0, 10.0))
    for value in (0.5, 1.0, 1.5, 99.0):
        histogram.add(value)
    assert [count for _, count in histogram.cumulative()] == [2, 3, 3, 4]
    assert [bound for bound, _ in histogram.cumulative()] == ["1.0", "2.0", "10.0", "+Inf"]
