"""What must hold of the allocator whatever happens: random histories of a small pool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from events.types.grants import GrantDecided
from events.types.replicas import CardsObserved, OwnRoom, ReplicaState, Taint
from events.units import Instant
from preemption.core.allocator import GrantPlan, decide
from preemption.core.inventory import need_of
from preemption.core.placement import Kind, kinds_of
from preemption.core.seat import LACKS
from preemption.core.terms import ANYWHERE, Terms, Toleration, allows
from preemption.core.view import Reason
from tests.support.pool import GI, World, assert_not_overcommitted, needs, node

TERMS = (
    ANYWHERE, ANYWHERE, Terms((("pool", "a"),)), Terms((("pool", "b"),), (Toleration("spot", "Exists"),)),
)  # fmt: skip
MODELS = ("a", "b", "c", "d")
NEEDS = (
    needs(), needs(gpus=1), needs(gpus=2), needs(fraction=0.4), needs(cpu=3), needs(gpus=1, memory=3 * GI),
    needs(gpus=9),
)  # fmt: skip

Step = tuple[str, str, int, int]

NAMES = (
    "wish", "wish", "wish", "keep", "keep", "ask", "ask", "warm", "label", "terms", "declare", "priority", "revise",
    "delete", "anew", "scale", "obey", "obey", "obey", "start", "crash", "crash", "drain", "sleep", "sleep", "fail",
    "stop", "stray", "wait", "shrink",
)  # fmt: skip


def _steps(*names: str) -> st.SearchStrategy[list[Step]]:
    one = st.tuples(st.sampled_from(names), st.sampled_from(MODELS), st.integers(0, 4), st.integers(0, 6))
    return st.lists(one, min_size=1, max_size=40)


steps = _steps(*NAMES)
with_rooms = _steps(*NAMES, "rooms", "rooms")
"""Also what pods of enrolled objects have; their models get it whatever others lack, and whatever their terms."""


def _declare(world: World, model: str, first: int, second: int) -> None:
    if world.declared[model].deleted:  # a deleted name comes back with another uid only
        _anew(world, model, first, second)
    world.declare(model, resources=NEEDS[second], priority=50 * first)


def _anew(world: World, model: str, first: int, second: int) -> None:
    known = world.declared[model]
    world.declare(model, uid=known.uid + "x", revision=known.revision + 1, deleted=False)


def _see_all(world: World, model: str, state: ReplicaState, failures: int = 0) -> None:
    if model in world.grants:
        world.see(model, *((name, state) for name in world.live(model)), failures=failures, retry_in=5.0)


def _see_drains(world: World, model: str, state: ReplicaState) -> None:
    """Who sleeps does so until it is woken or ends; nobody falls asleep that was not there."""
    if model in world.grants:
        observed = world.observed.get(model)
        there = {} if observed is None else {one.replica: one for one in observed.replicas}
        asleep = {name for name, one in there.items() if one.sleep_level}
        ends = state is ReplicaState.STOPPING
        leaving = [name for name in world.draining(model) if name in there or state is not ReplicaState.SLEEPING]
        ended = [name for name in leaving if there.get(name) and there[name].state is ReplicaState.STOPPING]
        world.see(
            model, *((name, ReplicaState.READY) for name in world.live(model)),
            *((name, ReplicaState.SLEEPING if name in asleep and not ends else state)
              for name in leaving if name not in ended),
        )  # fmt: skip


def _crash(world: World, model: str, first: int, second: int) -> None:
    """Some replicas are gone, and their starts back off."""
    if model in world.grants:
        left = world.live(model)[: first // 2]
        world.see(model, *((name, ReplicaState.READY) for name in left), failures=1 + second, retry_in=3.0 * first)


def _stray(world: World, model: str, first: int, second: int) -> None:
    """The adapter is late: it still sees what an earlier grant named."""
    if model in world.observed:
        world.pool.set_observed(world.observed[model])


def _warm(world: World, model: str, first: int, second: int) -> None:
    """A node's agent speaks of this model and another, of this revision or the one before."""
    where, tier = ("n2", "n1")[first % 2], ("remote", "disk", "memory")[second % 3]
    told = None if first == 4 else float(second)
    revision = world.declared[model].revision - first // 3
    world.warm(where, (model, tier, told), ("d" if model == "a" else "a", "remote", 9.0), revision=revision)


def _rooms(world: World, model: str, first: int, second: int) -> None:
    """Pods of this model's object and of another's are there, on the last cards, or not any more."""
    where = world.nodes["n1" if first % 2 else "n2"]
    cards, other = [card.id for card in where.cards], MODELS[(MODELS.index(model) + 1) % len(MODELS)]
    rooms = tuple(
        OwnRoom(model=one, pod=f"{where.node}-{index}", gpus=(card,), resources=NEEDS[1], ordinal=index)
        for index, (one, card) in enumerate(zip((model, other), reversed(cards[: second % 3]), strict=False))
    )
    world.set_node(replace(where, rooms=rooms))


