"""From events to wishes, without tasks: uids, revisions, deletion, bounds, reasons, restarts."""

from __future__ import annotations

from autoscaler.explain import Records, explain
from events.codec import encode_structured
from events.types.decisions import OwnershipTaken
from events.types.gateways import GatewayBeat
from events.types.metrics import BacklogMeasured, SignalMeasured
from events.types.requests import ActivationRequested, Levels, RequestArrived, RequestFinished
from events.writer import EventWriter
from tests.support.autoscaling import T0, Run, declared, observed, window


def test_another_uid_is_void() -> None:
    """Windows, replicas and wishes of a model that had the same name say nothing of this one."""
    run = Run(declared(uid="new"), obey=False)
    run.put(window(T0, T0, waiting=9, uid="old", now=Levels(waiting=9)))
    run.put(observed(3))
    run.advance(10)
    assert run.numbers() == [0]
    snapshot = run.fold.models["m"].snapshot(run.now, run.fold.world)
    assert snapshot is not None
    assert (snapshot.replicas.ready, snapshot.demand.waiting) == (0, 0)


def test_a_model_declared_anew_starts_anew() -> None:
    """Another uid: what ran, waited and was remembered is gone, the number too."""
    run = Run(declared(), obey=False)
    run.serve(waiting=12)
    assert run.wish().replicas == 3
    run.put(declared(uid="other"))
    assert (run.wish().uid, run.wish().replicas) == ("other", 0)


def test_a_window_may_come_before_its_declaration() -> None:
    """Topics have no order between them: the newest window waits for the declaration."""
    run = Run()
    run.put(window(T0, T0, now=Levels(waiting=5)))
    assert run.wishes == []
    run.put(declared())
    assert run.wish().replicas == 2


def test_a_new_revision_is_recorded_with_the_same_number() -> None:
    """The allocator reads the revision from the wish."""
    run = Run(declared(minReplicas=1))
    run.put(declared(minReplicas=1, revision=2))
    assert [(wish.revision, wish.replicas) for _, wish in run.wishes] == [(1, 1), (2, 1)]


def test_new_bounds_take_effect_at_once() -> None:
    """Also downward, also while history is unread: bounds are the user's."""
    run = Run(declared(maxReplicas=10), history=False)
    run.serve(waiting=40)
    assert run.wish().replicas == 10
    run.put(declared(maxReplicas=4))
    assert run.wish().replicas == 4
    run.put(declared(minReplicas=6, maxReplicas=10))
    assert run.wish().replicas == 10


def test_deleted_is_zero_and_forgotten() -> None:
    """The last word is a wish of zero."""
    run = Run(declared(minReplicas=2))
    run.put(declared(minReplicas=2, deleted=True))
    assert (run.wish().replicas, run.wish().reasons) == (0, ("Deleted",))
    assert run.fold.models == {}
    run.put(declared(deleted=True))
    run.put(declared(model="other", deleted=True))
    assert len(run.wishes) == 2


def test_an_unreadable_declaration_changes_nothing() -> None:
    """A spec of another shape is counted; the declaration before it stands."""
    run = Run(declared(minReplicas=1))
    run.put(declared(minReplicas=1, target="many"))
    run.serve(waiting=5)
    assert run.fold.unreadable == 1
    assert run.wish().replicas == 2


def test_nothing_is_recorded_that_says_nothing_new() -> None:
    """A quarter of an hour at constant load: a decision each two seconds, one wish."""
    run = Run(declared())
    run.serve(running=3, seconds=900)
    assert [(wish.replicas, wish.reasons[0]) for _, wish in run.wishes[:2]] == [(0, "Idle"), (1, "Activation")]
    assert len(run.wishes) == 3  # and once that it is steady
    assert run.decided >= 400


def test_activation_wakes_and_ends_after_the_keep_alive() -> None:
    """Somebody asks that the model be awake."""
    run = Run(declared(keepAlive="10s"))
    run.put(ActivationRequested(model="m", replicas=2))
    assert run.wish().replicas == 2
    run.advance(9.9)
    assert run.wish().replicas == 2
    run.advance(0.2)
    assert run.wish().replicas == 0
    run.put(ActivationRequested(model="m", until=run.now + 100))
    run.advance(99)
    assert run.wish().replicas == 1
    run.advance(2)
    assert run.wish().replicas == 0


