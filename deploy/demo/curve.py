"""The loss curve of the training run, as SVG: where it yielded the GPU, it goes on as if nothing had been."""

from __future__ import annotations

import math
from collections.abc import Sequence

from deploy.demo.chart import STYLE

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 940, 220, 56, 16, 24, 30
COLOUR = "#2f6fde"


def draw(losses: Sequence[float], resumed_step: int) -> str:
    """Steps to the right, losses upwards on a logarithmic scale; a dashed line where the run was resumed."""
    low, high = _decades(losses)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="loss by step"><style>{STYLE}</style>'
        )
    ]
    for decade in range(low, high + 1):
        y = _y(10.0**decade, low, high)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0**decade:g}</text>')
    points = " L".join(
        f"{_x(step, len(losses)):.1f},{_y(loss, low, high):.1f}" for step, loss in enumerate(losses, start=1)
    )
    parts.append(f'<path d="M{points}" fill="none" stroke="{COLOUR}" stroke-width="1.5"/>')
    x, bottom = _x(resumed_step, len(losses)), HEIGHT - BOTTOM
    parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}"/>')
    words = f"yielded the GPU after step {resumed_step}, and went on there"
    parts.append(f'<text class="tick" x="{x + 6:.1f}" y="{TOP + 10}">{words}</text>')
    parts.append(
        f'<text class="tick" x="{WIDTH - RIGHT}" y="{bottom + 18}" text-anchor="end">{len(losses)} steps</text>'
    )
    return "\n".join([*parts, "</svg>\n"])


def _decades(losses: Sequence[float]) -> tuple[int, int]:
    """The powers of ten between which the losses lie."""
    return math.floor(math.log10(min(losses))), math.ceil(math.log10(max(losses)))


def _x(step: int, steps: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * step / steps


def _y(loss: float, low: int, high: int) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (high - math.log10(loss)) / max(1, high - low)
