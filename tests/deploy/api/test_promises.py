"""What was promised in `spec.slo`, beside what was measured: in the status, in the explanation, in the metrics."""

from __future__ import annotations

import pytest

from deploy.api.ports import Explanation
from deploy.api.promises import Promise, Promises, promises_of, sentence
from events.types.requests import RequestWindow
from events.types.shared import Sketch
from runtime.core.sketch import bucket_of
from tests.support.admin import ECHO, Admin

SLO = {"timeToFirstToken": {"p50": "1s", "p95": "2s"}, "latency": {"p99": "30s"}, "availability": 99.9}
PROMISING = ECHO + "  slo: {timeToFirstToken: {p95: 2s}, availability: 90}\n"


def window(started_at: float = 1.0, **more: object) -> RequestWindow:
    return RequestWindow(
        model="echo", uid="u", revision=1, gateway="g", started_at=started_at, ended_at=started_at + 1,
        **more,  # type: ignore[arg-type]  # tests name fields
    )  # fmt: skip


def sketch(*seconds: float) -> Sketch:
    buckets = sorted(bucket_of(value) for value in seconds)
    return Sketch(
        buckets=tuple((bucket, buckets.count(bucket)) for bucket in dict.fromkeys(buckets)), count=len(seconds),
        sum=sum(seconds),
    )  # fmt: skip


def test_each_line_of_the_slo_is_a_promise() -> None:
    """Percentiles promise a share of requests within a time; availability a share without an error of ours."""
    assert promises_of({"slo": SLO}) == (
        Promise("timeToFirstToken.p50", 0.5, 1.0), Promise("timeToFirstToken.p95", 0.95, 2.0),
        Promise("latency.p99", 0.99, 30.0), Promise("availability", 0.999),
    )  # fmt: skip


@pytest.mark.parametrize("spec", [{}, {"slo": None}, {"slo": {}}, {"slo": {"unheardOf": 1}}, {"slo": "fast"}])
def test_no_slo_is_no_promise(spec: dict[str, object]) -> None:
    """Also one that only another version understands."""
    assert promises_of(spec) == ()


def test_windows_that_grow_are_counted_once() -> None:
    """A longer window replaces the earlier one; the next one adds; refusals and failures break availability."""
    promises = Promises()
    promises.declare({"slo": SLO})
    first = window(finishes=1, first_byte=sketch(0.5), total=sketch(40.0))
    grown = window(finishes=3, refusals=1, first_byte=sketch(0.5, 1.5, 9.0), total=sketch(40.0, 2.0, 10.0))
    promises.grow(first, None)
    promises.grow(grown, first)
    promises.grow(window(2.0, failures=1, first_byte=sketch(0.1), total=sketch(0.1)), None)
    told = {one.name: (one.requests, one.measured, one.kept) for one in promises.statuses()}
    assert told == {
        "timeToFirstToken.p50": (4, 0.5, True), "timeToFirstToken.p95": (4, 0.75, False),
        "latency.p99": (4, 0.75, False), "availability": (5, 0.6, False),
    }  # fmt: skip


def test_a_changed_promise_is_counted_anew() -> None:
    """What was measured of another promise says nothing about this one; the unchanged ones go on."""
    promises = Promises()
    promises.declare({"slo": SLO})
    promises.grow(window(finishes=1, first_byte=sketch(0.5), total=sketch(1.0)), None)
    promises.declare({"slo": SLO | {"timeToFirstToken": {"p50": "1s", "p95": "3s"}}})
    assert [(one.name, one.requests) for one in promises.statuses()] == [
        ("timeToFirstToken.p50", 1), ("timeToFirstToken.p95", 0), ("latency.p99", 1), ("availability", 1),
    ]  # fmt: skip
    assert promises.statuses()[1].kept is None, "nothing was counted: that is not broken"


async def test_status_explanation_and_metrics_tell(admin: Admin) -> None:
    """One burst of requests, seen in all three places."""
    assert (await admin.apply(PROMISING))[0] == 200
    slow = sketch(*[0.1] * 18, 5.0, 5.0)
    await admin.say(window(finishes=19, failures=1, first_byte=slow, total=slow))
    async with admin.http.get("/v1alpha1/models/echo") as answer:
        objectives = (await answer.json())["status"]["objectives"]
    assert objectives == [
        {"name": "timeToFirstToken.p95", "promised": 0.95, "seconds": 2.0, "requests": 20, "measured": 0.9,
         "kept": False},
        {"name": "availability", "promised": 0.9, "seconds": None, "requests": 20, "measured": 0.95, "kept": True},
    ]  # fmt: skip
    admin.explainer.by_model["echo"] = Explanation(sentences=("So it is.",), facts={})
    async with admin.http.get("/v1alpha1/models/echo/explain") as answer:
        explained = await answer.json()
    assert explained["sentences"] == [
        "So it is.",
        "Promised: timeToFirstToken.p95, 95 % of requests within 2s; broken: 90 % of 20 requests.",
        "Promised: availability, 90 % of requests answered without an error of ours; kept: 95 % of 20 requests.",
    ]
    assert explained["facts"]["objectives"] == objectives
    text = await admin.text("/metrics")
    for line in (
        'relume_slo_promised{model="echo",objective="timeToFirstToken.p95"} 0.95',
        'relume_slo_seconds{model="echo",objective="timeToFirstToken.p95"} 2.0',
        'relume_slo_requests_total{model="echo",objective="timeToFirstToken.p95"} 20.0',
        'relume_slo_requests_kept_total{model="echo",objective="timeToFirstToken.p95"} 18.0',
        'relume_slo_requests_kept_total{model="echo",objective="availability"} 19.0',
    ):
        assert line in text.splitlines()


def test_a_sentence_before_the_first_request() -> None:
    """Nothing counted is said as that."""
    promises = Promises()
    promises.declare({"slo": {"latency": {"p50": "90s"}}})
    assert sentence(promises.statuses()[0]) == (
        "Promised: latency.p50, 50 % of requests within 1m30s; none was counted since this process began."
    )
