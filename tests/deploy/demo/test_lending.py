"""The second act: what is declared is valid, the curve has all steps, what failed is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

from deploy.demo import curve, lending, report
from deploy.spec.load import load_bytes
from tests.support.demo import LENT, summary


def test_what_the_act_declares_is_valid(tmp_path: Path) -> None:
    """The model and the training job are documents that relume takes, also with odd paths."""
    folder = tmp_path / "it's {a}: folder"
    loaded = load_bytes(lending.declarations(tmp_path / "m.gguf", folder).encode(), "demo.yaml")
    assert loaded.problems == ()


def test_the_curve_has_a_point_a_step_and_the_place_where_it_yielded() -> None:
    """It is one SVG document with a point for each loss."""
    drawn = ET.fromstring(curve.draw([1.0, 0.5, 0.02, 0.01], 2))
    (path,) = drawn.findall("{http://www.w3.org/2000/svg}path")
    assert path.attrib["d"].count(",") == 4
    assert "after step 2" in "".join(drawn.itertext())


def test_the_report_tells_when_the_curves_differ(tmp_path: Path) -> None:
    """Nobody overlooks that training lost something."""
    good = report.write(summary(), tmp_path / "good").read_text(encoding="utf-8")
    bad = report.write(replace(summary(), lent=replace(LENT, same_curve=False)), tmp_path / "bad").read_text()
    assert "NOT the same" not in good
    assert "NOT the same" in bad
    assert "llama &lt;needed&gt; 1 GPU." in good