def test_foreign_requests_wake_and_are_counted() -> None:
    """A gateway that is not ours tells of each request; the keep-alive counts from the last one's end."""
    run = Run(declared(keepAlive="10s"))
    for number in range(9):
        run.put(RequestArrived(model="m", request=str(number)))
    assert run.wish().replicas == 1
    run.advance(0.05)
    assert run.wish().replicas == 3
    run.advance(30)
    for number in range(9):
        run.put(RequestFinished(model="m", request=str(number)))
    run.advance(9)
    assert run.wish().replicas >= 1
    run.advance(2)
    assert run.wish().replicas == 0


def test_a_foreign_finish_that_comes_first() -> None:
    """A partitioner that differs sends the arrival the long way round: nothing is left in flight; rates are counted."""
    run = Run(declared(keepAlive="10s", stableWindow="10s"))
    for number in range(8):
        run.put(RequestFinished(model="m", request=f"f{number}"))
    run.advance(5)
    for number in range(8):
        run.put(RequestArrived(model="m", request=f"f{number}"))
    run.put(RequestArrived(model="m", request="real"))
    run.advance(4)
    run.put(RequestFinished(model="m", request="real"))
    snapshot = run.fold.models["m"].snapshot(run.now, run.fold.world)
    assert snapshot is not None
    assert (snapshot.demand.running, snapshot.wished) == (0, 1)
    assert snapshot.demand.seconds_per_request == 4.0
    assert snapshot.demand.arrivals_per_second > 0.05
    run.advance(60)
    assert run.wish().replicas == 0


def test_numbers_from_outside() -> None:
    """A backlog and a signal each ask for what they need while they are valid."""
    run = Run(declared(keepAlive="5s"))
    run.put(BacklogMeasured(model="m", source="kafka", items=9))
    run.advance(3)
    assert (run.wish().replicas, run.wish().reasons) == (3, ("Signal",))
    run.put(SignalMeasured(model="m", name="queue", value=50, target=10, valid_for=10))
    run.advance(3)
    assert run.wish().replicas == 5
    run.advance(125)
    assert run.wish().replicas == 0


def test_a_silent_gateway_holds_until_it_is_proven_dead() -> None:
    """It fell silent with requests: hold. Another gateway goes on beating, the first does not: then it is dead."""
    run = Run(declared(keepAlive="10s"))
    run.put(GatewayBeat(gateway="g", boot="1"))
    run.serve(running=8, seconds=3)
    run.advance(8)
    assert (run.wish().replicas, run.wish().reasons) == (2, ("DemandUnknown",))
    run.advance(2000)
    assert run.wish().replicas == 2
    run.put(GatewayBeat(gateway="other", boot="1"))
    run.advance(15)
    assert run.wish().replicas == 0


def test_a_gateway_that_starts_anew_has_no_old_requests() -> None:
    """After `kill -9` and a new start the old requests are gone, without waiting for anything."""
    run = Run(declared(keepAlive="10s"))
    run.put(GatewayBeat(gateway="g", boot="1"))
    run.serve(running=8, seconds=3)
    for _ in range(20):
        run.put(GatewayBeat(gateway="g", boot="2"))
        run.advance(1)
    assert run.wish().replicas == 0


def test_failing_starts_hold_and_success_goes_on() -> None:
    """While starts fail the backlog asks for no more; after a success it does at once."""
    run = Run(declared(), obey=False)
    run.put(observed(0, failures=1, retry_at=T0 + 5))
    run.serve(waiting=20, seconds=3)
    assert run.numbers() == [0, 1]
    run.put(observed(1))
    assert run.numbers() == [0, 1, 5]


def test_history_wakes_nobody() -> None:
    """Windows from before the start are folded, and nothing is raised for what waited then."""
    run = Run(declared(), history=False)
    run.put(window(T0 - 30, T0 - 29, waiting=40), at=T0 - 29)
    assert run.fold.models["m"].last is None or run.wish().replicas == 0
    run.read_history()
    assert (run.wish().replicas, run.decision().reasons[0]) == (0, "Steady")


