"""A page that compares policies over a trace of requests: what was kept against its price, and replicas over time.

Whole in itself: no scripts, no fonts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from deploy.simulation.page import BOTTOM, COLOURS, HEIGHT, LEFT, RIGHT, STYLE, TOP, WIDTH, ticks
from deploy.simulation.request_replay import Outcome
from deploy.simulation.running import Wished

STEPS_MOST = 2_000
"""Points of one line: more cannot be seen."""


def page_text(trace: str, outcomes: Mapping[str, Outcome]) -> str:
    """The page, as HTML."""
    heads = "".join(
        f"<th>{title}</th>"
        for title in ("policy", "within SLO", "GPU·s", "idle GPU·s", "held p99", "starts", "flaps", "decisions")
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>relume simulate: {escape(trace)}</title>'
        f"<style>{STYLE}</style></head><body><h1>Policies over {escape(trace)}</h1>"
        "<p>Each dot is a policy; further up and to the left is better.</p>"
        f"{scatter(outcomes)}<p>Replicas that each policy wished for, all models together.</p>{lines(outcomes)}"
        f"<table><tr>{heads}</tr>{''.join(_row(name, one) for name, one in outcomes.items())}</table></body></html>\n"
    )


def scatter(outcomes: Mapping[str, Outcome]) -> str:
    """The part within the objective against GPU-seconds."""
    most = max((one.figures.gpu_seconds for one in outcomes.values()), default=0.0) or 1.0
    least = min((one.figures.within_slo for one in outcomes.values()), default=0.0)
    floor = max(0.0, int(least * 20) / 20 - 0.05) if least < 1.0 else 0.9
    parts = [figure("requests within the objective against GPU-seconds"), *grid_x(most * 1.05)]
    for at in range(6):
        part = floor + (1.0 - floor) * at / 5
        y = place_y(part - floor, 1.0 - floor)
        parts.append(rule(LEFT, y, WIDTH - RIGHT, y))
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{100 * part:.1f} %</text>')
    for at, (name, one) in enumerate(outcomes.items()):
        x, y = place_x(one.figures.gpu_seconds, most * 1.05), place_y(one.figures.within_slo - floor, 1.0 - floor)
        told = f"{escape(name)}: {100 * one.figures.within_slo:.2f} %, {one.figures.gpu_seconds:,.0f} GPU·s"
        colour = COLOURS[at % len(COLOURS)]
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"><title>{told}</title></circle>')
        side, anchor = (-9, "end") if x > WIDTH * 0.75 else (9, "start")
        parts.append(f'<text x="{x + side:.1f}" y="{y + 4:.1f}" text-anchor="{anchor}">{escape(name)}</text>')
    return "".join([*parts, under("GPU·s"), "</svg>"])


def lines(outcomes: Mapping[str, Outcome]) -> str:
    """Wishes over time."""
    span = max((one.seconds for one in outcomes.values()), default=1.0) or 1.0
    drawn = {name: steps(one.wishes, one.seconds) for name, one in outcomes.items()}
    most = max((total for every in drawn.values() for _, total in every), default=1) or 1
    parts = [figure("replicas over time"), *grid_x(span)]
    for tick in ticks(float(most)):
        y = place_y(tick, most * 1.05)
        parts.append(rule(LEFT, y, WIDTH - RIGHT, y))
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:,.0f}</text>')
    for at, (name, every) in enumerate(drawn.items()):
        colour = COLOURS[at % len(COLOURS)]
        path = f"M{place_x(0, span):.1f} {place_y(0, most * 1.05):.1f}"
        path += "".join(f"H{place_x(when, span):.1f}V{place_y(total, most * 1.05):.1f}" for when, total in every)
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        y = TOP + 14 * at
        parts.append(f'<text x="{WIDTH - RIGHT}" y="{y}" text-anchor="end" style="fill:{colour}">{escape(name)}</text>')
    return "".join([*parts, under("seconds"), "</svg>"])


def steps(wishes: Sequence[Wished], seconds: float) -> list[tuple[float, int]]:
    """(when, replicas of all models together) at each change, thinned to what can be seen."""
    standing: dict[str, int] = {}
    total, found = 0, [(0.0, 0)]
    for wish in wishes:
        total += wish.replicas - standing.get(wish.model, 0)
        standing[wish.model] = wish.replicas
        if wish.at - found[-1][0] < seconds / STEPS_MOST:
            found[-1] = (found[-1][0], max(total, found[-1][1]) if len(found) > 1 else total)
        else:
            found.append((wish.at, total))
    return [*found, (seconds, total)]


def _row(name: str, outcome: Outcome) -> str:
    one = outcome.figures
    cells = (
        escape(name), f"{100 * one.within_slo:.2f} %", f"{one.gpu_seconds:,.0f}", f"{one.idle_gpu_seconds:,.0f}",
        f"{one.held_p99:.2f} s", f"{one.starts:,}", f"{one.flaps:,}", f"{one.decisions:,}",
    )  # fmt: skip
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def figure(label: str) -> str:
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box}>'


def under(words: str) -> str:
    middle = (LEFT + WIDTH - RIGHT) / 2
    return f'<text x="{middle}" y="{HEIGHT - 14}" text-anchor="middle">{words}</text>'


def grid_x(most: float) -> list[str]:
    parts = []
    for tick in ticks(most):
        x = place_x(tick, most)
        parts.append(rule(x, TOP, x, HEIGHT - BOTTOM))
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{tick:,.0f}</text>')
    return parts


def rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/>'


def place_x(amount: float, most: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * amount / most


def place_y(amount: float, most: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * amount / most
