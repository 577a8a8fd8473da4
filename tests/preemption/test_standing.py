"""One model by itself: override, wish, drains, taking back, rollout, back-off, deletion."""

from __future__ import annotations

import pytest

from events.types.models import Override
from events.types.replicas import ReplicaState
from preemption.core.view import Reason
from tests.support.pool import World, needs, node

READY, STARTING, DRAINING, STOPPING, FAILED = (
    ReplicaState.READY, ReplicaState.STARTING, ReplicaState.DRAINING, ReplicaState.STOPPING, ReplicaState.FAILED,
)  # fmt: skip


def running(replicas: int, gpus: int = 4) -> World:
    """A world in which model `a` runs this many ready replicas of one card each."""
    world = World(node(gpus=gpus))
    world.declare("a", resources=needs(gpus=1))
    world.wish("a", replicas)
    world.decide()
    world.obey("a")
    world.decide()
    return world


def test_a_wish_of_another_uid_is_void() -> None:
    """What was wished for an earlier model of the same name grants nothing."""
    world = World(node())
    world.declare("a")
    world.wish("a", 3, uid="another")
    assert world.decide().grants == ()


def test_without_a_wish_what_was_granted_stays() -> None:
    """Unknown is not zero: after the loss of the wish the grant holds."""
    world = running(2)
    world.wish("a", 0, uid="another")
    (grant,) = world.decide().grants
    assert (len(world.live("a")), grant.reasons) == (2, ("no_wish_known",))


def test_the_wish_is_capped_by_the_model() -> None:
    """More than maxReplicas is never granted on a wish, and the reason says so."""
    world = World(node(gpus=4))
    world.declare("a", max_replicas=2)
    world.wish("a", 5)
    (grant,) = world.decide().grants
    assert (len(grant.replicas), grant.wished, grant.shortage) == (2, 2, None)
    assert grant.reasons == ("wish", "max_replicas")


def test_an_override_stands_before_the_wish_until_it_ends() -> None:
    """A person's number is granted, the plan says when it ends, and then the wish counts again."""
    world = running(1)
    world.scale("a", 3, seconds=60)
    plan = world.decide()
    assert (len(world.live("a")), plan.again_at) == (3, world.now + 60)
    world.obey("a")
    world.wish("a", 0)
    world.decide(after=59)
    assert len(world.live("a")) == 3
    world.decide(after=1)
    assert (len(world.draining("a")), world.grants["a"].reasons[0]) == (3, "wish")


def test_an_override_may_pass_the_models_bound() -> None:
    """maxReplicas binds the autoscaler, not a person."""
    world = running(1)
    world.declare("a", max_replicas=1, override=Override(replicas=2, until=world.now + 10))
    world.decide()
    assert len(world.live("a")) == 2


def test_surplus_that_is_not_ready_drains_first() -> None:
    """What serves nothing yet goes before what serves."""
    world = running(1)
    world.wish("a", 2)
    world.decide()
    world.obey("a", ready=False)
    world.load("a", "a-r1-0", 0)
    world.wish("a", 1)
    world.decide()
    assert (world.live("a"), world.draining("a")) == (["a-r1-0"], ["a-r1-1"])


def test_surplus_with_least_running_drains_first() -> None:
    """Among ready replicas the one with the fewest requests goes; an unknown count goes last."""
    world = running(3)
    world.load("a", "a-r1-0", 2)
    world.load("a", "a-r1-1", 1)
    world.wish("a", 2)
    world.decide()
    assert world.draining("a") == ["a-r1-1"]
    world.wish("a", 1)
    world.decide()
    assert world.draining("a") == ["a-r1-0", "a-r1-1"]


def test_surplus_without_counts_drains_the_newest() -> None:
    """When nobody says what runs, the newest replica goes."""
    world = running(1)
    world.now += 5
    world.wish("a", 2)
    world.decide()
    world.obey("a")
    world.wish("a", 1)
    world.decide()
    assert world.draining("a") == ["a-r1-1"]


def test_a_drain_is_taken_back_before_a_new_replica_is_asked_for() -> None:
    """When the wish rises again the draining replica goes on, and only the rest is new."""
    world = running(2)
    world.wish("a", 1)
    world.decide()
    (leaving,) = world.draining("a")
    world.see("a", *((name, DRAINING if name == leaving else READY) for name in ("a-r1-0", "a-r1-1")))
    world.wish("a", 3)
    (grant,) = world.decide().grants
    assert [one.replica for one in grant.replicas] == ["a-r1-0", "a-r1-1", "a-r1-2"]
    assert not world.draining("a")
    assert Reason.TAKES_BACK in grant.reasons