def _labelled(one: CardsObserved, first: int, second: int) -> CardsObserved:
    taints = (Taint(key="spot"),) if second == 5 else ()
    return replace(one, labels=None if first == 4 else {"pool": "ab"[first % 2]}, taints=taints)


ACTIONS: dict[str, Callable[[World, str, int, int], None]] = {
    "wish": lambda w, m, n, g: w.wish(m, n, gain=g),
    "keep": lambda w, m, n, k: w.wish(m, n, kept=min(n, k)),
    "ask": lambda w, m, n, g: w.wish(m, n, gain=g, waits=True),
    "warm": _warm,
    "label": lambda w, m, n, t: w.set_node(_labelled(w.nodes["n2" if n % 2 else "n1"], n, t)),
    "terms": lambda w, m, n, t: w.declare(m, terms=TERMS[(n + t) % len(TERMS)]),
    "declare": _declare,
    "priority": lambda w, m, n, _: w.declare(m, priority=50 * n),
    "revise": lambda w, m, _, r: w.declare(m, revision=w.declared[m].revision + 1, resources=NEEDS[r]),
    "delete": lambda w, m, *_: w.declare(m, deleted=True),
    "anew": _anew,
    "scale": lambda w, m, n, s: w.scale(m, n, seconds=2.0 * s),
    "obey": lambda w, m, *_: w.obey(m) if m in w.grants else None,
    "start": lambda w, m, *_: w.obey(m, ready=False) if m in w.grants else None,
    "drain": lambda w, m, *_: _see_drains(w, m, ReplicaState.DRAINING),
    "sleep": lambda w, m, *_: _see_drains(w, m, ReplicaState.SLEEPING),
    "stop": lambda w, m, *_: _see_drains(w, m, ReplicaState.STOPPING),
    "fail": lambda w, m, n, _: _see_all(w, m, ReplicaState.FAILED, failures=n),
    "crash": _crash,
    "stray": _stray,
    "rooms": _rooms,
    "wait": lambda w, _, n, s: setattr(w, "now", w.now + n + s),
    "shrink": lambda w, _, n, __: w.set_node(node("n1", gpus=n % 3, cpu=6.0, memory=(2 + n) * GI)),
}


def history(
    taken: list[Step], each: Callable[[World, GrantPlan, dict[str, GrantDecided]], None], *, shrink: bool
) -> None:
    """Play the steps; after each, decide and hand what happened to `each` (with the grants from before)."""
    world = World(node("n1", gpus=2, cpu=6.0, memory=8 * GI), node("n2", gpus=2, cpu=4.0, memory=6 * GI))
    for index, model in enumerate(MODELS):
        world.declare(model, resources=NEEDS[index], priority=100 * (index % 2))
    for name, model, first, second in taken:
        if name == "shrink" and not shrink:
            continue
        ACTIONS[name](world, model, first, second)
        before = dict(world.grants)
        each(world, world.decide(after=0.5), before)


@given(with_rooms)
def test_nothing_is_given_twice(taken: list[Step]) -> None:
    """Granted and observed replicas together never take more than a node has."""
    history(taken, lambda world, *_: assert_not_overcommitted(world), shrink=False)


@given(with_rooms)
def test_the_same_again_is_no_change(taken: list[Step]) -> None:
    """Deciding again at once, with everything marked as changed, changes nothing but what is said to be lacking."""

    def again(world: World, plan: GrantPlan, before: dict[str, GrantDecided]) -> None:
        for one in world.nodes.values():
            world.pool.set_node(one)
        for declared in world.declared.values():
            world.pool.set_declared(declared)
        expected = _outcome(world.grants)
        again = world.pool.decide(Instant(world.now)).grants
        assert _outcome(world.grants | {grant.model: grant for grant in again}) == expected

    history(taken, again, shrink=True)


def _outcome(grants: dict[str, GrantDecided]) -> dict[str, object]:
    """What of the grants counts: names, places, drains, and how much is short."""
    return {
        model: (grant.uid, grant.wished, grant.replicas, None if grant.shortage is None else grant.shortage.replicas)
        for model, grant in grants.items()
        if grant.replicas or grant.shortage is not None
    }


@given(with_rooms)
def test_step_by_step_is_as_good_as_all_at_once(taken: list[Step]) -> None:
    """A pool that was fed change by change grants what a decision over the whole snapshot grants."""
    world = World(node("n1", gpus=2, cpu=6.0, memory=8 * GI), node("n2", gpus=2, cpu=4.0, memory=6 * GI))
    for index, model in enumerate(MODELS):
        world.declare(model, resources=NEEDS[index], priority=100 * (index % 2))
    for name, model, first, second in taken:
        ACTIONS[name](world, model, first, second)
        world.now += 0.5
        whole = decide(world.snapshot(), world.policy, Instant(world.now))
        expected = _outcome(world.grants | {grant.model: grant for grant in whole.grants})
        world.decide()
        assert _outcome(world.grants) == expected


