"""What one replica bears, learned from what it carried and how late answers were."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.codec import memory_json, read_memory
from autoscaler.core.capacity import AGAIN, LEVELS_MOST, STEPS, Capacity, Evidence, Level, bearable, learn, token_floor
from autoscaler.core.decide import decide
from autoscaler.core.model import Memory
from autoscaler.core.policy import Objective, Promised, ScalingPolicy
from autoscaler.slo_spec import promising
from events.units import Instant, Seconds
from tests.support.autoscaling import POLICY, T0, seen

PROMISE = (Objective(part=0.95, within=Seconds(2.0)),)
LEARNS = promising(replace(POLICY, slots=16, target=16.0), PROMISE, target_given=False)


def looks(
    known: Capacity | None, begin: float, levels: list[float], late: Callable[[float], float],
    seconds: Callable[[float], float] = lambda level: 0.2 * level, *, policy: ScalingPolicy = LEARNS,
) -> Capacity | None:  # fmt: skip
    """Learn from one look each ten seconds, of a hundred answers; `late`: the part that is late at a level."""
    for index, level in enumerate(levels):
        at = Instant(T0 + begin + 10 * index)
        seen_now = Evidence(
            ended_at=at, concurrency=level, answers=(100,), late=(round(100 * late(level)),), seconds=seconds(level),
            tokens=30.0 * level,
        )  # fmt: skip
        known = learn(known, seen_now, policy, 1, at)
    return known


def limit_of(known: Capacity | None) -> int | None:
    assert known is not None
    return known.limit


def above(level: float) -> Callable[[float], float]:
    """Late beyond this level."""
    return lambda now: 1.0 if now > level else 0.0


@pytest.mark.parametrize(("bears", "limit"), [(3, 3), (6, 6), (9, 8), (12, 12), (16, None)])
def test_the_level_below_the_first_that_breaks_is_the_limit(bears: int, limit: int | None) -> None:
    """Levels are fine up to eight and four an octave above."""
    known = looks(None, 0, [float(level) for level in range(1, 17)][::-1], above(bears))
    assert limit_of(known) == limit


def test_the_target_follows_in_proportion_and_the_slots_with_it() -> None:
    """Three quarters of what is borne, as of all slots where nothing was learned."""
    known = looks(None, 0, [12.0, 8.0], above(8))
    learned = bearable(LEARNS, known)
    assert (LEARNS.target, learned.target, learned.slots) == (12.0, 7.5, 10)
    assert known is not None
    assert known.tokens == 240.0


def test_an_engine_that_recovers_is_tried_again() -> None:
    """After ten minutes within the limit the next level up counts, step by step, to all slots."""
    known = looks(None, 0, [12.0], above(8))
    assert limit_of(known) == 10
    still = looks(known, 10, [8.0] * 50, above(99))
    assert limit_of(still) == 10
    higher = looks(still, 10 + AGAIN, [8.0], above(99))
    assert limit_of(higher) == 12
    known, begin = higher, 700.0
    for _ in range(3):
        known = looks(known, begin, [10.0] * 62, above(99))
        begin += 620
    assert limit_of(known) is None


def test_the_limit_is_half_way_to_what_was_fine() -> None:
    """Six were fine lately and twelve are not: of 6, 7, 8 and 10 the lower middle. Long ago says nothing."""
    assert limit_of(looks(None, 0, [6.0, 12.0], above(8))) == 7
    assert limit_of(looks(None, 0, [10.0, 12.0], above(11))) == 10
    long_ago = looks(None, 0, [6.0], above(8))
    assert limit_of(looks(long_ago, AGAIN + 20, [12.0], above(8))) == 10


def _failing(known: Capacity | None, trials: int) -> list[float]:
    """When each trial begins, in seconds since the limit was met; each fails at once."""
    begun: list[float] = []
    at, limit = 10.0, limit_of(known)
    while len(begun) < trials:
        known = looks(known, at, [limit or 1.0], above(8), lambda _: 1.0)
        raised = limit_of(known) != limit
        if raised:
            begun.append(at)
            known = looks(known, at + 10, [12.0], above(8), lambda _: 1.5)
            at += 10
        limit, at = limit_of(known), at + 10
    return begun


def test_each_trial_that_fails_makes_the_next_wait_twice_as_long() -> None:
    """10, 20, 40, 80 minutes, and no longer. A trial costs many answers their promise."""
    begun = _failing(looks(None, 0, [8.0, 12.0], above(8), lambda _: 1.0), 6)
    waits = [later - earlier for earlier, later in zip([0.0, *begun], begun, strict=False)]
    assert [round(wait / AGAIN) for wait in waits] == [1, 2, 4, 8, 8, 8]


def test_an_engine_that_became_much_faster_is_tried_without_the_wait() -> None:
    """After three failed trials the next is eighty minutes away; at a quarter of the time of an answer it is due."""
    known = looks(None, 0, [8.0, 12.0], above(8), lambda _: 1.0)
    assert known is not None
    known = replace(known, failed=3, pace=1.0)
    slow = looks(known, AGAIN + 20, [8.0], above(99), lambda _: 0.9)
    assert limit_of(slow) == limit_of(known)
    fast = looks(known, AGAIN + 20, [8.0] * 6, above(99), lambda _: 0.25)
    assert limit_of(fast) is not None
    assert limit_of(fast) != limit_of(known)


def test_a_promise_that_bears_it_is_tried_without_the_wait() -> None:
    """After three failed trials the next is eighty minutes away; not while the last hour used the promise up no faster
    than it allows: more replicas than it needs are paid for meanwhile."""
    known = looks(None, 0, [8.0, 12.0], above(8), lambda _: 1.0)
    assert known is not None
    known = replace(known, failed=3)
    at = Instant(T0 + AGAIN + 20)
    fine = Evidence(ended_at=at, concurrency=8.0, answers=(100,), late=(0,), seconds=1.0)
    for spent, raised in ((None, False), (1.5, False), (1.0, True), (0.0, True)):
        tried = learn(known, replace(fine, spent=spent), LEARNS, 1, at)
        assert (limit_of(tried) != limit_of(known)) == raised


@pytest.mark.parametrize("slots", [16, 10])
def test_a_trial_that_was_kept_ends_the_row_of_failures(slots: int) -> None:
    """Ten minutes near the new limit, or at all slots: the next trouble is another one."""
    policy = replace(LEARNS, slots=slots, target=slots)
    known = looks(None, 0, [8.0, 10.0], above(8), policy=policy)
    assert known is not None
    known = looks(replace(known, failed=3), 8 * AGAIN + 20, [8.0], above(99), policy=policy)
    assert known is not None
    assert (known.trying, known.failed, known.limit) == (True, 3, None if slots == 10 else 10)
    known = looks(known, 8 * AGAIN + 30, [8.0] * 61, above(99), policy=policy)
    assert known is not None
    assert known.failed == 0


def test_slow_by_itself_is_in_vain() -> None:
    """Late at twelve, and as late and as slow at six: it is not the number at a time, and nothing is limited."""
    known = looks(None, 0, [12.0, 12.0, 6.0], lambda _: 1.0, lambda _: 5.0)
    assert known is not None
    assert (known.in_vain, known.limit) == (True, None)
    mended = looks(known, 100, [6.0] * 30, above(99), lambda _: 0.1)
    assert mended is not None
    assert not mended.in_vain


def test_slow_by_load_is_not_in_vain() -> None:
    """Late at twelve and at six, but faster there: the limit goes on down, to an eighth of the slots at most."""
    known = looks(None, 0, [12.0, 10.0, 8.0, 6.0, 4.0, 2.0, 1.0], lambda _: 1.0)
    assert limit_of(known) == 2


def test_chance_is_no_proof() -> None:
    """Seven late of a hundred at a promise for 95: it may be chance. Fifteen are none; of nineteen answers all may."""
    assert limit_of(looks(None, 0, [12.0], lambda _: 0.07)) is None
    assert limit_of(looks(None, 0, [12.0], lambda _: 0.15)) == 10
    few = Evidence(ended_at=T0, concurrency=12.0, answers=(19,), late=(19,), seconds=9.0)
    assert limit_of(learn(None, few, LEARNS, 1, Instant(T0))) is None


def test_who_waited_for_a_slot_proves_only_what_is_surely_late() -> None:
    """Answers that are good only because their wait was taken off do not make a level good."""
    held = Evidence(ended_at=T0, concurrency=12.0, answers=(100,), late=(10,), seconds=1.0, held=3.0)
    known = learn(None, held, LEARNS, 1, Instant(T0))
    assert known is not None
    assert known.levels[0].answers == (10.0,)


def test_what_it_is_not_learned_for() -> None:
    """A given target, other policies, one slot, availability alone: nothing is learned, and the target stays."""
    plain = replace(POLICY, slots=16, target=16.0)
    up = (Objective(part=0.99, of=Promised.AVAILABILITY),)
    cases = (
        promising(plain, PROMISE, target_given=True),
        promising(replace(plain, name="kpa"), PROMISE, target_given=False),
        promising(replace(plain, slots=1, target=1.0), PROMISE, target_given=False), plain,
        promising(plain, up, target_given=False),
    )  # fmt: skip
    for policy in cases:
        assert looks(None, 0, [12.0] * 5, above(2), policy=policy) is None
        assert bearable(policy, looks(None, 0, [12.0], above(2))) is policy


def test_another_revision_or_promise_begins_anew() -> None:
    """Other weights or other promises: nothing that was learned holds."""
    known = looks(None, 0, [12.0], above(2))
    nothing = Evidence(ended_at=T0 + 10, concurrency=0.0, answers=(0,), late=(0,))
    assert limit_of(learn(known, nothing, LEARNS, 1, Instant(T0 + 10))) == 10
    assert limit_of(learn(known, nothing, LEARNS, 2, Instant(T0 + 10))) is None
    lax = replace(LEARNS, objectives=(Objective(part=0.95, within=Seconds(9.0)),))
    assert limit_of(learn(known, nothing, lax, 1, Instant(T0 + 10))) is None


def test_tokens_hold_replicas_up() -> None:
    """Four replicas make 240 tokens a second each, and 120 were learned to be borne: eight are needed, whatever the
    number of requests says. What is old says nothing."""
    eight = Level(upto=8, answers=(100.0,), late=(0.0,), seconds=1.0, tokens=120.0, at=T0 - 60)
    known = Capacity(revision=1, objectives=PROMISE, levels=(eight,), limit=8, limited_at=T0 - 60, tokens=120.0)
    now = Evidence(ended_at=T0, concurrency=4.0, answers=(9,), late=(0,), tokens=240.0, ready=4)
    assert token_floor(known, now, Instant(T0 + 5)) == 8
    assert token_floor(known, now, Instant(T0 + 40)) == 0
    assert token_floor(None, now, Instant(T0)) == token_floor(replace(known, limit=None), now, Instant(T0)) == 0
    snapshot = seen(
        wished=4, running=16, ready=4, served=now, memory=Memory(capacity=known),
        demand={"stable": 16.0, "panic": 16.0, "last_active_at": T0},
    )  # fmt: skip
    decision = decide(snapshot, replace(LEARNS, max_replicas=20), Instant(T0))
    assert decision.replicas == 8
    assert "Capacity" in [reason.value for reason in decision.reasons]


EVIDENCE = st.builds(
    Evidence,
    ended_at=st.floats(1.0, 2 * T0), concurrency=st.floats(0.0, 2000.0),
    answers=st.tuples(st.integers(0, 10_000)), late=st.tuples(st.integers(0, 10_000)),
    seconds=st.none() | st.floats(0.0, 1e4), held=st.floats(0.0, 1e4), tokens=st.none() | st.floats(0.0, 1e6),
    ready=st.integers(1, 1000),
)  # fmt: skip


@settings(max_examples=50)
@given(told=st.lists(EVIDENCE, max_size=40), slots=st.integers(2, 1024))
def test_whatever_is_told(told: list[Evidence], slots: int) -> None:
    """Bounded, within the slots and their eighth; the same again; the same through JSON; the same evidence once."""
    policy = promising(replace(POLICY, slots=slots, target=float(slots)), PROMISE, target_given=False)
    known: Capacity | None = None
    told.sort(key=lambda one: one.ended_at)
    for one in told:
        now = Instant(one.ended_at + 1)
        after = learn(known, one, policy, 1, now)
        assert after == learn(known, one, policy, 1, now)
        stored = read_memory(memory_json(Memory(capacity=known))).capacity
        assert after == learn(stored, one, policy, 1, now)
        assert after == learn(after, one, policy, 1, now)
        known = after
    if known is not None:
        assert len(known.levels) <= LEVELS_MOST
        assert known.limit is None or slots / 8 <= known.limit <= max(slots, STEPS[-1])
        learned = bearable(policy, known)
        assert 1.0 <= learned.target <= policy.target
        assert learned.target <= learned.slots <= slots