def test_what_is_stopping_cannot_be_taken_back() -> None:
    """A replica that is being stopped is let go, under its name until it is gone; a new name is used."""
    world = running(1)
    world.wish("a", 0)
    world.decide()
    world.see("a", ("a-r1-0", STOPPING))
    world.wish("a", 1)
    world.decide()
    assert (world.draining("a"), world.live("a")) == (["a-r1-0"], ["a-r1-1"])


def test_a_drained_replica_that_nobody_saw_is_let_go_after_the_grace() -> None:
    """Its start may be under way unseen, so it holds its card a little longer; then it is gone."""
    world = World(node(gpus=1))
    world.declare("a", resources=needs(gpus=1))
    world.wish("a", 1)
    world.decide()
    world.wish("a", 0)
    plan = world.decide()
    assert (world.draining("a"), plan.again_at) == (["a-r1-0"], world.now + world.policy.unseen_grace)
    world.decide(after=world.policy.unseen_grace)
    assert world.grants["a"].replicas == ()


def test_a_granted_replica_that_vanished_stays_granted() -> None:
    """A crashed replica keeps its name and place: the adapter starts it again."""
    world = running(1)
    world.see("a", failures=1, retry_in=5)
    assert world.decide().grants == ()
    assert world.live("a") == ["a-r1-0"]


def test_while_starts_back_off_nothing_more_is_granted() -> None:
    """A model whose start failed gets no second replica before the next try, and claims nothing meanwhile."""
    world = World(node(gpus=2))
    world.declare("a", priority=200, resources=needs(gpus=1))
    world.declare("b", priority=100, resources=needs(gpus=1))
    world.wish("a", 1)
    world.decide()
    world.see("a", ("a-r1-0", FAILED), failures=1, retry_in=8)
    world.wish("a", 2)
    world.wish("b", 1)
    plan = world.decide()
    assert (len(world.live("a")), len(world.live("b")), plan.again_at) == (1, 1, world.now + 8)
    assert world.grants["a"].shortage is not None
    assert "starts failed 1 times" in world.grants["a"].shortage.message
    assert Reason.BACKS_OFF in world.grants["a"].reasons
    world.decide(after=8)
    assert Reason.LACKS_GPUS in world.grants["a"].reasons


def test_a_deleted_model_drains_and_is_forgotten() -> None:
    """All its replicas drain; when they are gone the grant is empty and the pool forgets it."""
    world = running(2)
    world.declare("a", deleted=True)
    world.decide()
    assert (world.live("a"), len(world.draining("a"))) == ([], 2)
    world.see("a")
    plan = world.decide()
    assert (world.grants["a"].replicas, plan.gone) == ((), ("a",))


def test_a_model_declared_anew_lets_the_old_replicas_go() -> None:
    """Another uid: what ran for the old one drains, and new names are used for the new one."""
    world = running(1)
    world.declare("a", uid="a-2", revision=2)
    world.decide()
    assert (world.draining("a"), world.live("a")) == (["a-r1-0"], [])
    world.wish("a", 1)
    world.decide()
    assert (world.draining("a"), world.live("a")) == (["a-r1-0"], ["a-r2-0"])


def rolling(replicas: int, gpus: int) -> World:
    """A world whose model `a` gets a second revision while it runs."""
    world = running(replicas, gpus)
    world.declare("a", revision=2)
    return world


def test_a_rollout_surges_by_one_when_it_fits() -> None:
    """One new replica beside the old ones; each that gets ready lets an old one go."""
    world = rolling(2, gpus=4)
    world.decide()
    assert world.live("a") == ["a-r1-0", "a-r1-1", "a-r2-0"]
    for _ in range(6):
        world.obey("a")
        world.decide()
        assert len(world.live("a")) >= 2
    assert (world.live("a"), world.draining("a")) == (["a-r2-0", "a-r2-1"], [])


def test_a_rollout_drains_one_first_when_it_does_not_fit() -> None:
    """On a full pool an old replica goes first, and its place is not lost to another hungry model."""
    world = rolling(2, gpus=2)
    world.declare("b", resources=needs(gpus=1))
    world.wish("b", 1, gain=1000)
    world.decide()
    assert len(world.draining("a")) == 1
    assert Reason.DRAINS_FIRST in world.grants["a"].reasons
    for _ in range(6):
        world.obey("a")
        world.decide()
        assert len(world.live("a")) >= 1
    assert (sorted(world.live("a")), world.live("b")) == (["a-r2-0", "a-r2-1"], [])


