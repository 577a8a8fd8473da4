"""The demo's report: one HTML page with the chart inside, `chart.svg` and `summary.json` beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from deploy.demo import curve
from deploy.demo.chart import draw
from deploy.demo.summary import Lent, Percentiles, Summary, phase_names, seconds

PAGE_STYLE = """
:root { color-scheme: light dark; --ink: #1c252e; --soft: #5b6874; --line: #dfe4e9; --paper: #fff; --card: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #eef2f6; --soft: #9fabb7; --line: #313b45; --paper: #12171c; --card: #1a2128; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem;
       margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
p.lead, td.soft, .soft { color: var(--soft); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: .8rem; }
.card { background: var(--card); border-radius: 8px; padding: .8rem 1rem; }
.card b { display: block; font-size: 1.45rem; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: right; padding: .35rem .6rem;
        border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; } svg { width: 100%; height: auto; }
"""


def write(summary: Summary, folder: Path) -> Path:
    """Write the three files; the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    chart = draw(summary.samples, summary.marks)
    (folder / "chart.svg").write_text(chart, encoding="utf-8")
    (folder / "summary.json").write_text(json.dumps(summary.as_json(), indent=2) + "\n", encoding="utf-8")
    page = folder / "report.html"
    page.write_text(_page(summary, chart), encoding="utf-8")
    return page


def _page(summary: Summary, chart: str) -> str:
    cold = summary.cold
    cards = [
        (seconds(cold.first_token), "first token, from zero replicas"),
        (seconds(summary.warm_first_token.p50), "first token, warm (median)"),
        (str(summary.most_replicas), "replicas at most"),
        (str(summary.most_held), "requests held at most"),
        (f"{summary.answered} of {summary.answered + summary.failed}", "requests answered"),
        (seconds(summary.seconds_to_zero), "last answer to zero replicas"),
    ]
    return "\n".join([
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>relume: demo</title>',
        '<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,">',
        f"<style>{PAGE_STYLE}</style></head><body>",
        "<h1>From zero and back</h1>",
        (f'<p class="lead">A real language model ({escape(summary.model)}) behind relume on {escape(summary.machine)}: '
        "nobody asks, one asks, many ask, nobody asks.</p>"),
        '<div class="cards">' + "".join(f'<div class="card"><b>{escape(big)}</b>{escape(small)}</div>'
                                        for big, small in cards) + "</div>",
        "<h2>Load, held requests and replicas</h2>", chart,
        "<h2>What clients saw</h2>", _clients(summary),
        "<h2>Starts, by phase</h2>", _starts(summary),
        *_lent(summary.lent),
        *_explanations(summary.explanations),
        *_failures(summary.failures),
        "<h2>What this shows, and what not</h2>", _limits(), "</body></html>\n",
    ])  # fmt: skip


def _clients(summary: Summary) -> str:
    rows = (
        ("first token, warm", summary.warm_first_token),
        ("first token, burst", summary.burst_first_token),
        ("held, burst", summary.burst_held),
    )
    head = "<tr><th></th><th>requests</th><th>p50</th><th>p95</th><th>p99</th><th>worst</th></tr>"
    return f"<table>{head}{''.join(_row(name, row) for name, row in rows)}</table>"


def _row(name: str, row: Percentiles) -> str:
    cells = "".join(f"<td>{seconds(value)}</td>" for value in (row.p50, row.p95, row.p99, row.worst))
    return f"<tr><td>{escape(name)}</td><td>{row.count}</td>{cells}</tr>"


def _starts(summary: Summary) -> str:
    names = phase_names(summary.starts)
    head = "<tr><th>replica</th>" + "".join(f"<th>{escape(name)}</th>" for name in names) + "<th>in all</th></tr>"
    rows = "".join(
        f"<tr><td>{escape(start.replica)}</td>"
        + "".join(f"<td>{seconds(start.phases.get(name))}</td>" for name in names)
        + f"<td>{seconds(start.total)}</td></tr>"
        for start in summary.starts
    )
    return f"<table>{head}{rows}</table>"


def _explanations(explanations: Mapping[str, Sequence[str]]) -> list[str]:
    return [
        f"<h2>{escape(title)}</h2><ol>{''.join(f'<li>{escape(sentence)}</li>' for sentence in sentences)}</ol>"
        for title, sentences in explanations.items()
    ]


def _failures(failures: Sequence[str]) -> list[str]:
    if not failures:
        return []
    return ["<h2>Requests that failed</h2><ul>", *(f"<li>{escape(text)}</li>" for text in failures), "</ul>"]


def _lent(lent: Lent | None) -> list[str]:
    """The second act: a training run has the only GPU, yields it to the model, and goes on."""
    if lent is None:
        return []
    cards = [
        (seconds(lent.first_token), "first token, the GPU taken from training"),
        (str(lent.saved_step), "step that was saved"),
        (str(lent.resumed_step), "step at which it went on"),
        ("the same" if lent.same_curve else "NOT the same", "losses as of an uninterrupted run"),
    ]
    stages = ", ".join(f"{escape(name)} {seconds(took)}" for name, took in lent.stages.items())
    lost = ", ".join(f"{escape(cause)} {spent:.1f}" for cause, spent in lent.lost.items())
    return [
        "<h2>Training lends the only GPU, and gets it back</h2>",
        '<div class="cards">'
        + "".join(f'<div class="card"><b>{escape(big)}</b>{escape(small)}</div>' for big, small in cards)
        + "</div>",
        curve.draw(lent.losses, lent.resumed_step),
        f'<p class="soft">From the demand to the usable GPU: {stages}. GPU-seconds that it cost: {lost or "none"}.</p>',
        *_explanations({"How the GPU was taken": lent.sentences}),
    ]


def _limits() -> str:
    return (
        '<p class="soft">Shown: a real engine started on demand, requests held and none lost, replicas following the '
        "load in one step up and limited steps down, the way back to zero, and a training run that yields its GPU (a "
        "declared, virtual one) and loses no step, all in one process on one machine, with clients on the same cores. "
        "Not shown: real GPUs, large weights fetched from elsewhere, several gateways, Kafka, Kubernetes. A small "
        "model on a processor loads in about a second; large ones do not. Absolute times depend on this machine and on "
        "what else it did.</p>"
    )
