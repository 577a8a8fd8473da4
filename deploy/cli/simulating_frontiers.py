"""`relume simulate --frontier`: each policy with many settings of its own, and what all keep at equal cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from deploy.cli import simulating_requests as requests
from deploy.cli.output import UNKNOWN, show_json, show_table

if TYPE_CHECKING:
    from deploy.simulation.frontier import Frontiers
    from deploy.simulation.request_policies import Typed
    from deploy.simulation.setting import Setting


def simulate_frontiers(asked: requests.Asked, seeds: int) -> int:
    """Replay all settings with each seed, and show what no other setting of a policy beats."""
    from deploy.simulation.frontier import as_json, frontiers, swept  # noqa: PLC0415 - takes a fifth of a second

    setting = requests.read_setting(asked.settings, asked.seed)
    policies = swept(requests.read_policies(asked.policies), setting)
    requests.check_policies(policies, setting)
    told, runs = _runs(asked, policies, setting, seeds)
    found = frontiers(policies, runs)
    if asked.html is not None:
        from deploy.simulation.frontier_page import page_text  # noqa: PLC0415 - as above

        requests.write_page(asked.html, page_text(asked.file.name, found))
    if asked.output == "json":
        show_json({"trace": told, **as_json(found)})
    else:
        show_table(*_points(found))
        click.echo("")
        show_table(*_costs(found))
    return 0


def _runs(
    asked: requests.Asked, policies: Sequence[Typed], setting: Setting, seeds: int
) -> tuple[dict[str, Any], list[Any]]:
    """What the trace is, and the outcomes of each seed; the seed draws the trace too, where it draws any of it."""
    told: dict[str, Any] = {}
    runs = []
    for seed in range(asked.seed, asked.seed + seeds):
        trace = requests.read_trace(asked.file, asked.form, seed, asked.part)
        told = told or requests.trace_json(asked, trace)
        runs.append(requests.replayed(trace, policies, replace(setting, seed=seed), asked.jobs))
    return told, runs


def _points(found: Frontiers) -> tuple[list[str], list[list[str]]]:
    rows = [
        [one.policy, f"{100 * one.within_slo:.2f} %", _range(one.within_slo_range, 100.0, 2), f"{one.gpu_seconds:.0f}",
         _range(one.gpu_seconds_range, 1.0, 0)]
        for points in found.frontiers.values()
        for one in points
    ]  # fmt: skip
    return ["SETTING", "WITHIN SLO", "LEAST, MOST", "GPU·s", "LEAST, MOST"], rows


def _costs(found: Frontiers) -> tuple[list[str], list[list[str]]]:
    names = list(found.frontiers)
    rows = []
    for row in found.at_cost:
        kept = [row.within_slo[name] for name in names]
        rows.append([f"{row.gpu_seconds:.0f}", *[UNKNOWN if one is None else f"{100 * one:.2f} %" for one in kept]])
    return ["AT GPU·s", *names], rows


def _range(ends: tuple[float, float], times: float, digits: int) -> str:
    return f"{ends[0] * times:.{digits}f}, {ends[1] * times:.{digits}f}"