def test_a_rollout_that_fits_nowhere_keeps_what_runs() -> None:
    """A new revision that no node can hold drains nothing and says why."""
    world = running(1, gpus=2)
    world.declare("a", revision=2, resources=needs(gpus=9))
    (grant,) = world.decide().grants
    assert world.live("a") == ["a-r1-0"]
    assert grant.shortage is not None
    assert grant.shortage.message == "needs 9 GPUs; the largest node has 2 GPUs"


def test_three_failed_starts_keep_the_old_revision() -> None:
    """A new revision that does not start costs no serving replica, even when the wish grows."""
    world = rolling(2, gpus=4)
    world.decide()
    world.see("a", ("a-r1-0", READY), ("a-r1-1", READY), ("a-r2-0", FAILED), failures=3, retry_in=0)
    world.wish("a", 3)
    world.decide(after=1)
    assert world.live("a") == ["a-r1-0", "a-r1-1", "a-r2-0"]
    assert Reason.KEEPS_OLD in world.grants["a"].reasons
    world.see("a", ("a-r1-0", READY), ("a-r1-1", READY), ("a-r2-0", READY))
    world.decide()
    assert Reason.ROLLS_OUT in world.grants["a"].reasons
    assert "a-r2-1" in world.live("a")


def test_a_broken_revision_is_replaced_at_once() -> None:
    """An old replica that never got ready is no reason to wait, whatever its failures."""
    world = World(node(gpus=1))
    world.declare("a", resources=needs(gpus=1))
    world.wish("a", 1)
    world.decide()
    world.see("a", ("a-r1-0", FAILED), failures=7, retry_in=300)
    world.decide()
    world.declare("a", revision=2)
    world.decide()
    assert world.draining("a") == ["a-r1-0"]
    world.see("a", failures=7, retry_in=300)
    world.decide()
    assert world.live("a") == ["a-r2-0"]


@pytest.mark.parametrize("wished", [0, 1, 2, 3])
def test_a_rollout_ends_at_the_wish(wished: int) -> None:
    """Whatever the wish becomes on the way, the rollout ends with as many new replicas."""
    world = rolling(2, gpus=3)
    world.decide()
    world.wish("a", wished)
    for _ in range(12):
        world.obey("a")
        world.decide(after=1)
    assert world.live("a") == [f"a-r2-{index}" for index in range(wished)]


def test_another_uid_is_never_taken_back() -> None:
    """Even when the revision did not change, what ran for another uid drains, and the new wish gets a new replica."""
    world = running(1)
    world.declare("a", uid="a-2")
    world.wish("a", 1)
    world.decide()
    assert (world.draining("a"), world.live("a")) == (["a-r1-0"], ["a-r1-1"])
    world.see("a", ("a-r1-0", READY), ("a-r1-1", STARTING))
    world.wish("a", 2)
    world.decide()
    assert (world.draining("a"), world.live("a")) == (["a-r1-0"], ["a-r1-1", "a-r1-2"])


def test_a_model_declared_anew_is_no_rollout() -> None:
    """Replicas of another uid do not serve until the new ones are ready: they go at once."""
    world = running(2)
    world.declare("a", uid="a-2", revision=2)
    world.wish("a", 1)
    world.decide()
    assert (world.live("a"), len(world.draining("a"))) == (["a-r2-0"], 2)


@pytest.mark.parametrize(("revision_gpus", "drained"), [(1, 1), (2, 0)])
def test_trying_a_rollout_in_thought_frees_nothing(revision_gpus: int, drained: int) -> None:
    """Whether or not the successor would fit in the old one's place, nobody else gets that place meanwhile."""
    world = running(1, gpus=2)
    world.declare("other", resources=needs(gpus=1))
    world.wish("other", 1)
    world.decide()
    world.declare("a", revision=2, resources=needs(gpus=revision_gpus))
    world.decide()
    assert len(world.draining("a")) == drained
    world.declare("c", resources=needs(gpus=1))
    world.wish("c", 1)
    world.decide()
    assert world.live("c") == []


def crashing(gpus: int) -> World:
    """A world in which model `a` was started once and failed, and backs off for a minute."""
    world = World(node(gpus=gpus))
    world.declare("a", resources=needs(gpus=1), priority=200)
    world.wish("a", 1)
    world.decide()
    world.see("a", ("a-r1-0", STARTING))
    world.decide()
    world.see("a", failures=1, retry_in=60)
    world.decide()
    return world


