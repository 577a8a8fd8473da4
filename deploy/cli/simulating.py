"""`relume simulate`: a trace again, under several policies, and what each would have cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from deploy.cli import simulating_frontiers, simulating_requests
from deploy.cli.commands import command
from deploy.cli.failing import Refused
from deploy.cli.options import output
from deploy.cli.output import UNKNOWN, say, show_json, show_table

if TYPE_CHECKING:
    from deploy.simulation.minutes import MinuteTrace
    from deploy.simulation.naming import Named
    from deploy.simulation.replaying import Outcome

MINUTES: Final = ("femux", "azure-functions")
FORMATS: Final = (*MINUTES, *simulating_requests.FORMATS)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@command("simulate", (
    "relume simulate --trace minutes.csv.gz --format femux --policy relume --policy 'keepalive(1m)' -o json",
    "relume simulate --trace minutes.csv.gz --format femux --apps results.csv --policy relume:coldStartCost=180s",
    "relume simulate --trace invocations.csv.gz --format azure-functions --policy kpa --policy oracle --html page.html",
    "relume simulate --trace minutes.csv.gz --format femux --policy mine:hold    # hold(past) in mine.py",
    "relume simulate --trace code.csv --format azure-llm --policy relume --policy kpa --policy keda:target=8",
    "relume simulate --trace mine.csv --format csv --policy relume --set start=45s --set slots=8 --set slo=2s -o json",
    "relume simulate --trace code.csv --format azure-llm --frontier --policy relume --policy kpa --seeds 3",
    "relume simulate --trace rps.csv.gz --format servegen --from 12h --for 1h --thin 100 --policy relume",
))  # fmt: skip
@click.option("--trace", "file", type=_FILE, required=True, metavar="FILE", help="The trace, plain or gzipped.")
@click.option("--format", "form", type=click.Choice(FORMATS), required=True, help="How the trace is written.")
@click.option(
    "--policy", "typed", multiple=True, required=True, metavar="POLICY", help="NAME, NAME(value), NAME:key=value,…"
)
@click.option("--apps", type=_FILE, metavar="CSV", help="Only the models that the first column of this file names.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Of the simulated cluster, for traces of requests."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of what is drawn by chance.")
@click.option("--from", "begin", metavar="TIME", help="Only what came from so long after its beginning on.")
@click.option("--for", "length", metavar="TIME", help="Only what came for so long.")
@click.option(
    "--thin", type=click.IntRange(1), default=1, metavar="N", help="One of N requests, by the seed. [default: all]"
)
@click.option(
    "--frontier", is_flag=True, help="Try many settings of each policy, and compare the best of each at equal cost."
)
@click.option(
    "--seeds", type=click.IntRange(1, 1000), default=1, metavar="N", help="With --frontier: the mean of N seeds."
)
@click.option("--jobs", type=click.IntRange(0, 1024), default=0, help="Processes. [default: one a core]")
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write a page with a chart."
)
@output("table", "json")
def simulate(  # noqa: PLR0913 - one parameter an option
    file: Path, form: str, typed: Sequence[str], *, apps: Path | None, settings: Sequence[str], seed: int,
    begin: str | None, length: str | None, thin: int, frontier: bool, seeds: int, jobs: int, html: Path | None,
    output: str,
) -> int:  # fmt: skip
    """Replay a trace under policies, and compare what they would have cost.

    TRACES OF REQUESTS (azure-llm, mooncake, servegen, csv, jsonl): the live policies, as `spec.scaling` has them, on a
    simulated cluster and clock. The same trace and seed give the same figures.

    \b
    NAME               relume, kpa, keda, hpa, keepalive, concurrency,
                       hybrid-histogram, oracle; NAME:key=value,… with target,
                       keepAlive, minReplicas, … slo, and the policy's options
    module:function    yours: function(snapshot, policy, now) -> replicas
    --set              slots=16 start=30s spread=0.2 fails=0 maxReplicas=64
                       gpus (default: enough) gpusEach=1 slo=5s maxWait=5m
                       settles=10m base=20ms prefill=0.25ms decode=25ms
                       crowding=0.03 (or curve=1:1,8:1.4,16:3) sharing=off
                       nodes=4x8 neighbours=0
    csv, jsonl         time, and any of model, inputTokens, outputTokens,
                       seconds
    --frontier         relume, kpa, keda, hpa, keepalive, concurrency: 50
                       settings of each; a NAME:key=value,… is one of NAME's

    TRACES OF MINUTES (femux, azure-functions):

    At the end of each minute a policy says, from what was needed so far, how many replicas of each model it holds ready
    through the next. Every model starts unknown. Nothing is random: the same trace gives the same figures.

    \b
    relume             by expected cost, from a forecast; a cold start is worth
                       idleGb of one idle GB [330s], or coldStartCost of one
                       idle replica. The lower it is, the less is held.
                       budget=0.6,keepAlive=5m: the fewest cold starts for 0.6
                       of the memory of keepalive(5m) [1m], over all models
    keepalive(5m)      the most that was needed in the last five minutes
    kpa                Knative: stableWindow 60s, grace 30s
    keda, hpa          cooldown and stabilisation of 300s, tolerance of 10 %
    concurrency        KubeAI: mean of a window of 10m
    hybrid-histogram   Shahrad et al., ATC 2020
    oracle             knows the future: the bound
    module:function    yours: function(past) -> replicas to hold, where past is
                       what each minute needed, oldest first

    \b
    coldStarts         replicas that were needed and not there; of requests:
                       how often a model was asked for and had none ready
    withinSlo          the part of requests whose first token came within slo
    memoryGbSeconds    of what was held, and of half a minute each cold start
    decisions, flaps   and how often one more was held within five minutes of
                       one less
    null               what the trace cannot tell
    """
    if form in simulating_requests.FORMATS:
        if apps is not None:
            raise click.UsageError("--apps is for traces of minutes; leave it out")
        if seeds > 1 and not frontier:
            raise click.UsageError("--seeds goes with --frontier; without it --seed is one")
        part = simulating_requests.read_part(begin, length, thin)
        asked = simulating_requests.Asked(file, form, typed, settings, seed, jobs, html, output, part)
        if frontier:
            return simulating_frontiers.simulate_frontiers(asked, seeds)
        return simulating_requests.simulate_requests(asked)
    if settings or frontier or seeds > 1 or thin > 1 or begin is not None or length is not None:
        raise click.UsageError("--set, --from, --for, --thin, --frontier are for traces of requests; leave them out")
    policies = _policies(typed)
    trace = _trace(file, form, apps)
    outcomes = _replayed(trace, policies, jobs)
    if html is not None:
        _write_page(html, file.name, outcomes)
    if output == "json":
        show_json(_as_json(file, form, trace, outcomes))
    else:
        show_table(*_as_table(outcomes))
    return 0


def _policies(typed: Sequence[str]) -> dict[str, Named]:
    from deploy.simulation.naming import BadPolicy, read_policy  # noqa: PLC0415 - numpy takes a fifth of a second

    try:
        return {text: read_policy(text) for text in typed}
    except BadPolicy as error:
        raise click.UsageError(str(error)) from error


def _trace(file: Path, form: str, apps: Path | None) -> MinuteTrace:
    from deploy.simulation.minutes import only, read_azure_functions, read_femux  # noqa: PLC0415 - as above
    from deploy.simulation.reading import BadTrace  # noqa: PLC0415 - as above

    try:
        trace = read_femux(file) if form == "femux" else read_azure_functions(file)
        return trace if apps is None else only(trace, _names(apps))
    except BadTrace as error:
        raise Refused(str(error)) from error
    except OSError as error:
        raise simulating_requests.unreadable(error) from error


def _names(file: Path) -> list[str]:
    from deploy.simulation.reading import lines_of, rows_of  # noqa: PLC0415 - as above

    with lines_of(file) as lines:
        return [row[0] for _, row in rows_of(lines, file)]


def _replayed(trace: MinuteTrace, policies: dict[str, Named], jobs: int) -> dict[str, Outcome]:
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.progress import Progress  # noqa: PLC0415 - as above

    from deploy.simulation.own import BrokenPolicy  # noqa: PLC0415 - as above
    from deploy.simulation.replaying import replay  # noqa: PLC0415 - as above

    console = Console(stderr=True)
    bars = Progress(console=console, disable=not console.is_terminal, transient=True)
    with simulating_requests.replaying(), bars as shown:
        bar = shown.add_task("decisions", total=trace.needed.size * len(policies))
        try:
            return replay(trace, policies, jobs, lambda more: shown.advance(bar, more))
        except BrokenPolicy as error:
            raise Refused(str(error), remedy="mend the function, or leave this --policy out") from error


def _as_json(file: Path, form: str, trace: MinuteTrace, outcomes: dict[str, Outcome]) -> dict[str, Any]:
    return {
        "trace": {
            "file": file.name, "format": form, "models": len(trace.names), "grains": trace.minutes,
            "grainSeconds": 60, "requests": trace.requests,
        },
        "policies": {name: _figures(outcome, trace.requests) for name, outcome in outcomes.items()},
    }  # fmt: skip


def _figures(outcome: Outcome, requests: int | None) -> dict[str, Any]:
    totals = outcome.totals
    return {
        "coldStarts": totals.cold_starts, "memoryGbSeconds": round(totals.memory_gb_seconds, 3),
        "gpuSeconds": None, "idleGpuSeconds": None, "requests": requests, "withinSlo": None, "heldSecondsP99": None,
        "decisions": outcome.decisions, "flaps": outcome.flaps,
        "replicaSeconds": totals.replica_seconds, "idleReplicaSeconds": totals.idle_replica_seconds,
        "neededGbSeconds": round(totals.needed_gb_seconds, 3),
    }  # fmt: skip


def _as_table(outcomes: dict[str, Outcome]) -> tuple[list[str], list[list[str]]]:
    first = next(iter(outcomes.values())).totals.memory_gb_seconds
    rows = []
    for name, outcome in outcomes.items():
        totals = outcome.totals
        relative = f"{totals.memory_gb_seconds / first:.3f}" if first else UNKNOWN
        rows.append([
            name, f"{totals.cold_starts}", f"{totals.memory_gb_seconds:.0f}", relative,
            f"{totals.replica_seconds:.0f}", f"{totals.idle_replica_seconds:.0f}", f"{outcome.flaps}",
        ])  # fmt: skip
    headers = ["POLICY", "COLD STARTS", "MEMORY GB·s", "TO FIRST", "REPLICA·s", "IDLE REPLICA·s", "FLAPS"]
    return headers, rows


def _write_page(page: Path, name: str, outcomes: dict[str, Outcome]) -> None:
    from deploy.simulation.page import Point, page_text  # noqa: PLC0415 - as above

    points = [
        Point(policy, outcome.totals.cold_starts, outcome.totals.memory_gb_seconds)
        for policy, outcome in outcomes.items()
    ]
    try:
        page.write_text(page_text(name, points), encoding="utf-8")
    except OSError as error:
        raise Refused(f"{page} cannot be written: {error.strerror}", remedy="name another file") from error
    say(f"wrote {page}")
