"""What saves and returns of training jobs usually take, read from attempts that have ended."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.types.grants import Placement
from events.types.reclaims import ReclaimChanged, ReclaimStep
from events.types.shared import Resources
from events.types.training import MemberGrant
from preemption.core.reclaim.usual import JOBS_KEPT, TIMES_KEPT, Usual, UsualTimes

ONE, HALF = Resources(gpus=1), Resources(gpu_fraction=0.5)


def attempt(
    name: str, *steps: tuple[float, str, str], uid: str = "u", takes: Resources = ONE, step: int = 7
) -> ReclaimChanged:
    member = MemberGrant(member="tune-0", placement=Placement(node="n", gpus=("g",)), resources=takes)
    history = tuple(ReclaimStep(at=at, happened=happened, state=state) for at, happened, state in steps)
    return ReclaimChanged(
        id=name, job="tune", job_uid=uid, run=1, members=("tune-0",), shortage="llama", shortage_uid="m",
        shortage_since=0.0, cards=("n/g",), held=(member,), state=history[-1].state, since=0.0, due=0.0,
        ended=history[-1].state in ("resumed", "finished", "failed", "continued"), history=history, step=step,
    )  # fmt: skip


def whole(name: str, at: float, save: float, back: float, **more: object) -> ReclaimChanged:
    """One that was told at `at`, saved, and came back a minute later."""
    steps = (
        (at, "sent", "notified"), (at + 0.2, "ack", "saving"), (at + 0.2 + save, "checkpointed", "saved"),
        (at + 60, "exit_saved", "draining"), (at + 61, "cards_empty", "claimed"), (at + 62, "bound", "parked"),
        (at + 100, "capacity_back", "resuming"), (at + 100 + back, "step_seen", "resumed"),
    )  # fmt: skip
    return attempt(name, *steps, **more)  # type: ignore[arg-type]  # names of real fields


def near(usual: Usual | None, seconds: float, seen: int, *, alike: bool = False) -> bool:
    return usual is not None and (round(usual.seconds, 6), usual.seen, usual.alike) == (seconds, seen, alike)


def test_nothing_is_known_of_nobody() -> None:
    """Unknown is not nothing."""
    times = UsualTimes()
    assert times.save("u", ONE) is None
    assert times.back("u", None) is None


def test_the_middle_of_what_was_seen() -> None:
    """One that was slow by chance moves nothing; the newest checkpoint counts as one more save."""
    times = UsualTimes()
    for index, (save, back) in enumerate(((4.0, 3.0), (5.0, 900.0), (100.0, 4.0))):
        times.see(whole(f"a{index}", 1000.0 * index, save, back))
    assert near(times.save("u", ONE), 5.0, 3)
    assert near(times.save("u", ONE, 3.0), 4.5, 4)
    assert near(times.back("u", ONE), 4.0, 3)


def test_a_job_that_has_not_shown_it_is_taken_to_be_as_those_like_it() -> None:
    """Each of those counts once, however often it yielded; who takes another share of a card says nothing."""
    times = UsualTimes()
    for index in range(5):
        times.see(whole(f"a{index}", 1000.0 * index, 4.0, 3.0, uid="often"))
    times.see(whole("b", 0.0, 10.0, 9.0, uid="once"))
    times.see(whole("c", 0.0, 99.0, 99.0, uid="other", takes=HALF))
    assert near(times.save("new", ONE), 7.0, 2, alike=True)
    assert near(times.back("new", ONE), 6.0, 2, alike=True)
    assert near(times.save("new", ONE, 2.0), 2.0, 1)
    assert times.back("new", Resources(gpus=2)) is None
    times.see(whole("d", 0.0, 30.0, 30.0, uid="third"))
    assert near(times.back("new", ONE), 9.0, 3, alike=True)


@pytest.mark.parametrize(
    ("steps", "save"),
    [
        (((0.0, "sent", "notified"), (9.0, "checkpointed", "saved"), (9.1, "shortage_gone", "cancelling"),
          (10.0, "step_seen", "continued")), 9.0),
        (((0.0, "sent", "notified"), (1.0, "ack", "saving"), (6.0, "exit_saved", "draining"),
          (7.0, "exit_done", "finished")), 5.0),
        (((0.0, "sent", "notified"), (1.0, "ack", "saving"), (2.0, "shortage_gone", "cancelling"),
          (3.0, "step_seen", "continued")), None),
        (((0.0, "sent", "notified"), (1.0, "ack", "saving"), (60.0, "timeout", "stopping"),
          (61.0, "exit_saved", "draining"), (62.0, "exit_done", "finished")), None),
        (((0.0, "exit_error", "draining"), (1.0, "exit_done", "finished")), None),
    ],
)  # fmt: skip
def test_what_counts_as_a_save(steps: tuple[tuple[float, str, str], ...], save: float | None) -> None:
    """From the first word, or the notice, to the commit; not one that was given up, called off, or forced."""
    times = UsualTimes()
    times.see(attempt("a", *steps))
    known = times.save("u", ONE)
    assert (None if known is None else known.seconds) == save


def test_who_has_no_checkpoint_says_nothing_of_coming_back() -> None:
    """It was started, not restored. And what has not ended may still change."""
    times = UsualTimes()
    times.see(whole("a", 0.0, 4.0, 3.0, step=-1))
    assert times.back("u", ONE) is None
    times.see(replace(whole("b", 0.0, 4.0, 3.0), ended=False))
    assert near(times.save("u", ONE), 4.0, 1)


@given(st.lists(st.tuples(st.sampled_from("uvw"), st.integers(0, 40), st.integers(1, 50)), max_size=60), st.randoms())
def test_a_new_leader_knows_the_same(seen: list[tuple[str, int, int]], order: random.Random) -> None:
    """In whatever order the log tells them, and however often; only the newest of each job count."""
    attempts = [whole(f"a{at}", at * 1000.0, took, 2.0 * took, uid=uid)
                for uid, at, took in {(uid, at): (uid, at, took) for uid, at, took in seen}.values()]  # fmt: skip
    one, other = UsualTimes(), UsualTimes()
    for each in attempts:
        one.see(each)
    for each in order.sample(attempts + attempts, 2 * len(attempts)):
        other.see(each)
    for uid in "uvwx":
        assert one.save(uid, ONE) == other.save(uid, ONE) == one.copy().save(uid, ONE)
        assert one.back(uid, ONE) == other.back(uid, ONE)
        mine = sorted((at, took) for who, at, took in seen if who == uid)
        known = one.save(uid, ONE)
        assert not mine or (known is not None and known.seen <= min(len(mine), TIMES_KEPT))


def test_it_is_bounded() -> None:
    """Who did it longest ago is forgotten first."""
    times = UsualTimes()
    for index in range(JOBS_KEPT + 3):
        times.see(whole(f"a{index}", float(index), 4.0, 3.0, uid=f"u{index}"))
    assert len(times) == JOBS_KEPT
    assert times.back("u2", None) is None
    assert near(times.back("u3", None), 3.0, 1)
