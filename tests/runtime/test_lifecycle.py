"""The replica's life: the table is whole, closed and without traps."""

from __future__ import annotations

import itertools

import pytest

from events.types.replicas import ReplicaState
from runtime.core.lifecycle import TRANSITIONS, IllegalTransition, ReplicaEvent, after

S = ReplicaState
E = ReplicaEvent

LEGAL = {
    (S.STARTING, E.ANSWERED): S.READY,
    (S.STARTING, E.STOP_BEGAN): S.STOPPING,
    (S.STARTING, E.BROKE): S.FAILED,
    (S.READY, E.DRAIN_ORDERED): S.DRAINING,
    (S.READY, E.STOP_BEGAN): S.STOPPING,
    (S.READY, E.BROKE): S.FAILED,
    (S.DRAINING, E.DRAIN_TAKEN_BACK): S.READY,
    (S.DRAINING, E.STOP_BEGAN): S.STOPPING,
    (S.DRAINING, E.BROKE): S.FAILED,
    (S.DRAINING, E.FELL_ASLEEP): S.SLEEPING,
    (S.SLEEPING, E.WOKEN): S.STARTING,
    (S.SLEEPING, E.STOP_BEGAN): S.STOPPING,
    (S.SLEEPING, E.BROKE): S.FAILED,
    (S.STOPPING, E.GONE): None,
    (S.FAILED, E.GONE): None,
}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(S, E)), ids=lambda part: str(part.value))
def test_every_pair(state: ReplicaState, event: ReplicaEvent) -> None:
    """Each of all pairs either leads where this list says or raises, naming both."""
    if (state, event) in LEGAL:
        assert after(state, event) is LEGAL[state, event]
        return
    with pytest.raises(IllegalTransition, match=f"{state.value}.*{event.value}") as raised:
        after(state, event)
    assert (raised.value.state, raised.value.event) == (state, event)


def test_every_state_can_end() -> None:
    """From each state some events lead to the end: nothing is stuck for ever."""
    ends = {state for (state, _), target in TRANSITIONS.items() if target is None}
    grown = True
    while grown:
        more = {state for (state, _), target in TRANSITIONS.items() if target in ends} - ends
        ends |= more
        grown = bool(more)
    assert ends == set(S)


def test_resources_are_given_back_once() -> None:
    """Only a replica that was stopped or broke can be gone, so nothing is free while a process may live."""
    assert {state for state, event in TRANSITIONS if event is E.GONE} == {S.STOPPING, S.FAILED}