@given(with_rooms)
def test_what_is_seen_is_never_moved(taken: list[Step]) -> None:
    """A replica that somebody saw keeps its place as long as it is named."""

    def unmoved(world: World, plan: GrantPlan, before: dict[str, GrantDecided]) -> None:
        for grant in plan.grants:
            seen = (
                {one.replica: one for one in world.observed[grant.model].replicas}
                if grant.model in world.observed
                else {}
            )
            for one in grant.replicas:
                if one.replica in seen:
                    assert (one.placement.node, one.placement.gpus) == (seen[one.replica].node, seen[one.replica].gpus)

    history(taken, unmoved, shrink=True)


def _only_keeps(world: World, grant: GrantDecided) -> bool:
    """Whether nothing needs what it is short of."""
    wish = world.wishes.get(grant.model)
    live = sum(not one.drain for one in grant.replicas)
    return wish is not None and wish.kept > 0 and live >= wish.replicas - wish.kept


def _may_have(world: World, model: str, where: str) -> bool:
    return allows(world.pool.ledger.nodes[where], world.declared[model].terms)


def _lacked(grant: GrantDecided) -> set[Kind]:
    return {kind for kind, reason in LACKS.items() if reason in grant.reasons}


@given(steps)
def test_a_lower_priority_gets_nothing_new_that_a_higher_one_lacks(taken: list[Step]) -> None:
    """Nobody gets a new replica that takes of what a model of higher priority needs and is short of, on a node that
    this may have."""

    def in_order(world: World, plan: GrantPlan, before: dict[str, GrantDecided]) -> None:
        for grant in plan.grants:
            old = {one.replica for one in before[grant.model].replicas} if grant.model in before else set()
            added = [one for one in grant.replicas if one.replica not in old]
            for other in world.grants.values():
                first = world.declared[other.model].priority > world.declared[grant.model].priority
                if first and other.shortage and not _only_keeps(world, other):
                    there = {kind for one in added if _may_have(world, other.model, one.placement.node)
                             for kind in kinds_of(need_of(one.resources))}  # fmt: skip
                    assert not there & _lacked(other), (grant, other)

    history(taken, in_order, shrink=True)


@given(steps)
def test_numbers_and_names_are_right(taken: list[Step]) -> None:
    """Names are unique, the shortage is what is wished and not granted, no more than one surge runs, drains of another
    uid are never taken back."""

    def right(world: World, plan: GrantPlan, before: dict[str, GrantDecided]) -> None:
        names = [one.replica for grant in world.grants.values() for one in grant.replicas]
        assert len(names) == len(set(names))
        for grant in plan.grants:
            live = sum(not one.drain for one in grant.replicas)
            assert live <= grant.wished + 1
            if live < grant.wished:
                assert grant.shortage is not None
                assert grant.shortage.replicas == grant.wished - live
                assert grant.shortage.message
            old = before.get(grant.model)
            if old is not None and old.uid != grant.uid:
                kept = {one.replica for one in old.replicas}
                assert all(one.drain for one in grant.replicas if one.replica in kept)

    history(taken, right, shrink=True)


@given(with_rooms)
def test_in_the_end_everything_settles(taken: list[Step]) -> None:
    """When the adapter obeys and nothing more happens, the pool comes to rest with the wishes granted or short."""
    last: list[World] = []
    history(taken, lambda world, *_: last.append(world), shrink=False)
    if not last:
        return
    world = last[-1]
    world.now += 1000.0
    for _ in range(60):
        for model in MODELS:
            if model in world.grants:
                world.obey(model)
        if not world.decide(after=10).grants and not any(world.draining(model) for model in MODELS):
            break
    else:
        raise AssertionError("the pool does not come to rest")
    for grant in world.grants.values():
        declared = world.declared[grant.model]
        newest = replace(grant, replicas=tuple(one for one in grant.replicas if one.revision == declared.revision))
        if grant.shortage is None and not {"rolls_out_revision", *LACKS.values()} & set(grant.reasons):
            assert len(newest.replicas) == grant.wished


@given(steps)
def test_only_what_is_kept_goes_to_others(taken: list[Step]) -> None:
    """Nobody is left with less than something needs, and only while there is somebody whose requests wait."""

    def kept(world: World, plan: GrantPlan, before: dict[str, GrantDecided]) -> None:
        for grant in plan.grants:
            wish, old = world.wishes.get(grant.model), before.get(grant.model)
            if Reason.GIVES_UP not in grant.reasons:
                continue
            assert wish is not None
            assert grant.wished >= wish.replicas - wish.kept
            if old is None or grant.wished < old.wished == wish.replicas:
                assert any(other.waits for name, other in world.wishes.items() if name != grant.model)

    history(taken, kept, shrink=True)


@given(steps)
def test_nobody_is_placed_where_it_may_not_be(taken: list[Step]) -> None:
    """A new replica is on a node whose labels and taints allow it."""

    def allowed(world: World, plan: GrantPlan, before: dict[str, GrantDecided]) -> None:
        for grant in plan.grants:
            old = {one.replica for one in before[grant.model].replicas} if grant.model in before else set()
            assert all(
                _may_have(world, grant.model, one.placement.node) for one in grant.replicas if one.replica not in old
            )

    history(taken, allowed, shrink=True)
