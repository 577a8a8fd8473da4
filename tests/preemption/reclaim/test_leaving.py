"""When there is room, by who leaves and when: for training and for models."""

from __future__ import annotations

import pytest

from events.types.grants import Placement
from events.units import Instant
from preemption.core.lending.policy import LendingPolicy
from preemption.core.reclaim.asking import Around, Asked, AskedGang, Questions, Short, Starts
from preemption.core.reclaim.leaving import NOBODY, SHOWN, Goes, Leaver
from preemption.core.reclaim.pool_policy import PoolPolicy
from preemption.core.reclaim.prechecking import Holder, Pool, task_of
from preemption.core.reclaim.values import Held, Outcome
from tests.support.pool import needs, node

NOW = Instant(10_000.0)
ONE = needs(gpus=1)
FREE = PoolPolicy(LendingPolicy(reserve_whole=0.0))
TUNE = AskedGang("tune", ONE, 2, 2, 0)


def questions(
    *who: tuple[str, Goes, float | None], gpus: int = 0, policy: PoolPolicy = FREE, **more: object
) -> Questions:
    """A node whose cards these hold, one each; more of its cards are free."""
    holders = [
        Holder(f"{name}-0", name, Placement(node="n1", gpus=(f"n1-gpu-{index}",)), ONE)
        for index, (name, _, _) in enumerate(who)
    ]
    pool = Pool([node(gpus=len(who) + gpus)], holders, [])
    leavers = []
    for holder, (name, goes, after) in zip(holders, who, strict=True):
        spot = pool.spot(holder.placement, task_of(ONE))
        assert spot is not None
        leavers.append(Leaver(name, goes, (Held(task_of(ONE), spot),), None if after is None else Instant(NOW + after)))
    return Questions(pool, (), policy, NOW, Around(leavers=leavers, **more))  # type: ignore[arg-type]  # real fields


def test_the_last_of_those_that_are_needed_says_when() -> None:
    """Two cards: the two who leave first are told, not the third, nor who never says."""
    asked = questions(
        ("late", Goes.IDLES_OUT, 60.0), ("training/ends", Goes.ENDS, 20.0), ("soon", Goes.DRAINS, 5.0),
        ("stays", Goes.SERVES, None),
    ).ask_gang(TUNE)  # fmt: skip
    assert (asked.starts, asked.expects.at) == (Starts.COMING, NOW + 20.0)
    assert [one.name for one in asked.expects.leavers] == ["soon", "training/ends"]


def test_who_idles_out_makes_room_though_the_allocator_does_not_count_on_it() -> None:
    """So it starts when there is room, and that has a time; with what is free already."""
    asked = questions(("llama", Goes.IDLES_OUT, 60.0), gpus=1).ask_gang(TUNE)
    assert (asked.starts, asked.expects.at) == (Starts.LATER, NOW + 60.0)


def test_nobody_can_tell() -> None:
    """It says who would have to go: those with a time first, and no more than a few."""
    asked = questions(
        ("training/a", Goes.TRAINS, None), ("llama", Goes.SERVES, None), ("b", Goes.DRAINS, 5.0)
    ).ask_gang(TUNE)
    assert asked.expects.at is None
    assert [one.name for one in asked.expects.leavers] == ["b", "llama", "training/a"]
    many = questions(*((f"m{index}", Goes.SERVES, None) for index in range(SHOWN + 4))).ask_gang(TUNE)
    assert len(many.expects.leavers) == SHOWN


def test_the_reserve_is_looked_at_when_they_have_gone() -> None:
    """Of five cards training has three and may have four: two that a model leaves are not two more, those that training
    leaves are."""
    policy = PoolPolicy(LendingPolicy(reserve_whole=0.2))
    lent = tuple((f"training/{name}", Goes.TRAINS, None) for name in "ab")
    left = questions(
        *lent, ("c", Goes.DRAINS, 5.0), ("d", Goes.DRAINS, 6.0), ("training/e", Goes.ENDS, 50.0), policy=policy
    )
    assert left.ask_gang(TUNE).expects.at == NOW + 50.0


def test_a_model_that_lacks_the_same_keeps_what_comes() -> None:
    """Training of lower priority cannot expect it."""
    short = (Short("big", needs(gpus=2), 100),)
    asked = questions(("a", Goes.DRAINS, 5.0), ("b", Goes.DRAINS, 6.0), short=short).ask_gang(TUNE)
    assert asked.expects.at is None


def test_who_waits_already_comes_first() -> None:
    """By priority, then by name; not those of a lower one, nor the job itself."""
    waiting = (("older", 0), ("high", 5), ("low", -1), ("tune", 0))
    asked = questions(("llama", Goes.SERVES, None), gpus=1, waiting=waiting).ask_gang(TUNE)
    assert asked.behind == ("high", "older")
    assert questions(gpus=2, waiting=waiting).ask_gang(TUNE).behind == ()


@pytest.mark.parametrize(
    ("goes", "after", "outcome", "at"),
    [
        (Goes.ENDS, 20.0, Outcome.PENDING, 20.0), (Goes.ENDED, 5.0, Outcome.PENDING, 5.0),
        (Goes.DRAINS, 5.0, Outcome.COMING, 5.0), (Goes.IDLES_OUT, 60.0, Outcome.INFEASIBLE, 60.0),
        (Goes.SERVES, None, Outcome.INFEASIBLE, None),
    ],
)  # fmt: skip
def test_of_a_model(goes: Goes, after: float | None, outcome: Outcome, at: float | None) -> None:
    """What is going is waited for, as the allocator would; of the rest it is told when it would go."""
    name = "training/other" if goes in (Goes.ENDS, Goes.ENDED) else "other"
    answered = questions((name, goes, after)).ask(Asked("llama", ONE, 1, 100))
    assert answered.plan.outcome is outcome
    assert answered.expects.at == (None if at is None else NOW + at)
    assert [one.name for one in answered.expects.leavers] == [name]


def test_what_fits_waits_for_nobody() -> None:
    """Nor does what never will be started."""
    assert questions(("a", Goes.DRAINS, 5.0), gpus=1).ask(Asked("llama", ONE, 1, 100)).expects == NOBODY
    never = questions(("a", Goes.DRAINS, 5.0)).ask_gang(TUNE)
    assert (never.starts, never.expects) == (Starts.NEVER, NOBODY)


def test_who_takes_no_gpu_waits_for_cores() -> None:
    """Then who holds none may leave too; who wants a card does not wait for them."""
    pool = Pool([node(gpus=1, cpu=2)], [Holder("w-0", "w", Placement(node="n1"), needs(cpu=2))], [])
    spot = pool.spot(Placement(node="n1"), task_of(needs(cpu=2)))
    assert spot is not None
    leaver = Leaver("w", Goes.DRAINS, (Held(task_of(needs(cpu=2)), spot),), Instant(NOW + 5))
    about = Questions(pool, (), FREE, NOW, Around(leavers=(leaver,)))
    assert about.ask(Asked("llama", needs(cpu=1), 1, 100)).expects.at == NOW + 5
    assert about.ask(Asked("more", needs(gpus=2), 1, 100)).expects == NOBODY
