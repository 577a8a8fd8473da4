"""`scaling.signals` as users write it: every field has an effect, and what contradicts itself is refused in words."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.core.lag import LagWatch, Look, Offsets, need
from autoscaler.core.policy import SignalPolicy
from autoscaler.signals_spec import KafkaLagSpec, SignalSpec
from deploy.spec.check import check_as
from deploy.spec.model import Model
from deploy.spec.problem import SpecRefused
from events.units import Instant
from tests.support.specs import put, smallest

LAG: dict[str, Any] = {"group": "g", "topic": "t"}

OTHER: dict[str, Any] = {
    "group": "h", "topic": "u", "partitions": [1], "bootstrapServers": ["b:9092"], "cluster": "c", "every": "7s",
    "target": 3, "drainWithin": "30s", "activation": 4, "offsetResetPolicy": "earliest",
    "scaleToZeroOnInvalidOffset": True, "allowIdleConsumers": True, "limitToPartitionsWithLag": True,
    "ensureEvenDistribution": True, "excludePersistentLag": "1s",
}  # fmt: skip
"""Another value for each field of a kafkaLag."""

WHERE = {"group", "topic", "partitions", "bootstrapServers", "cluster", "every"}
"""What says where and when to measure: their effect is tested with the reader and its rounds."""


def lag(**fields: Any) -> SignalPolicy:
    return SignalSpec.model_validate({"kafkaLag": {**LAG, **fields}}).resolve()


def test_the_table_names_every_field() -> None:
    """A new field needs a line here, and so an effect."""
    assert {str(field.alias) for field in KafkaLagSpec.model_fields.values()} == set(OTHER)


@pytest.mark.parametrize("field", sorted(OTHER))
def test_no_field_is_dead(field: str) -> None:
    """Another value resolves to another policy."""
    assert lag(**{field: OTHER[field]}) != lag()


STORY: tuple[tuple[Offsets, ...], ...] = (
    (Offsets(0, 100, 80), Offsets(0, 30, None), *[Offsets(0, 9, 9)] * 4),  # one without a commit
    (Offsets(0, 100, 85), Offsets(0, 30, 10), *[Offsets(0, 9, 9)] * 4),
    (Offsets(0, 100, 90), Offsets(0, 30, 10), *[Offsets(0, 9, 9)] * 4),  # one that stands still
    (Offsets(0, 200, 100), Offsets(0, 30, 30), *[Offsets(0, 9, 9)] * 4),  # more than six replicas' worth, in one
    (Offsets(0, 203, 200), Offsets(0, 30, 30), *[Offsets(0, 9, 9)] * 4),  # almost none
)


def outcome(signal: SignalPolicy) -> tuple[float, ...]:
    """What the story needs, step by step, of replicas that do 2 records a second each."""
    assert signal.lag is not None
    watch, needs = LagWatch(), []
    for second, offsets in enumerate(STORY, start=1):
        look = Look(Instant(float(second)), {("t", index): one for index, one in enumerate(offsets)})
        measured = watch.measure("m", "s", signal.lag, look)
        needs.append(need(measured, signal.lag, signal.activation, 2.0).replicas)
    return tuple(needs)


@pytest.mark.parametrize("field", sorted(set(OTHER) - WHERE))
def test_every_number_and_flag_changes_the_outcome(field: str) -> None:
    """Not only the policy: the replicas that are needed."""
    assert outcome(lag(**{field: OTHER[field]})) != outcome(lag())


def test_fields_of_a_told_signal() -> None:
    """Name, target and activation reach the policy; a lag without a name is called by what it measures."""
    told = SignalSpec.model_validate({"name": "queue", "target": 2, "activation": 3}).resolve()
    assert told == SignalPolicy(name="queue", target=2.0, activation=3.0)
    assert lag().name == "kafka/default/t/g"
    assert SignalSpec.model_validate({"name": "n", "kafkaLag": LAG}).resolve().name == "n"


WRONG: list[tuple[Any, str]] = [
    ({"target": 3}, "needs a name"),
    ({"name": "a", "target": 0}, "more than 0"),
    ({"name": "a", "kafkaLag": LAG, "target": 3}, "stand inside it"),
    ({"kafkaLag": {"topic": "t"}}, "needed and missing"),
    ({"kafkaLag": {**LAG, "topic": "a b"}}, "form that is not allowed"),
    ({"kafkaLag": {**LAG, "bootstrapServers": ["kafka://b"]}}, "form that is not allowed"),
    ({"kafkaLag": {**LAG, "cluster": "c", "bootstrapServers": ["b:9092"]}}, "leave one out"),
    ({"kafkaLag": {"group": "g", "partitions": [1]}}, "name the topic"),
    ({"kafkaLag": {"group": "g", "limitToPartitionsWithLag": True}}, "name the topic"),
    ({"kafkaLag": {**LAG, "limitToPartitionsWithLag": True, "allowIdleConsumers": True}}, "contradicts"),
    ({"kafkaLag": {**LAG, "limitToPartitionsWithLag": True, "ensureEvenDistribution": True}}, "contradicts"),
    ({"kafkaLag": {**LAG, "offsetResetPolicy": "newest"}}, "must be 'latest' or 'earliest'"),
    ({"kafkaLag": {**LAG, "lagThreshold": 5}}, "there is no field lagThreshold"),
]


@pytest.mark.parametrize(("signal", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_is_refused(signal: Any, said: str) -> None:
    """In a sentence that names the field."""
    with pytest.raises(SpecRefused, match=said) as refused:
        check_as(Model, put(smallest(), "spec.scaling.signals", [signal]))
    assert all(problem.path.startswith("spec.scaling.signals") for problem in refused.value.problems)


def test_names_are_given_once() -> None:
    """Two signals of one name would be one."""
    with pytest.raises(SpecRefused, match="two signals are called queue"):
        check_as(Model, put(smallest(), "spec.scaling.signals", [{"name": "queue"}, {"name": "queue"}]))
