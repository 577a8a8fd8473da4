"""Values of the demo for its unit tests."""

from __future__ import annotations

from dataclasses import replace

from deploy.demo.chart import Mark, Sample
from deploy.demo.summary import Lent, Start, Summary, percentiles
from deploy.demo.traffic import Answer

ANSWER = Answer(started_at=1.0, status=200, held=0.5, first_token=0.8, total=1.5, tokens=3, cold=True, replica="m-r1-0")
FAILED = replace(ANSWER, status=503, held=None, first_token=None, tokens=0, error="no slot <b>")

SAMPLES = (
    Sample(at=0.0, running=0, held=2, ready=0, starting=1),
    Sample(at=4.0, running=2, held=0, ready=1, starting=0),
    Sample(at=8.0, running=0, held=0, ready=0, starting=0),
)


LENT = Lent(
    first_token=2.5, saved_step=151, resumed_step=151, steps_lost=0, runs=2, stages={"ack": 0.1, "save": 0.4},
    lost={"save": 0.4}, losses=[1.0, 0.1, 0.01], same_curve=True, sentences=["llama <needed> 1 GPU."],
)  # fmt: skip


def summary() -> Summary:
    """A whole one; texts hold what HTML must not take as markup."""
    return Summary(
        model="a <model> & more", machine="2 cores", cold=ANSWER, warm_first_token=percentiles([0.1, 0.2]),
        burst_first_token=percentiles([0.3]), burst_held=percentiles([]), answered=3, failed=1,
        starts=(Start("m-r1-0", {"spawn": 0.25, "load": 1.5}, 1.75),), most_replicas=1, most_held=2,
        seconds_to_zero=None, explanations={"Why <it> grew": ["1 < 2 & so on."]}, samples=SAMPLES,
        marks=(Mark(1.0, "first <request>"),), failures=("503: no slot <b>",), lent=LENT,
    )  # fmt: skip
