"""When a failed run of the tests passes all the same, and that nothing else makes it pass."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.unsteady import MOST, TIMES, alone, verdict


class Runs:
    """Answers in order; counts what it was asked."""

    def __init__(self, *answers: str) -> None:
        self._answers = list(answers)
        self.asked = 0

    def __call__(self, ids: Sequence[str]) -> str:
        self.asked += 1
        return self._answers.pop(0) if self._answers else ""


def test_what_passes_each_time_alone_is_unsteady() -> None:
    """CI goes on, after as many times as were said."""
    runs = Runs()
    assert verdict(["a"], 1, runs) == ""
    assert runs.asked == TIMES


@pytest.mark.parametrize("time", range(TIMES))
def test_one_more_failure_is_a_failure(time: int) -> None:
    """At whichever time it comes; it is not tried again."""
    runs = Runs(*[""] * time, "0 of 1 slow tests passed")
    assert "failed again" in verdict(["a"], 1, runs)
    assert runs.asked == time + 1


@pytest.mark.parametrize(
    ("failed", "ended"),
    [([], 1), (["a"], None), (["a"], 0), (["a"], 2), (["a"], 3), ([str(n) for n in range(MOST + 1)], 1)],
    ids=["nothing failed", "no run", "an older run", "interrupted", "pytest broke", "too many"],
)
def test_else_nothing_is_tried_again(failed: list[str], ended: int | None) -> None:
    """What is no failure of one to three tests of a run that came to its end stays a failure."""
    runs = Runs()
    assert verdict(failed, ended, runs)
    assert runs.asked == 0


def test_a_test_without_a_service_has_no_second_try() -> None:
    """It is counted as one that did not pass, though it would."""
    assert alone(["tests/architecture/test_unsteady.py::test_what_passes_each_time_alone_is_unsteady"]) == (
        "0 of 1 slow tests passed"
    )
