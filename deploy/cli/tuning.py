"""`relume tune`: which settings of a model keep its promise with the fewest GPU-seconds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from deploy.cli import simulating_requests
from deploy.cli.commands import command
from deploy.cli.connection import Connection, segment
from deploy.cli.failing import Refused
from deploy.cli.options import NumberRange, complete_models, output, talking
from deploy.cli.output import say, show_json

if TYPE_CHECKING:
    from deploy.simulation.own_log import OwnPast
    from deploy.simulation.request_replay import Outcome
    from deploy.simulation.requests import RequestTrace
    from deploy.simulation.setting import Setting
    from deploy.simulation.tuning import Tuned
    from events.units import Seconds

KEPT: Final = (
    "minReplicas", "maxReplicas", "target", "keepAlive", "coldStartCost", "stableWindow", "panicWindow",
    "policyOptions",
)  # fmt: skip
"""What of a declaration's scaling is simulated."""

OURS: Final = "relume"
"""The policy whose settings are searched."""

POOL: Final = "default"
"""The pool whose price of a cold start counts."""

KEEP_DEFAULT: Final = "5m"

SLO_LEAST: Final = 0.001
"""Seconds. A latency that nothing can keep leaves this for the first token: nothing keeps that either."""


@dataclass(frozen=True, slots=True)
class _Case:
    """What is tuned: requests, the scaling that there is, the cluster."""

    trace: RequestTrace
    scaling: Mapping[str, object]
    setting: Setting
    gpus: float | None = None
    """What a replica takes, in GPUs; None: not known."""
    first_known: bool = False
    """Whether the log tells when first tokens come."""


@command("tune", (
    "relume tune llama                                        # by its own log",
    "relume tune llama --within 99.5 -o json",
    "relume tune --trace code.csv --format azure-llm --set slots=8 --set start=45s",
))  # fmt: skip
@click.argument("model", required=False, shell_complete=complete_models)
@click.option(
    "--trace", "file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    help="A trace of requests, in place of a model's own log.",
)  # fmt: skip
@click.option("--format", "form", type=click.Choice(simulating_requests.FORMATS), help="How the trace is written.")
@click.option(
    "--within", type=NumberRange(0, 100, min_open=True), default=99.0, show_default=True, metavar="PERCENT",
    help="The goal: so many of a hundred requests within slo, with the fewest GPU-seconds.",
)  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Of the simulated cluster: see simulate.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of what is drawn by chance.")
@output("text", "json")
@talking
def tune(  # noqa: PLR0913 - one parameter an option
    connection: Connection, model: str | None, *, file: Path | None, form: str | None, within: float,
    settings: Sequence[str], seed: int, output: str,
) -> int:  # fmt: skip
    """Search the settings of a model's scaling, by simulating each on its own past or on a trace, and print the change.

    Nothing is applied. Of a model's own log the simulated cluster has its slots, its promise and its last start time;
    --set comes before them. Exit code 1: nothing that was tried keeps the goal; the best of it is printed all the same.
    """
    from deploy.simulation.tuning import Goal, simulate  # noqa: PLC0415 - the simulation takes a fifth of a second
    from deploy.simulation.tuning import tune as search  # noqa: PLC0415 - as above

    if (model is None) == (file is None) or (file is None) != (form is None):
        raise click.UsageError("name a MODEL, or give --trace FILE with its --format")
    setting = simulating_requests.read_setting(settings, seed)
    if file is not None and form is not None:
        case = _Case(simulating_requests.read_trace(file, form, seed), {"maxReplicas": setting.max_replicas}, setting)
    else:
        case = _of_log(connection, str(model), setting, [pair.partition("=")[0] for pair in settings])
    run = simulate(case.trace, case.setting, 0, lambda _: None)
    with simulating_requests.replaying():
        tuned = search(case.scaling, case.setting, Goal(within / 100), run)
    if output == "json":
        show_json(_as_json(tuned, case))
    else:
        click.echo("\n".join([*_told(tuned), *_priced(tuned, case.gpus)]))
    if not tuned.reached:
        first = case.setting.service.base
        slow = f"a first token takes {first:.3g} s by itself, longer than the {case.setting.slo:.3g} s that it may take"
        may = slow if case.first_known and first > case.setting.slo else "the price of a start, or more slots, may"
        say(f"nothing that was tried keeps {within:g} %: {may}")
    return 0 if tuned.reached else 1


