"""A page that compares policies: cold starts against memory, one dot each. Whole in itself: no scripts, no fonts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 940, 520, 70, 30, 30, 60
COLOURS = ("#2f6fde", "#e0861a", "#1d9a68", "#b0457b", "#7a5cc9", "#3a8f9e", "#8a6d3b", "#56636f")

STYLE = """
body { font: 15px system-ui, sans-serif; max-width: 960px; margin: 2rem auto; padding: 0 1rem; color: #1c252e; }
text { font: 12px system-ui, sans-serif; fill: #3b4753; } .grid { stroke: #dfe4e9; }
table { border-collapse: collapse; }
td, th { padding: .3rem .8rem; text-align: right; border-bottom: 1px solid #dfe4e9; }
td:first-child, th:first-child { text-align: left; }
@media (prefers-color-scheme: dark) {
  body { background: #14191e; color: #dde4ea; } text { fill: #c3ccd5; } .grid { stroke: #313b45; }
}
"""


@dataclass(frozen=True, slots=True)
class Point:
    """One policy."""

    policy: str
    cold_starts: int
    memory_gb_seconds: float


def page_text(trace: str, points: Sequence[Point]) -> str:
    """The page, as HTML. Policies are listed by memory."""
    points = sorted(points, key=lambda point: (point.memory_gb_seconds, point.cold_starts))
    rows = "".join(
        f"<tr><td>{escape(point.policy)}</td><td>{point.cold_starts:,}</td><td>{point.memory_gb_seconds:,.0f}</td></tr>"
        for point in points
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>relume simulate: {escape(trace)}</title>'
        f"<style>{STYLE}</style></head><body><h1>Policies over {escape(trace)}</h1>"
        "<p>Each dot is a policy; further down and to the left is better. Cold starts on a logarithmic scale.</p>"
        f"{chart(points)}<table><tr><th>policy</th><th>cold starts</th><th>memory, GB·s</th></tr>{rows}</table>"
        "</body></html>\n"
    )


def chart(points: Sequence[Point]) -> str:
    """Cold starts (plus one, so that none has a place) against memory."""
    most = max((point.memory_gb_seconds for point in points), default=0.0) or 1.0
    decades = max(1, ceil(log10(max((point.cold_starts for point in points), default=0) + 1) + 1e-9))
    head = f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="cold starts against memory"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {head}>']
    for decade in range(decades + 1):
        y = _y(10.0**decade, decades)
        label = f"{10**decade:,}" if decade else "0"
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for tick in ticks(most):
        x = _x(tick, most)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{tick:,.0f}</text>')
    for at, point in enumerate(points):
        x, y, colour = _x(point.memory_gb_seconds, most), _y(point.cold_starts + 1.0, decades), COLOURS[at % 8]
        told = f"{escape(point.policy)}: {point.cold_starts:,} cold starts, {point.memory_gb_seconds:,.0f} GB·s"
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"><title>{told}</title></circle>')
        side, anchor = (-9, "end") if x > WIDTH * 0.75 else (9, "start")
        parts.append(f'<text x="{x + side:.1f}" y="{y + 4:.1f}" text-anchor="{anchor}">{escape(point.policy)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 14}" text-anchor="middle">memory held, GB·s</text>')
    parts.append(f'<text x="{LEFT}" y="{TOP - 12}" text-anchor="end">cold starts</text></svg>')
    return "".join(parts)


def _x(memory: float, most: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * memory / (most * 1.05)


def _y(cold_and_one: float, decades: int) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * log10(cold_and_one) / decades


def ticks(most: float) -> list[float]:
    """Some round numbers up to `most`."""
    rough = most / 5
    step = 10.0 ** floor(log10(rough))
    step *= next(factor for factor in (1, 2, 5, 10) if factor * step >= rough * 0.999)
    return [step * at for at in range(int(most / step) + 1)]
