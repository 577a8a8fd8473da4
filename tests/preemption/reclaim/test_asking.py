"""What would become of training jobs: places, what they wait for, and who yields; each question sees those before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from events.types.grants import Placement
from events.types.replicas import CardsObserved
from events.types.shared import Resources
from events.units import Instant
from preemption.core.lending.policy import LendingPolicy
from preemption.core.reclaim.asking import AnsweredGang, Around, Asked, AskedGang, Questions, Short, Starts
from preemption.core.reclaim.pool_policy import PoolPolicy
from preemption.core.reclaim.prechecking import Holder, Pool, task_of
from preemption.core.reclaim.usually import Usually
from preemption.core.reclaim.values import Held, Job, ReclaimPlan
from tests.support.pool import GI, World, needs, node

NOW = Instant(10_000.0)
ONE = needs(gpus=1)
FREE = PoolPolicy(LendingPolicy(reserve_whole=0.0, reserve_shared=0.0))


def gang(members: int = 1, least: int = 0, priority: int = 0, resources: Resources = ONE) -> AskedGang:
    return AskedGang("tune", resources, members, least or members, priority)


def held(model: str, *cards: str) -> list[Holder]:
    return [Holder(f"{model}-{card}", model, Placement(node="n1", gpus=(card,)), ONE) for card in cards]


def running(pool: Pool, name: str, *cards: str, priority: int = 0) -> Job:
    members = []
    for card in cards:
        spot = pool.spot(Placement(node="n1", gpus=(card,)), task_of(ONE))
        assert spot is not None
        members.append(Held(task_of(ONE), spot))
    return Job(name=name, members=tuple(members), started_at=Instant(0.0), priority=priority)


def ask(
    asked: AskedGang, nodes: CardsObserved, holders: list[Holder], policy: PoolPolicy = FREE, *,
    short: tuple[Short, ...] = (), priority: int = 0,
) -> AnsweredGang:  # fmt: skip
    pool = Pool([nodes], holders, [])
    names = sorted({one.model for one in holders if one.model.startswith("training/")})
    jobs = tuple(
        running(pool, name.removeprefix("training/"),
                *(one.placement.gpus[0] for one in holders if one.model == name), priority=priority)
        for name in names
    )  # fmt: skip
    return Questions(pool, jobs, policy, NOW, Around(short)).ask_gang(asked)


CARDS = [f"n1-gpu-{index}" for index in range(5)]


@pytest.mark.parametrize(
    ("asked", "taken", "starts", "members"),
    [
        (gang(2), 0, Starts.NOW, 2),
        (gang(3), 2, Starts.LATER, 0),
        (gang(3, 1), 2, Starts.NOW, 2),
        (gang(5), 0, Starts.NEVER, 0),
        (gang(resources=needs(gpus=1, cpu=65)), 0, Starts.NEVER, 0),
    ],
)
def test_when_it_would_be_started(asked: AskedGang, taken: int, starts: Starts, members: int) -> None:
    """Now, with as many members as there is room for; later, since models never yield to it; or never."""
    answered = ask(asked, node(gpus=4), held("llama", *CARDS[:taken]))
    assert (answered.starts, answered.members) == (starts, members)
    assert bool(answered.lacks) == (members == 0)
    assert answered.plan.victims == ()
    assert (answered.after is None) == (members == 0)


def test_what_is_kept_free_of_training() -> None:
    """A fifth of five cards is one; training that runs counts."""
    default = PoolPolicy()
    assert ask(gang(4), node(gpus=5), [], default).starts is Starts.NOW
    assert ask(gang(5), node(gpus=5), [], default).starts is Starts.NEVER
    assert ask(gang(3), node(gpus=5), held("training/other", *CARDS[:2]), default).starts is Starts.LATER


def test_training_yields_to_training_of_higher_priority_only() -> None:
    """It says who, and at what price."""
    full = held("training/other", "n1-gpu-0", "n1-gpu-1")
    answered = ask(gang(2, priority=5), node(gpus=2), full)
    assert answered.starts is Starts.YIELDING
    assert [one.job for one in answered.plan.victims] == ["other"]
    assert answered.members == 2
    equal = ask(gang(2, priority=5), node(gpus=2), full, priority=5)
    assert (equal.starts, equal.plan.victims) == (Starts.LATER, ())


def test_a_model_that_lacks_the_same_comes_first() -> None:
    """There is room, and it is left to the model; not to one of lower priority, nor to one that takes no GPU."""
    two = (Short("llama", needs(gpus=2), 100),)
    answered = ask(gang(1), node(gpus=2), held("other", "n1-gpu-0"), short=two)
    assert answered.starts is Starts.BEHIND
    assert "llama lacks the same" in answered.lacks
    assert ask(gang(1, priority=101), node(gpus=2), held("other", "n1-gpu-0"), short=two).starts is Starts.NOW
    cores = (Short("llama", needs(cpu=70), 100),)
    assert ask(gang(1), node(gpus=2), held("other", "n1-gpu-0"), short=cores).starts is Starts.NOW


def test_each_question_sees_those_before() -> None:
    """Models and jobs in one row: what one takes the next does not get, and parts of cards count as parts."""
    questions = Questions(Pool([node(gpus=3)], [], []), (), FREE, NOW)
    assert questions.ask(Asked("llama", ONE, 1, 100)).plan.outcome == "fits"
    assert questions.ask_gang(gang(1)).starts is Starts.NOW
    half = AskedGang("half", needs(fraction=0.5), 2, 2, 0)
    first = questions.ask_gang(half)
    assert (first.starts, {spot.cards for spot in first.plan.spots}) == (Starts.NOW, {first.plan.spots[0].cards})
    assert questions.ask_gang(AskedGang("other", ONE, 1, 1, 0)).starts is Starts.LATER
    yields = questions.ask(Asked("more", ONE, 1, 100))
    assert (yields.plan.outcome, len(yields.plan.victims)) == ("reclaims", 1)
    protected = Questions(Pool([node(gpus=1)], [], []), (), FREE, NOW)
    assert protected.ask_gang(AskedGang("kept", ONE, 1, 1, 0, protected=True)).starts is Starts.NOW
    refused = protected.ask(Asked("more", ONE, 1, 100))
    assert (refused.plan.outcome, refused.lacks) == ("infeasible", "what is asked for before it takes the room")


def test_of_a_job_that_runs_its_next_run_is_told() -> None:
    """Its cards are its own: it fits where it is, also with more members or other ones; what is asked next sees it
    once. One that would not fit anew stays as it is."""
    holders = [Holder("tune-0", "training/tune", Placement(node="n1", gpus=("n1-gpu-0",)), ONE)]
    pool = Pool([node(gpus=2)], holders, [])
    (spot,) = [pool.spot(one.placement, task_of(ONE)) for one in holders]
    assert spot is not None
    runs = Job(name="tune", members=(Held(task_of(ONE), spot),), started_at=Instant(0.0))
    for members, starts in ((1, Starts.NOW), (2, Starts.NOW), (3, Starts.NEVER)):
        questions = Questions(pool, (runs,), FREE, NOW)
        answered = questions.ask_gang(gang(members))
        assert (answered.starts, answered.plan.verdicts) == (starts, ())
        after = questions.ask(Asked("llama", ONE, 2, 100))
        assert [verdict.job for verdict in after.plan.verdicts] == ["tune"]
        assert (after.plan.outcome, after.room) == ("reclaims", 2 - (members if starts is Starts.NOW else 1))


def test_nothing_is_placed_on_a_cordoned_card() -> None:
    """Whole or as an instance; nobody holds it all the same."""
    pool = Pool([node(gpus=1)], [], [], [("n1", "n1-gpu-0"), ("n1", "none"), ("nowhere", "x")])
    assert Questions(pool, (), FREE, NOW).ask_gang(gang(1)).starts is Starts.LATER
    assert pool.free_share("n1", "n1-gpu-0") == 1.0


@pytest.mark.parametrize(("pairs", "there"), [(0, "b"), (5, "a")])
def test_what_is_declared_is_what_usually_comes(pairs: int, there: str) -> None:
    """Held or not: where pairs are declared whole pairs stay whole, for a model and for a job; it is where the
    allocator places it."""
    models = {f"pair{index}": needs(gpus=2) for index in range(pairs)}
    nodes = [node("a", gpus=3, cpu=64), node("b", gpus=2, cpu=60)]
    world = World(*nodes)
    for name, resources in ({"one": ONE} | models).items():
        world.declare(name, resources=resources)
    world.wish("one", 1)
    world.decide()
    assert world.grants["one"].replicas[0].placement.node == there
    questions = Questions(Pool(nodes, [], []), (), FREE, NOW, Around(models=models))
    assert spots(questions.ask(Asked("one", ONE, 1, 0)).plan) == [there]
    questions = Questions(Pool(nodes, [], []), (), FREE, NOW, Around(models=models))
    assert spots(questions.ask_gang(gang()).plan) == [there]


@pytest.mark.parametrize(
    "resources", [ONE, needs(fraction=0.5), needs(mig="1g.5gb"), Resources(gpu_bytes=GI, cpu=1.0), needs()]
)
def test_what_is_typical_is_what_is_asked_for(resources: Resources) -> None:
    """Whole cards, shares, bytes, instances, none: the plan weighs them as they were declared, else it names places
    where the allocator does not go."""
    asked = replace(task_of(resources), memory_bytes=0)
    assert asked in Usually({}, {}).with_model("one", resources).tasks
    assert asked in [replace(one, memory_bytes=0) for one in Usually({}, {}).with_job("one", resources).tasks]


def spots(plan: ReclaimPlan) -> list[str]:
    """The nodes of a plan in which `a` is the first."""
    return ["ab"[spot.node] for spot in plan.spots]
