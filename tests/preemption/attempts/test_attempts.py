"""The attempt: every pair of state and event, silence in every state, thousands of walks with lost and late news."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.units import Instant, Seconds
from preemption.core.attempts.attempt import (
    HISTORY_MOST,
    ON_ENTRY,
    Attempt,
    AttemptPolicy,
    Command,
    News,
    advance,
    again,
)
from preemption.core.attempts.states import ENDS, HOLDS_CARDS, TABLE, Happened, State

POLICY = AttemptPolicy()
NEVER = Instant(float("inf"))


def attempt(state: State = State.SELECTED, **changed: object) -> Attempt:
    """An attempt that has just come into `state`."""
    plain = Attempt(
        id="a1", job="tune", uid="u", shortage="llama", cards=("n0/gpu0",), epoch=7, due=Instant(1000.0), state=state,
        since=Instant(100.0), deadline=Instant(105.0),
    )  # fmt: skip
    return replace(plain, **changed)  # type: ignore[arg-type]  # a test names the fields it changes


def news(happened: Happened) -> News:
    """That it happened, with what such news carries."""
    checkpoint = {"manifest": "m2", "step": 42} if happened is Happened.CHECKPOINTED else {}
    return News(happened, **checkpoint)  # type: ignore[arg-type]  # one shape of two


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("happened", list(Happened))
def test_every_pair_leads_where_the_table_says_or_nowhere(state: State, happened: Happened) -> None:
    """Also: entering a state commands what belongs to it, and an event without meaning commands nothing."""
    before = attempt(state)
    after, commands = advance(before, news(happened), Instant(200.0), POLICY)
    target = TABLE.get(state, {}).get(happened)
    if target is None:
        assert (after, commands) == (before, ())
    elif target is state:
        assert replace(after, deadline=before.deadline) == before
        assert commands == ()
    else:
        assert after.state is target
        assert commands == ON_ENTRY.get(target, ())
        assert after.history[-1].happened is happened
        assert after.since == 200.0
        assert (after.deadline == NEVER) == (target in ENDS)


def test_every_state_that_is_no_end_has_a_way_out_by_time() -> None:
    """Nothing waits for ever, and no end is left again."""
    assert set(TABLE) == set(State) - ENDS
    for state, row in TABLE.items():
        assert Happened.TIMEOUT in row, state


@pytest.mark.parametrize("state", sorted(set(State) - ENDS))
def test_in_a_silent_world_every_attempt_ends(state: State) -> None:
    """Only the clock goes on, and each step comes at the deadline that the attempt itself named."""
    one, seen = attempt(state), 0
    while not one.ended:
        one, _ = advance(one, News(Happened.TIMEOUT), one.deadline, POLICY)
        seen += 1
        assert seen < 15


def test_an_alarm_of_an_earlier_state_is_harmless() -> None:
    """A timeout before the deadline changes nothing."""
    one = attempt(State.STOPPING, deadline=Instant(500.0))
    assert advance(one, News(Happened.TIMEOUT), Instant(499.0), POLICY) == (one, ())


def test_a_save_has_the_time_it_asked_for_within_that_of_the_shortage() -> None:
    """Without an estimate the whole time; with one, half as much again; never beyond what the shortage can wait."""
    for eta, due, expected in [(None, 1000.0, 320.0), (Seconds(10.0), 1000.0, 220.0), (None, 250.0, 250.0)]:
        one = attempt(State.NOTIFIED, due=Instant(due))
        after, _ = advance(one, News(Happened.ACK, eta=eta), Instant(200.0), POLICY)
        assert after.deadline == expected


def test_progress_buys_time_but_not_for_ever() -> None:
    """A save that keeps writing goes on up to the whole time that a save has."""
    one, _ = advance(attempt(State.NOTIFIED), News(Happened.ACK, eta=Seconds(1.0)), Instant(200.0), POLICY)
    assert one.deadline == 206.5
    for now in range(205, 400, 5):
        one, _ = advance(one, News(Happened.PROGRESS), Instant(float(now)), POLICY)
    assert one.deadline == 200.0 + POLICY.save


def test_a_checkpoint_is_proof_and_only_a_checkpoint() -> None:
    """What was proven stands in the attempt, whatever comes after."""
    one, _ = advance(attempt(State.SAVING), news(Happened.CHECKPOINTED), Instant(200.0), POLICY)
    assert (one.manifest, one.step) == ("m2", 42)
    one, _ = advance(one, News(Happened.EXIT_SAVED, manifest="lie", step=7), Instant(201.0), POLICY)
    assert (one.manifest, one.step) == ("m2", 42)


def test_a_new_controller_says_again_what_the_state_demands() -> None:
    """Notices, signals and claims are idempotent, so it need not know whether they were done."""
    assert again(attempt(State.NOTIFIED)) == (Command.NOTICE,)
    assert again(attempt(State.STOPPING)) == (Command.TERMINATE,)
    assert again(attempt(State.CLAIMED)) == (Command.CLAIM,)
    assert again(attempt(State.FINISHED)) == ()


@given(st.lists(st.tuples(st.sampled_from(list(Happened)), st.floats(0.0, 200.0)), max_size=120))
def test_no_walk_breaks_the_rules(steps: list[tuple[Happened, float]]) -> None:
    """Cards are claimed only after they were seen empty; a victim is stopped only after a notice or a way that needs
    none; history and deadlines stay sane."""
    one, now, told, empty = attempt(), 100.0, False, False
    for happened, seconds in steps:
        now += seconds
        before = one
        one, commands = advance(one, news(happened), Instant(now), POLICY)
        told |= Command.NOTICE in commands or before.state is State.SAVING
        empty = happened is Happened.CARDS_EMPTY
        if Command.TERMINATE in commands or Command.KILL in commands:
            assert told
        if Command.CLAIM in commands:
            assert empty
        if before.state in HOLDS_CARDS and one.state not in HOLDS_CARDS and Command.RELEASE in commands:
            assert before.state in (State.CLAIMED, State.LOST)
        assert len(one.history) <= HISTORY_MOST
        assert one.ended or one.deadline >= one.since


def test_thousands_of_walks_end() -> None:
    """Random news, late and twice, with a clock that goes on: every attempt ends, and each end is reached by some."""
    rng = random.Random(0)
    events, ends = list(Happened), set()
    for _ in range(4_000):
        one, now, steps = attempt(), 100.0, 0
        while not one.ended:
            now += rng.random() * 20
            one, _ = advance(one, news(rng.choice(events)), Instant(now), POLICY)
            steps += 1
            assert steps < 20_000
        ends.add(one.state)
    assert ends == ENDS
