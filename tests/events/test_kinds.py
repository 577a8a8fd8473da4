"""Values that are made for every decision differ from the others in nothing but their cost."""

from __future__ import annotations

import dataclasses

import pytest
from pydantic import TypeAdapter

from autoscaler.core.model import Decision, Demand, Memory, Reason, Replicas, Snapshot, in_order
from events.kinds import hot_value, value


@value
class _Cold:
    name_said: str
    count: int = 0
    rest: tuple[int, ...] = ()


@hot_value
class _Hot:
    name_said: str
    count: int = 0
    rest: tuple[int, ...] = ()


def test_a_hot_value_travels_as_any_other() -> None:
    """The same JSON, with names in camelCase, and back to an equal value."""
    cold, hot = TypeAdapter(_Cold), TypeAdapter(_Hot)
    written = hot.dump_json(_Hot(name_said="a", count=3, rest=(1, 2)), by_alias=True)
    assert written == cold.dump_json(_Cold(name_said="a", count=3, rest=(1, 2)), by_alias=True)
    assert hot.validate_json(written) == _Hot(name_said="a", count=3, rest=(1, 2))
    assert hot.validate_python({"nameSaid": "a", "unknown": 1}) == _Hot(name_said="a")


def test_a_hot_value_is_a_value() -> None:
    """Equal and alike as a key when its fields are; made by keywords only; it takes no other attributes."""
    assert len({_Hot(name_said="a"), _Hot(name_said="a"), _Hot(name_said="b")}) == 2
    with pytest.raises(TypeError):
        _Hot("a")  # type: ignore[misc]  # wrong on purpose
    with pytest.raises(AttributeError):
        _Hot(name_said="a").other = 1  # type: ignore[attr-defined]  # wrong on purpose


@pytest.mark.parametrize("made", [Decision, Demand, Memory, Replicas, Snapshot])
def test_what_a_decision_sees_has_no_dictionary(made: type) -> None:
    """Ten thousand models keep a decision each: the values are slotted."""
    assert dataclasses.is_dataclass(made)
    assert "__dict__" not in dir(made)


def test_one_reason_alone_is_that_reason() -> None:
    """Whatever number of reasons, they come in the order of `Reason`."""
    assert all(in_order({reason}) == (reason,) for reason in Reason)
    assert in_order({Reason.AT_MOST_MAX, Reason.BACKLOG, Reason.LOAD}) == (
        Reason.BACKLOG,
        Reason.LOAD,
        Reason.AT_MOST_MAX,
    )
