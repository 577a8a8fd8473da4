"""The chart: valid XML whatever is drawn, steps that hold until the next sample, round ticks."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

import pytest

from deploy.demo.chart import (
    HELD,
    LEFT,
    PANEL_HEIGHT,
    READY,
    RIGHT,
    RUNNING,
    STARTING,
    TOP,
    WIDTH,
    Mark,
    Sample,
    draw,
)
from tests.support.demo import SAMPLES

SVG = "{http://www.w3.org/2000/svg}"


def area(svg: str, colour: str) -> list[tuple[float, float]]:
    """The corners of the area in this colour."""
    (path,) = [path for path in ET.fromstring(svg).iter(f"{SVG}path") if path.get("fill") == colour]
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+),([\d.]+)", path.get("d", ""))]


@pytest.mark.parametrize("samples", [(), SAMPLES[:1], SAMPLES, (Sample(0.0, 0, 0, 0, 0),) * 3])
@pytest.mark.parametrize("marks", [(), (Mark(1.0, 'a < b & "c" \' ü'), Mark(7.9, "end"))])
def test_is_valid_xml(samples: Sequence[Sample], marks: Sequence[Mark]) -> None:
    """With no sample, one, many, all zeros; and words that look like markup are words."""
    root = ET.fromstring(draw(samples, marks))
    assert root.tag == f"{SVG}svg"
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert set(texts) >= {
        "Requests",
        "Replicas",
        "running",
        "held",
        "ready",
        "starting",
        *(mark.text for mark in marks),
    }


def test_a_level_holds_until_the_next_sample() -> None:
    """Two running from 4 s to 8 s of 8 s, at full height: nothing slopes, and it begins in the middle."""
    points = area(draw(SAMPLES, ()), RUNNING)
    middle, right, bottom = LEFT + (WIDTH - LEFT - RIGHT) / 2, WIDTH - RIGHT, TOP + PANEL_HEIGHT
    upper = points[: len(points) // 2]
    assert upper == [(LEFT, bottom), (middle, bottom), (middle, TOP), (right, TOP), (right, bottom), (right, bottom)]
    for (x1, y1), (x2, y2) in itertools.pairwise(upper):
        assert x1 == x2 or y1 == y2


def test_bands_are_stacked() -> None:
    """Held stands on running, starting on ready: the floor of the upper one is the ceiling of the lower one."""
    svg = draw((Sample(0.0, 1, 3, 2, 2), Sample(1.0, 1, 3, 2, 2)), ())
    for lower, upper in ((RUNNING, HELD), (READY, STARTING)):
        low, high = area(svg, lower), area(svg, upper)
        half = len(low) // 2
        assert sorted(low[:half]) == sorted(high[half:])
    assert min(y for _, y in area(svg, HELD)) == TOP


def test_a_mark_is_in_both_panels_and_reads_inwards_at_the_end() -> None:
    """Two dashed lines at its time; the last mark's word stands left of it, so that it is not cut off."""
    root = ET.fromstring(draw(SAMPLES, (Mark(4.0, "middle"), Mark(8.0, "zero"))))
    lines = [line.get("x1") for line in root.iter(f"{SVG}line") if line.get("class") == "mark"]
    assert sorted(lines) == sorted([f"{LEFT + (WIDTH - LEFT - RIGHT) / 2:.1f}"] * 2 + [f"{WIDTH - RIGHT:.1f}"] * 2)
    anchors = {text.text: text.get("text-anchor") for text in root.iter(f"{SVG}text")}
    assert (anchors["middle"], anchors["zero"]) == ("start", "end")


@pytest.mark.parametrize(
    ("seconds", "shown"), [(8.0, "8 s"), (50.0, "10 s"), (61.0, "60 s"), (600.0, "500 s"), (0.5, "0 s")]
)
def test_ticks_are_round(seconds: float, shown: str) -> None:
    """1, 2 or 5 times a power of ten apart, beginning at 0, at most eleven."""
    svg = draw((Sample(0.0, 0, 0, 0, 0), Sample(seconds, 0, 0, 0, 0)), ())
    ticks = [text.text for text in ET.fromstring(svg).iter(f"{SVG}text") if (text.text or "").endswith(" s")]
    assert ticks[0] == "0 s"
    assert shown in ticks
    assert len(ticks) <= 11