def test_a_restart_keeps_panic_and_number() -> None:
    """A burst, a restart within panic: nothing falls before panic would have ended."""
    run = Run(declared(maxReplicas=50))
    run.serve(running=80, seconds=5)
    run.serve(running=4, seconds=2)
    again = run.restart()
    again.serve(running=4, seconds=50)
    assert again.wish().replicas == 20
    again.serve(running=4, seconds=90)
    assert again.wish().replicas < 20


def test_who_takes_ownership_is_seen() -> None:
    """An older or our own record is nothing; a newer one means that we have lost it."""
    run = Run()
    run.fold.epoch = 10
    run._offsets = iter(range(9, 20))
    run.put(OwnershipTaken(partition=0, owner="before"))
    run.put(OwnershipTaken(partition=0, owner="me"))
    assert run.fold.lost_to is None
    run.put(OwnershipTaken(partition=1, owner="of another partition"))
    assert run.fold.lost_to is None
    run.put(OwnershipTaken(partition=0, owner="after"))
    assert run.fold.lost_to == "after"


def test_undeclared_names_are_bounded() -> None:
    """Anybody may name a model that does not exist: it costs no memory for long."""
    run = Run(declared())
    for number in range(3000):
        run.put(window(T0, T0, model=f"ghost-{number}"))
    assert len(run.fold.models) == 1025
    assert "m" in run.fold.models


def test_a_burst_is_gathered_and_answered_in_one_step() -> None:
    """However many edges tell of it: one at the first, and all that it needs a twentieth of a second later."""
    run = Run(declared(maxReplicas=100), obey=False)
    for waiting in (1, 2, 3, 5, 8, 12, 18, 40, 90, 200):
        run.serve(waiting=waiting, seconds=0)
        run.advance(0.004)
    run.advance(0.05)
    assert [(when, wish.replicas) for when, wish in run.wishes] == [(0.0, 0), (0.0, 1), (0.05, 50)]


def test_a_clock_set_back_between_two_starts_blocks_nothing() -> None:
    """What was remembered lies in the future, and so does the log's time: wake, grow and go to zero as ever."""
    run = Run(declared(maxReplicas=50, keepAlive="10s"))
    run.serve(running=30, seconds=30)
    again = run.restart(history=False)
    again.clock = type(run.clock)(run.now - 3600)
    again._writers.clear()
    again.fold.live_from = run.now
    again.read_history()
    assert again.wish().replicas == 8
    again.put(window(again.now, again.now, waiting=60, now=Levels(waiting=60)), "relume/gateway/g", at=run.now)
    again.advance(0.1)
    assert again.wish().replicas == 15
    again.put(window(again.now, again.now), "relume/gateway/g", at=run.now)
    again.advance(12)
    assert again.wish().replicas == 0


def test_absurd_numbers_break_nothing() -> None:
    """Whoever writes to the log may be wrong by any factor: the wish stays within its bounds, and can be encoded."""
    run = Run(declared(maxReplicas=7, target=1e-9))
    huge = 1 << 80
    run.put(window(T0, T0 + 1, running_seconds=1e308, waiting_seconds=1e308, now=Levels(running=huge, waiting=huge)))
    run.put(window(1.0, 1e300, gateway="x"), "relume/gateway/x")
    run.put(window(T0, T0, gateway="y", now=Levels(waiting=1), oldest_waiting_since=1.0, earliest_deadline=1e300))
    run.put(window(T0, T0, gateway="z", now=Levels(waiting=1), oldest_waiting_since=1e300, earliest_deadline=1.0))
    run.put(SignalMeasured(model="m", name="n" * 10_000, value=1e300, target=1e-300, valid_for=1e300))
    run.put(ActivationRequested(model="m", replicas=huge, until=1e300))
    run.put(RequestArrived(model="m", request="r" * 10_000))
    run.advance(5)
    assert run.wish().replicas == 7
    for _, wish in run.wishes:
        event = EventWriter("relume/test", run.clock).envelope(wish)
        assert encode_structured(event)
        assert explain(Records(wish)).sentences
