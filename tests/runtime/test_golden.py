"""The one-token answer that a replica must say again after a sleep."""

from __future__ import annotations

import json

import pytest

from runtime.core.golden import NUMBERS, is_same, is_steady, said


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        pytest.param({"choices": [{"text": " a"}], "id": "x"}, (" a",), id="completion"),
        pytest.param({"choices": [{"message": {"content": "a"}}]}, ("a",), id="chat"),
        pytest.param({"data": [{"embedding": [0.5, 1]}]}, (0.5, 1.0), id="embedding"),
        pytest.param({"results": [{"relevance_score": 3}]}, (3.0,), id="rerank"),
        pytest.param({"choices": [{"message": {"content": None}}]}, None, id="nothing-said"),
        pytest.param({"choices": [{"text": ""}]}, None, id="no-text"),
        pytest.param({"ok": True}, None, id="another-form"),
        pytest.param([1], None, id="no-object"),
    ],
)
def test_what_is_said(answer: object, told: tuple[object, ...] | None) -> None:
    """Texts and numbers count; names and times do not; what is not understood is unknown."""
    assert said(json.dumps(answer).encode()) == told


def test_no_json_says_nothing() -> None:
    """An answer that cannot be read is unknown, not equal to another one."""
    assert said(b"<html>") is None
    assert not is_same(("a",), said(b"<html>"))


def test_of_a_vector_the_beginning_counts() -> None:
    """Vectors have thousands of numbers; their first ones tell as much."""
    told = said(json.dumps({"data": [{"embedding": [0.1] * 1000}]}).encode())
    assert told is not None
    assert len(told) == NUMBERS


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        pytest.param(("a",), ("a",), True, id="the-same"),
        pytest.param(("a",), ("!",), False, id="gibberish"),
        pytest.param((1.0, 0.5), (1.005, 0.499), True, id="sums-in-another-order"),
        pytest.param((1.0, 0.5), (1.0, -0.5), False, id="another-vector"),
        pytest.param((1.0,), (1.0, 2.0), False, id="longer"),
        pytest.param(("1.0",), (1.0,), False, id="text-is-no-number"),
    ],
)
def test_the_same(before: tuple[str | float, ...], now: tuple[str | float, ...], same: bool) -> None:
    """Text letter by letter, numbers closely."""
    assert is_same(before, now) is same


@pytest.mark.parametrize(
    ("body", "steady"),
    [
        pytest.param({"prompt": "1", "temperature": 0}, True, id="greedy"),
        pytest.param({"prompt": "1"}, False, id="drawn-by-default"),
        pytest.param({"messages": [], "temperature": 0.7}, False, id="drawn"),
        pytest.param({"input": "1"}, True, id="embedding"),
        pytest.param({"query": "1", "documents": ["1"]}, True, id="rerank"),
        pytest.param([], False, id="no-object"),
    ],
)
def test_what_has_the_same_answer_each_time(body: object, steady: bool) -> None:
    """Only such a request can be compared."""
    assert is_steady(json.dumps(body).encode()) is steady
    assert not is_steady(b"no json")
