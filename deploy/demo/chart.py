"""A chart of what happened, as SVG: requests running and held above, replicas ready and starting below."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT = 940, 46, 16
PANEL_HEIGHT, PANEL_GAP, TOP, BOTTOM = 150, 46, 40, 34
RUNNING, HELD, READY, STARTING = "#2f6fde", "#e0861a", "#1d9a68", "#9aa7b4"

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #3b4753; }
.title { font-weight: 600; fill: #1c252e; } .tick { font-size: 11px; fill: #66727e; }
.grid { stroke: #dfe4e9; stroke-width: 1; } .axis { stroke: #9aa5b0; stroke-width: 1; }
.mark { stroke: #66727e; stroke-width: 1; stroke-dasharray: 3 3; }
@media (prefers-color-scheme: dark) {
  text { fill: #c3ccd5; } .title { fill: #eef2f6; } .tick { fill: #98a4b0; }
  .grid { stroke: #313b45; } .axis { stroke: #5d6974; } .mark { stroke: #98a4b0; }
}
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """What was seen at `at` seconds from the beginning."""

    at: float
    running: int
    held: int
    ready: int
    starting: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment worth a dashed line and a word."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class _Band:
    """One stacked area: its name, colour, and height in each sample."""

    name: str
    colour: str
    height: Callable[[Sample], int]


_REQUESTS = (
    _Band("running", RUNNING, lambda sample: sample.running),
    _Band("held", HELD, lambda sample: sample.held),
)
_REPLICAS = (
    _Band("ready", READY, lambda sample: sample.ready),
    _Band("starting", STARTING, lambda sample: sample.starting),
)


def draw(samples: Sequence[Sample], marks: Sequence[Mark]) -> str:
    """The chart as one SVG document. Steps between samples: a level holds until the next sample."""
    end = max((sample.at for sample in samples), default=1.0) or 1.0
    height = TOP + 2 * PANEL_HEIGHT + PANEL_GAP + BOTTOM
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            f'aria-label="requests and replicas over time"><style>{STYLE}</style>'
        )
    ]
    parts += _panel(samples, end, TOP, "Requests", _REQUESTS)
    parts += _panel(samples, end, TOP + PANEL_HEIGHT + PANEL_GAP, "Replicas", _REPLICAS)
    bottom = height - BOTTOM
    for tick in _ticks(end, 8):
        x = _x(tick, end)
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{tick:g} s</text>')
    for mark in marks:
        x, anchor = _x(mark.at, end), "end" if mark.at > 0.85 * end else "start"
        shift = -4 if anchor == "end" else 4
        for top in (TOP, TOP + PANEL_HEIGHT + PANEL_GAP):  # not through the words between the panels
            parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + PANEL_HEIGHT}"/>')
        parts.append(
            f'<text class="tick" x="{x + shift:.1f}" y="{TOP + PANEL_HEIGHT + 14}" text-anchor="{anchor}">'
            f"{escape(mark.text)}</text>"
        )
    return "\n".join([*parts, "</svg>\n"])


def _panel(samples: Sequence[Sample], end: float, top: float, title: str, bands: Sequence[_Band]) -> list[str]:
    most = max((sum(band.height(sample) for band in bands) for sample in samples), default=0)
    scale = max(1, most)
    parts = [f'<text class="title" x="{LEFT}" y="{top - 12}">{title}</text>']
    for number, band in enumerate(bands):
        x = LEFT + 90 + 90 * number
        parts.append(f'<rect x="{x}" y="{top - 21}" width="10" height="10" rx="2" fill="{band.colour}"/>')
        parts.append(f'<text x="{x + 15}" y="{top - 12}">{band.name}</text>')
    for tick in _ticks(scale, 4):
        y = _y(tick, scale, top)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    floor = [0] * len(samples)
    for band in bands:
        ceiling = [low + band.height(sample) for low, sample in zip(floor, samples, strict=True)]
        parts.append(
            f'<path d="{_area(samples, floor, ceiling, (end, scale, top))}" fill="{band.colour}" fill-opacity="0.85"/>'
        )
        floor = ceiling
    base = top + PANEL_HEIGHT
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>')
    return parts


def _area(
    samples: Sequence[Sample], floor: Sequence[int], ceiling: Sequence[int], frame: tuple[float, float, float]
) -> str:
    """The stepped outline between two stacked levels; `frame` is (last instant, highest level, top in pixels)."""
    end, scale, top = frame
    upper, lower = [], []
    for index, sample in enumerate(samples):
        until = samples[index + 1].at if index + 1 < len(samples) else end
        for x in (_x(sample.at, end), _x(until, end)):
            upper.append(f"{x:.1f},{_y(ceiling[index], scale, top):.1f}")
            lower.append(f"{x:.1f},{_y(floor[index], scale, top):.1f}")
    return "M" + " L".join(upper + lower[::-1]) + " Z" if upper else ""


def _x(at: float, end: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * at / end


def _y(level: float, scale: float, top: float) -> float:
    return top + PANEL_HEIGHT * (1 - level / scale)


def _ticks(most: float, about: int) -> list[float]:
    """Round numbers from 0 to `most`, about so many of them: 1, 2 or 5 times a power of ten apart."""
    rough = most / about
    power = 10 ** math.floor(math.log10(rough)) if rough > 0 else 1
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    step = max(step, 1)
    return [step * number for number in range(int(most / step) + 1)]