def test_a_place_that_stands_empty_while_starts_back_off_goes_to_who_needs_it() -> None:
    """One model's trouble delays no other: its card is lent until the next try, and it comes back in its turn."""
    world = crashing(gpus=1)
    assert world.live("a") == ["a-r1-0"]
    world.declare("b", resources=needs(gpus=1), priority=1)
    world.wish("b", 1)
    world.decide(after=10)
    assert (world.live("a"), world.live("b")) == ([], ["b-r1-0"])
    shortage = world.grants["a"].shortage
    assert shortage is not None
    assert "the next try is at" in shortage.message
    world.obey("b")
    plan = world.decide(after=10)
    assert plan.again_at == world.now + 40
    world.decide(after=40)
    assert world.grants["a"].reasons == ("wish", "lacks_gpus")
    world.wish("b", 0)
    world.decide()
    world.obey("b")
    world.decide()
    assert world.live("a") == ["a-r1-0"]


def test_an_empty_place_stays_when_there_is_another() -> None:
    """Nothing is taken from a model that backs off while something else is free."""
    world = crashing(gpus=2)
    world.declare("b", resources=needs(gpus=1))
    world.wish("b", 1)
    world.decide()
    assert (world.live("a"), world.live("b")) == (["a-r1-0"], ["b-r1-0"])


def test_a_place_is_kept_right_before_the_next_try() -> None:
    """Within a second of the next try the adapter may start the replica before it has read that its place is
    another's: two would be on one card. So the place is not given away."""
    world = crashing(gpus=1)
    world.declare("b", resources=needs(gpus=1), priority=1)
    world.wish("b", 1)
    world.decide(after=59.5)
    assert (world.live("a"), world.live("b")) == (["a-r1-0"], [])


def test_no_more_places_are_taken_than_needed() -> None:
    """Of several empty places those that do not help are left alone."""
    world = World(node("n1", gpus=1), node("n2", gpus=2))
    for name, gpus in (("a", 1), ("c", 2)):
        world.declare(name, resources=needs(gpus=gpus))
        world.wish(name, 1)
        world.decide()
        world.obey(name, ready=False)
        world.decide()
        world.see(name, failures=1, retry_in=60)
        world.decide()
    world.declare("b", resources=needs(gpus=2))
    world.wish("b", 1)
    world.decide()
    assert (world.live("a"), world.live("b"), world.live("c")) == (["a-r1-0"], ["b-r1-0"], [])


def test_a_replica_that_still_runs_is_not_taken_while_another_backs_off() -> None:
    """Only the empty place is given away, never one where a process is."""
    world = running(1, gpus=2)
    world.wish("a", 2)
    world.decide()
    world.see("a", ("a-r1-0", READY), ("a-r1-1", STARTING))
    world.decide()
    world.see("a", ("a-r1-0", READY), failures=1, retry_in=60)
    world.declare("b", resources=needs(gpus=1))
    world.wish("b", 2)
    world.decide()
    assert (world.live("a"), len(world.live("b"))) == (["a-r1-0"], 1)


def test_a_failing_rollout_that_lost_its_place_drains_no_old_replica() -> None:
    """After three failed starts the next try may use what is free, and nothing else."""
    world = rolling(1, gpus=2)
    world.decide()
    world.see("a", ("a-r1-0", READY), ("a-r2-0", STARTING))
    world.decide()
    world.see("a", ("a-r1-0", READY), failures=3, retry_in=60)
    world.declare("b", resources=needs(gpus=1))
    world.wish("b", 1)
    world.decide()
    assert (world.live("a"), world.live("b")) == (["a-r1-0"], ["b-r1-0"])
    world.decide(after=60)
    assert (world.live("a"), world.draining("a")) == (["a-r1-0"], [])
    world.wish("b", 0)
    world.decide(after=10)
    assert world.live("a") == ["a-r1-0", "a-r2-0"] or world.draining("b")


def test_a_crashed_replica_that_is_not_wanted_is_let_go_without_any_event() -> None:
    """Nobody will say that it is gone, since it is gone already: the clock lets it go."""
    world = running(1)
    world.see("a", failures=1, retry_in=2)
    world.decide()
    world.wish("a", 0)
    plan = world.decide()
    assert (world.draining("a"), plan.again_at) == (["a-r1-0"], world.now + world.policy.unseen_grace)
    world.decide(after=world.policy.unseen_grace)
    assert world.grants["a"].replicas == ()


def test_a_replica_that_shows_up_while_it_drains_is_waited_for() -> None:
    """Its start was under way: it holds its card until it is seen to be gone, and no longer."""
    world = running(1)
    world.see("a")
    world.wish("a", 0)
    world.decide()
    world.see("a", ("a-r1-0", STARTING))
    world.decide(after=world.policy.unseen_grace)
    assert world.draining("a") == ["a-r1-0"]
    world.see("a")
    world.decide()
    assert world.grants["a"].replicas == ()
