"""Queries of metrics servers: what an answer means, how it is declared, and what it does to the wish."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.core.policy import QueryPolicy, ScalingPolicy, Series, SignalPolicy
from autoscaler.core.query import DELAY_MOST, Answer, judge
from autoscaler.core.signals import Signals
from autoscaler.signals_spec import PrometheusSpec, SignalSpec
from deploy.spec.check import check_as
from deploy.spec.model import Model
from deploy.spec.problem import SpecRefused
from events.types.metrics import QueryMeasured
from events.units import Instant, Seconds
from tests.support.autoscaling import POLICY, T0
from tests.support.specs import put, smallest

QUERY = QueryPolicy(query="q", server="", every=Seconds(15.0), series=Series.ONE, empty_is_zero=False)


@pytest.mark.parametrize(
    ("values", "changed", "value", "error"),
    [
        ((3.0,), {}, 3.0, ""),
        ((0.0,), {}, 0.0, ""),
        ((), {}, None, "no series"),
        ((), {"empty_is_zero": True}, 0.0, ""),
        ((1.0, 2.0), {}, None, "2 series"),
        ((1.0, 2.0), {"series": Series.SUM}, 3.0, ""),
        ((1.0, 2.0), {"series": Series.MAX}, 2.0, ""),
        ((), {"series": Series.SUM}, None, "no series"),
        ((math.nan,), {}, None, "NaN"),
        ((math.nan,), {"empty_is_zero": True}, None, "NaN"),
        ((math.nan, 1.0), {"series": Series.MAX}, None, "NaN"),
        ((1.0, math.nan), {"series": Series.SUM}, None, "NaN"),
        ((math.inf,), {}, None, "infinite"),
        ((math.inf, -math.inf), {"series": Series.SUM}, None, "infinite"),
        ((3.0, -math.inf), {"series": Series.MAX}, None, "infinite"),
        ((1e308, 1e308), {"series": Series.SUM}, None, "infinite"),
        ((-1.0,), {}, None, "negative"),
        ((-1.0, 3.0), {"series": Series.SUM}, 2.0, ""),
    ],
)
def test_what_an_answer_means(
    values: tuple[float, ...], changed: dict[str, Any], value: float | None, error: str
) -> None:
    """Unknown is not zero: nothing, NaN and infinity have no value, and it is said why."""
    measured = judge("m", "s", replace(QUERY, **changed), Answer(values))
    assert measured.value == value
    assert error in measured.error
    assert bool(measured.error) == bool(error)
    assert measured.series == len(values)


@pytest.mark.parametrize(("delay", "told"), [(None, 0.0), (7.0, 7.0), (-5.0, 0.0), (DELAY_MOST + 1, 0.0)])
def test_a_delay_that_cannot_be_is_none(delay: float | None, told: float) -> None:
    """The number is valid for as much longer as it is late, so that a slow scrape does not make it unknown."""
    measured = judge("m", "s", QUERY, Answer((1.0,), None if delay is None else Seconds(delay)))
    assert measured.delay == told
    assert measured.valid_for == 45.0 + told


def policy() -> ScalingPolicy:
    """A model that follows one query: four of it a replica."""
    return replace(POLICY, signals=(SignalPolicy(name="q", target=4.0, query=QUERY),))


def told(value: float | None, *, error: str = "", delay: float = 0.0, name: str = "q") -> QueryMeasured:
    """What a measurement told."""
    return QueryMeasured(model="m", name=name, value=value, error=error, delay=delay, valid_for=45.0 + delay)


def at(seconds: float) -> Instant:
    """So long after the beginning."""
    return Instant(T0 + seconds)


def test_a_late_number_is_as_old_as_it_is_late() -> None:
    """Its age counts from the scrape."""
    signals = Signals()
    assert signals.query(told(8.0, delay=30.0), at(0), policy()) == 2.0
    (seen,) = signals.needed(at(5), policy()).seen
    assert (seen.age, seen.need) == (35.0, 2.0)


def test_what_fails_holds_until_it_runs_out_and_says_why() -> None:
    """A failed measurement leaves the last number valid as long as it is; the reason is kept until one succeeds."""
    signals = Signals()
    signals.query(told(8.0), at(0), policy())
    signals.query(told(None, error="no answer"), at(15), policy())
    needed = signals.needed(at(20), policy())
    assert (needed.replicas, needed.stale, needed.seen[0].error) == (2.0, 0, "no answer")
    assert signals.needed(at(46), policy()).stale == 1
    signals.query(told(0.0), at(50), policy())
    needed = signals.needed(at(51), policy())
    assert (needed.replicas, needed.stale, needed.seen[0].error) == (0.0, 0, "")


def test_one_that_never_succeeded_is_stale_with_its_reason() -> None:
    """Nothing is taken away for a number that was never known."""
    signals = Signals()
    signals.query(told(None, error="the server cannot be asked"), at(0), policy())
    needed = signals.needed(at(1), policy())
    assert (needed.stale, needed.seen[0].value, needed.seen[0].error) == (1, None, "the server cannot be asked")


def test_one_that_nobody_declares_is_not_kept() -> None:
    """A late measurement of a declaration that is gone leaves nothing behind."""
    signals = Signals()
    assert signals.query(told(99.0, name="other"), at(0), policy()) == 0.0
    assert len(signals) == 0


OTHER: dict[str, Any] = {
    "query": "r", "server": "main", "every": "7s", "target": 3, "activation": 2, "series": "sum", "emptyIsZero": True,
}  # fmt: skip


@pytest.mark.parametrize("field", sorted(OTHER))
def test_no_field_is_dead(field: str) -> None:
    """Another value resolves to another policy, and the table names every field."""
    assert {str(known.alias) for known in PrometheusSpec.model_fields.values()} == set(OTHER)
    plain = SignalSpec.model_validate({"prometheus": {"query": "q"}}).resolve()
    assert SignalSpec.model_validate({"prometheus": {"query": "q", field: OTHER[field]}}).resolve() != plain


@pytest.mark.parametrize(
    ("signal", "words"),
    [
        ({"prometheus": {"query": "q"}, "kafkaLag": {"group": "g"}}, "two signals"),
        (
            {"prometheus": {"query": "q"}, "engine": {"metric": "running", "target": 1}, "kafkaLag": {"group": "g"}},
            "three signals",
        ),
        ({"engine": {"metric": "running", "target": 1}, "target": 3}, "stand inside it"),
        ({"engine": {"metric": "tokens", "target": 1}}, "metric"),
        ({"engine": {"metric": "running"}}, "target"),
        ({"engine": {"metric": "running", "target": 0}}, "target"),
        ({"prometheus": {"query": "q"}, "target": 3}, "stand inside it"),
        ({"prometheus": {}}, "query"),
        ({"prometheus": {"query": "q", "server": "http://user:secret@host"}}, "server"),
        ({}, "prometheus"),
    ],
)
def test_what_contradicts_itself_is_refused(signal: dict[str, Any], words: str) -> None:
    """In words that say what to write; a password has no place in a declaration."""
    document = put(smallest(), "spec.scaling.signals", [signal])
    with pytest.raises(SpecRefused) as refused:
        check_as(Model, document)
    assert words in str(refused.value)
