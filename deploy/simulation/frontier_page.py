"""A page that compares policies at equal cost: each one's frontier as a line, and what all keep at the same costs.

Whole in itself: no scripts, no fonts.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from deploy.simulation.frontier import AtCost, Frontiers, Point
from deploy.simulation.page import COLOURS, LEFT, RIGHT, STYLE, TOP, WIDTH
from deploy.simulation.request_page import figure, grid_x, place_x, place_y, rule, under

ROOM = 1.02


def page_text(trace: str, found: Frontiers) -> str:
    """The page, as HTML."""
    seeds = "one seed" if found.seeds == 1 else f"the mean of {found.seeds} seeds"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>relume simulate: {escape(trace)}</title>'
        f"<style>{STYLE}</style></head><body><h1>Policies at equal cost over {escape(trace)}</h1>"
        f"<p>Each dot is a setting of a policy that no other setting of it beats ({seeds}); further up and to the left "
        f"is better.</p>{chart(found)}<h2>At equal cost</h2>{_costs(list(found.frontiers), found.at_cost)}"
        f"<h2>Frontiers</h2>{_points(found)}</body></html>\n"
    )


def chart(found: Frontiers) -> str:
    """The part within the objective against GPU-seconds: a line a policy."""
    every = [one for points in found.frontiers.values() for one in points]
    most = max((one.gpu_seconds for one in every), default=1.0) * ROOM or 1.0
    floor = max(0.0, int(min((one.within_slo for one in every), default=0.9) * 20) / 20)
    height = max(1e-9, 1.0 - floor)
    parts = [figure("frontiers: requests within the objective against GPU-seconds"), *grid_x(most)]
    for at in range(6):
        y = place_y(height * at / 5, height)
        parts.append(rule(LEFT, y, WIDTH - RIGHT, y))
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{100 * (floor + height * at / 5):.1f} %')
        parts.append("</text>")
    for at, (name, points) in enumerate(found.frontiers.items()):
        colour = COLOURS[at % len(COLOURS)]
        places = [(place_x(one.gpu_seconds, most), place_y(one.within_slo - floor, height)) for one in points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        for one, (x, y) in zip(points, places, strict=True):
            told = f"{escape(one.policy)}: {100 * one.within_slo:.2f} %, {one.gpu_seconds:,.0f} GPU·s"
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"><title>{told}</title></circle>')
        y = TOP + 14 * at
        parts.append(f'<text x="{WIDTH - RIGHT}" y="{y}" text-anchor="end" style="fill:{colour}">{escape(name)}</text>')
    return "".join([*parts, under("GPU·s"), "</svg>"])


def _costs(names: Sequence[str], rows: Sequence[AtCost]) -> str:
    heads = "".join(f"<th>{escape(name)}</th>" for name in names)
    lines = []
    for row in rows:
        kept = [row.within_slo[name] for name in names]
        cells = "".join(f"<td>{'' if one is None else f'{100 * one:.2f} %'}</td>" for one in kept)
        lines.append(f"<tr><td>{row.gpu_seconds:,.0f}</td>{cells}</tr>")
    return f"<table><tr><th>GPU·s</th>{heads}</tr>{''.join(lines)}</table>"


def _points(found: Frontiers) -> str:
    lines = [_row(one) for points in found.frontiers.values() for one in points]
    heads = "".join(f"<th>{title}</th>" for title in ("setting", "within SLO", "least, most", "GPU·s", "least, most"))
    return f"<table><tr>{heads}</tr>{''.join(lines)}</table>"


def _row(one: Point) -> str:
    kept, costs = one.within_slo_range, one.gpu_seconds_range
    cells = (
        escape(one.policy), f"{100 * one.within_slo:.2f} %", f"{100 * kept[0]:.2f}, {100 * kept[1]:.2f}",
        f"{one.gpu_seconds:,.0f}", f"{costs[0]:,.0f}, {costs[1]:,.0f}",
    )  # fmt: skip
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
