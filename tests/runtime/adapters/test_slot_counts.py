"""Reading an engine's parallelism out of its answers."""

from __future__ import annotations

import pytest

from runtime.adapters.slot_counts import mismatch, running_slots


@pytest.mark.parametrize(
    ("health", "slots"),
    [
        ({"/slots": [{"id": 0}, {"id": 1}]}, 2),
        ({"/props": {"total_slots": 3}}, 3),
        ({"/health": {"status": "ok"}, "/running": {"running": 1, "slots": 5}}, 5),
        ({"/health": {"status": "ok"}}, None),
        ({"/slots": []}, None),
        ({"/slots": ["x"]}, None),
        ({"/running": {"slots": True}}, None),
        ({"/running": "text"}, None),
        ({}, None),
    ],
)
def test_counts_are_found_where_engines_write_them(health: dict[str, object], slots: int | None) -> None:
    """None is not zero: the engine does not say."""
    assert running_slots(health) == slots


def test_a_mismatch_says_both_numbers_and_a_remedy() -> None:
    """And nothing when they agree or are not known."""
    text = mismatch({"/running": {"slots": 5}}, 4, "do this")
    assert "5" in text
    assert "4" in text
    assert text.endswith("do this")
    assert mismatch({"/running": {"slots": 5}}, 5, "do this") == mismatch({}, 5, "do this") == ""