def _of_log(connection: Connection, model: str, setting: Setting, given: Sequence[str]) -> _Case:
    """The model as it is declared, and what its gateways have told."""
    from autoscaler.declared import gpus_taken  # noqa: PLC0415 - as above
    from deploy.simulation.own_log import read_windows  # noqa: PLC0415 - as above
    from deploy.simulation.reading import BadTrace  # noqa: PLC0415 - as above
    from events.units import Seconds  # noqa: PLC0415 - as above

    item = connection.get(f"/v1alpha1/models/{segment(model)}")
    own, spec = item["metadata"]["name"], item["spec"]
    query = {"topic": "relume.requests", "model": own, "from": "beginning", "follow": False}
    events = (json.loads(line) for line in connection.lines("/v1alpha1/events", query))
    try:
        past = read_windows(events, own)
    except BadTrace as error:
        raise Refused(str(error), remedy="ask later, or give --trace") from error
    if "slots" not in given:
        setting = replace(setting, slots=int(spec["slots"]))
    if "maxReplicas" not in given:
        setting = replace(setting, max_replicas=int(spec["scaling"]["maxReplicas"]))
    if past.first is not None and "base" not in given:
        setting = replace(setting, service=replace(setting.service, base=Seconds(past.first)))
    promised = _promised(spec.get("slo") or {}, past)
    if promised is not None and "slo" not in given:
        setting = replace(setting, slo=promised)
    start = item["status"].get("lastStart") or {}
    if start.get("seconds") and "start" not in given:
        setting = replace(setting, starting=replace(setting.starting, seconds=Seconds(float(start["seconds"]))))
    scaling = {key: spec["scaling"][key] for key in KEPT if spec["scaling"].get(key) not in (None, {})}
    gpus = gpus_taken(spec.get("resources") or {})
    if spec["scaling"].get("policy", OURS) != OURS:
        scaling["policy"] = _importable(str(spec["scaling"]["policy"]))
    scaling |= _by_pool(connection, scaling, gpus)
    if "coldStartCost" in scaling:
        scaling.pop("keepAlive", None)
    return _Case(past.trace, scaling, setting, gpus, past.first is not None)


def _importable(policy: str) -> str:
    """The declared policy; refused where it is the user's own and is not here."""
    from autoscaler.own import OwnPolicyFailed, own_policy  # noqa: PLC0415 - as above

    try:
        own_policy(policy)
    except OwnPolicyFailed as error:
        raise Refused(
            f"policy {error}", remedy="run this where the module can be imported, such as with PYTHONPATH=FOLDER"
        ) from error
    return policy


def _promised(slo: Mapping[str, Any], past: OwnPast) -> Seconds | None:
    """Within how long a first token keeps what is promised: a whole answer is late by what comes after its first."""
    from events.units import Seconds, parse_duration  # noqa: PLC0415 - as above

    rest = {"timeToFirstToken": 0.0, "latency": past.seconds - (past.first or 0.0)}
    told = [
        parse_duration(text) - after
        for name, after in rest.items()
        for text in (slo.get(name) or {}).values()
        if text
    ]  # fmt: skip
    return Seconds(max(SLO_LEAST, min(told))) if told else None


def _by_pool(connection: Connection, scaling: Mapping[str, Any], gpus: float) -> dict[str, str]:
    """The price of a cold start that holds for the model because the pool says so, in seconds of its replica; empty
    where it does not."""
    from autoscaler.core.policy import COST_MOST, KEEP_ALIVE  # noqa: PLC0415 - as above
    from events.units import Seconds, format_duration, parse_duration  # noqa: PLC0415 - as above

    pools = connection.get("/v1alpha1/pools")["items"]
    says = next((one["spec"].get("coldStartCost") for one in pools if one["metadata"]["name"] == POOL), None)
    kept = parse_duration(str(scaling.get("keepAlive", KEEP_DEFAULT))) != KEEP_ALIVE or "policyOptions" in scaling
    if says is None or kept or "coldStartCost" in scaling:
        return {}
    return {"coldStartCost": format_duration(Seconds(round(min(COST_MOST, parse_duration(says) / gpus), 3)))}


def _figures(outcome: Outcome) -> dict[str, Any]:
    from deploy.simulation.request_replay import as_json  # noqa: PLC0415 - as above

    return as_json({"one": outcome})["one"]


def _as_json(tuned: Tuned, case: _Case) -> dict[str, Any]:
    return {
        "requests": len(case.trace), "tried": tuned.tried, "reached": tuned.reached,
        "scalingBefore": dict(case.scaling), "scaling": dict(tuned.scaling),
        "before": _figures(tuned.before), "after": _figures(tuned.best),
    }  # fmt: skip


def _told(tuned: Tuned) -> list[str]:
    lines = ["spec:", "  scaling:", *[f"    {key}: {value}" for key, value in tuned.scaling.items()]]
    for words, outcome in (("now ", tuned.before), ("then", tuned.best)):
        one = outcome.figures
        lines.append(
            f"# {words}: {100 * one.within_slo:.2f} % within slo, {one.gpu_seconds:.0f} GPU-seconds, "
            f"{one.activations} cold starts, 99 of 100 held for at most {one.held_p99:.1f} s"
        )
    return [*lines, f"# {tuned.tried} settings simulated; what is best for this past need not be for what comes"]


def _priced(tuned: Tuned, gpus: float | None) -> list[str]:
    """The price of a cold start in GPU-seconds, as a pool would say it for all models."""
    from events.units import Seconds, format_duration, parse_duration  # noqa: PLC0415 - as above

    cost = tuned.scaling.get("coldStartCost")
    if cost is None or gpus is None:
        return []
    whole = Seconds(round(parse_duration(str(cost)) * gpus, 3))
    line = (
        f"# coldStartCost: {cost} of a replica of {gpus:.3g} GPUs is {whole:.5g} GPU-seconds; in the GpuPool, for all "
        f"models: coldStartCost: {format_duration(whole)}"
    )
    return [line]
