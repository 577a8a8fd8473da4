"""The slot authority: who gets which slot, in which order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstart.core.hold import HoldBudget
from events.names import ModelName
from events.types.replicas import ReplicaState
from events.units import Bytes, Instant
from runtime.core.authority import Authority
from runtime.core.commands import Drained, SendWindow, TellColdStart
from runtime.core.ledger import LeaseEnded
from runtime.core.model_slots import Declared, ModelState
from runtime.ports import Ending, Outcome, RefusalCode
from tests.support.slots import (
    DONE,
    MODEL,
    START,
    authority,
    budget,
    declared,
    granted,
    hold,
    leases,
    name,
    observed,
    others,
    refusals,
    replica,
    ticket,
)

LATER = Instant(START + 5)


def test_a_request_to_a_warm_model_gets_a_lease_at_once() -> None:
    """The lease says where to go, and that nobody waited for a start."""
    desk = authority()
    desk.observe(observed(replica()), START)
    (lease,) = leases(desk.take(ticket("r1"), START))
    assert (lease.request, lease.model, lease.replica, lease.revision) == ("r1", MODEL, name(0), 1)
    assert (lease.host, lease.port, lease.cold, lease.held_seconds) == ("127.0.0.1", 9000, False, 0.0)


def test_requests_to_a_model_at_zero_get_slots_when_there_are_some() -> None:
    """Late binding, first come first served, as many as there are slots; the rest as slots come free."""
    desk = authority()
    for index in range(5):
        assert leases(desk.take(ticket(f"r{index}", START - 1), START)) == []  # its body took a second to come
    first = desk.observe(observed(replica(slots=2)), LATER)
    assert granted(first) == ["r0", "r1"]
    assert [lease.cold for lease in leases(first)] == [True, True]
    assert [lease.held_seconds for lease in leases(first)] == [5.0, 5.0]
    assert granted(desk.give_back(leases(first)[0].id, DONE, LATER)) == ["r2"]
    assert granted(desk.observe(observed(replica(slots=2), replica(1, slots=2)), LATER)) == ["r3", "r4"]


def test_nobody_overtakes() -> None:
    """A new request waits behind those that wait, also at the instant a slot comes free."""
    desk = authority()
    desk.observe(observed(replica(slots=1)), START)
    (first,) = leases(desk.take(ticket("r1"), START))
    desk.take(ticket("r2"), START)
    assert granted(desk.give_back(first.id, DONE, START)) == ["r2"]
    assert granted(desk.take(ticket("r3"), START)) == []


def test_the_least_loaded_replica_is_chosen() -> None:
    """By the share of busy slots, equals by name."""
    desk = authority()
    desk.observe(observed(replica(0, slots=2), replica(1, slots=4)), START)
    chosen = [leases(desk.take(ticket(f"r{index}"), START))[0].replica for index in range(6)]
    assert chosen == [name(0), name(1), name(1), name(0), name(1), name(1)]
    assert granted(desk.take(ticket("r6"), START)) == []


def test_a_lease_is_given_back_exactly_once() -> None:
    """A second time, or one that was never granted, raises and frees nothing."""
    desk = authority()
    desk.observe(observed(replica(slots=1)), START)
    (lease,) = leases(desk.take(ticket("r1"), START))
    desk.give_back(lease.id, DONE, START)
    for unknown in (lease.id, 999):
        with pytest.raises(LeaseEnded, match="not live"):
            desk.give_back(unknown, DONE, START)
    assert desk.live_leases == 0
    assert granted(desk.take(ticket("r2"), START)) == ["r2"]
    assert granted(desk.take(ticket("r3"), START)) == []


def test_a_client_that_leaves_while_it_waits_gets_nothing() -> None:
    """Its place goes to the next; leaving again, or after a lease, does nothing."""
    desk = authority()
    for index in range(3):
        desk.take(ticket(f"r{index}"), START)
    desk.leave("r0", START)
    desk.leave("r0", START)
    assert granted(desk.observe(observed(replica(slots=1)), START)) == ["r1"]
    desk.leave("r1", START)
    assert [status.held for status in desk.statuses()] == [1]
    assert desk.live_leases == 1


def test_only_the_newest_revision_with_ready_replicas_is_leased() -> None:
    """While a new revision starts the old one serves; then the old one gets no new request."""
    desk = authority(revision=2)
    old = replica(0, revision=1)
    desk.observe(observed(old, replica(0, revision=2, state=ReplicaState.STARTING)), START)
    (lease,) = leases(desk.take(ticket("r1"), START))
    assert lease.revision == 1
    desk.observe(observed(old, replica(0, revision=2)), START)
    assert {leases(desk.take(ticket(f"n{index}"), START))[0].revision for index in range(2)} == {2}
    assert granted(desk.take(ticket("n2"), START)) == []


def test_a_draining_replica_gets_no_lease_and_is_told_drained_once() -> None:
    """At zero leases, also when it had none; not again with each observation; again after it was taken back."""
    desk = authority()
    desk.observe(observed(replica(0), replica(1)), START)
    (lease,) = leases(desk.take(ticket("r1"), START))
    draining = observed(replica(0, state=ReplicaState.DRAINING), replica(1, state=ReplicaState.DRAINING))
    assert others(desk.observe(draining, START)) == [Drained(MODEL, name(1))]
    assert granted(desk.take(ticket("r2"), START)) == []
    assert others(desk.give_back(lease.id, DONE, START)) == [Drained(MODEL, name(0))]
    assert others(desk.observe(draining, START)) == []
    assert granted(desk.observe(observed(replica(0), replica(1)), START)) == ["r2"]
    back = desk.observe(draining, START)
    assert others(back) == [Drained(MODEL, name(1))]


def test_the_slots_of_a_replica_that_is_gone_are_no_more() -> None:
    """Its leases end when the gateway gives them back, and free nothing that somebody else has."""
    desk = authority()
    desk.observe(observed(replica(slots=1)), START)
    (lost,) = leases(desk.take(ticket("r1"), START))
    desk.take(ticket("r2"), START)
    assert others(desk.observe(observed(), START)) == []
    assert granted(desk.observe(observed(replica(slots=1, life=2)), START)) == ["r2"]
    broken = desk.give_back(lost.id, Outcome(Ending.BROKEN), START)
    assert (granted(broken), others(broken)) == ([], [])
    assert granted(desk.take(ticket("r3"), START)) == []


def test_a_replica_that_was_started_again_has_all_its_slots() -> None:
    """Same name, other process: what the old one ran died with it."""
    desk = authority()
    desk.observe(observed(replica(slots=2)), START)
    for index in range(3):
        desk.take(ticket(f"r{index}"), START)
    assert granted(desk.observe(observed(replica(slots=2, life=2)), START)) == ["r2"]
    assert granted(desk.take(ticket("r3"), START)) == ["r3"]
    assert granted(desk.take(ticket("r4"), START)) == []


def test_another_uid_is_another_model() -> None:
    """Replicas of the old declaration get no lease, and who waited for it is refused."""
    desk = authority()
    desk.take(ticket("r1"), START)
    gone = refusals(desk.declare(declared(uid="u2"), START))
    assert gone["r1"].code is RefusalCode.DELETED
    desk.observe(observed(replica(uid="u1"), uid="u1"), START)
    assert granted(desk.take(ticket("r2"), START)) == []
    assert granted(desk.observe(observed(replica(uid="u2"), uid="u2"), START)) == ["r2"]


def test_a_deleted_model_refuses_who_waits_and_who_comes() -> None:
    """404 both; what runs goes on, and its replica is told drained."""
    desk = authority()
    desk.observe(observed(replica(slots=1)), START)
    (lease,) = leases(desk.take(ticket("r1"), START))
    desk.take(ticket("r2"), START)
    assert refusals(desk.delete(MODEL, START))["r2"].code is RefusalCode.DELETED
    assert refusals(desk.take(ticket("r3"), START))["r3"].code is RefusalCode.UNKNOWN_MODEL
    assert desk.resolve(MODEL) is None
    desk.observe(observed(replica(slots=1, state=ReplicaState.DRAINING)), START)
    assert others(desk.give_back(lease.id, DONE, START)) == [Drained(MODEL, name(0))]
    desk.observe(observed(), START)
    assert desk._models == {}


def test_an_unknown_model_is_refused_without_being_remembered() -> None:
    """Made-up names must not fill the memory."""
    desk = Authority("g", budget())
    refusal = refusals(desk.take(ticket("r1", model="made-up"), START))["r1"]
    assert (refusal.code, refusal.retry_after) == (RefusalCode.UNKNOWN_MODEL, None)
    assert desk._models == {}
    assert desk.due() is None


def test_what_runs_may_be_known_before_what_is_declared() -> None:
    """The two topics have no common order."""
    desk = Authority("g", budget())
    desk.observe(observed(replica()), START)
    assert refusals(desk.take(ticket("r1"), START))["r1"].code is RefusalCode.UNKNOWN_MODEL
    desk.declare(declared(), START)
    assert granted(desk.take(ticket("r2"), START)) == ["r2"]


def test_aliases_lead_to_their_model() -> None:
    """A model's own name goes before an alias; an alias that is no longer declared leads nowhere."""
    desk = authority(aliases=("openai/gpt", "short"))
    assert desk.resolve("openai/gpt") == desk.resolve(MODEL) == declared(aliases=("openai/gpt", "short"))
    desk.declare(declared(aliases=("short",)), START)
    assert desk.resolve("openai/gpt") is None
    desk.delete(MODEL, START)
    assert desk.resolve("short") is None


def test_a_returning_request_goes_first_and_arrives_once() -> None:
    """It was not served: it goes before its caller's others, with its old arrival, and counts no second arrival."""
    desk = authority()
    desk.observe(observed(replica(slots=1)), START)
    (lease,) = leases(desk.take(ticket("r1"), START))
    for index in (2, 3):
        desk.take(ticket(f"r{index}"), START)
    unreachable = desk.give_back(lease.id, Outcome(Ending.UNREACHABLE), START)
    assert granted(unreachable) == []
    assert granted(desk.take(ticket("r1", attempt=1), START)) == []
    assert granted(desk.observe(observed(replica(slots=1)), LATER)) == ["r1"]
    windows = [command.window for command in desk.advance(LATER) if isinstance(command, SendWindow)]
    assert (windows[0].arrivals, windows[0].starts, windows[0].failures) == (3, 2, 1)


def test_the_same_request_cannot_wait_twice() -> None:
    """The caller's bug."""
    desk = authority()
    desk.take(ticket("r1"), START)
    with pytest.raises(ValueError, match="waits already"):
        desk.take(ticket("r1"), START)


@pytest.mark.parametrize(
    ("policy", "shared", "size"),
    [
        (hold(requests=2), budget(), 1),
        (hold(size=20), budget(), 1),
        (hold(), budget(requests=2), 1),
        (hold(), budget(size=20), 1),
    ],
    ids=["count", "bytes", "count-in-all", "bytes-in-all"],
)
def test_a_full_hold_queue_refuses_with_a_time_to_come_back(policy: object, shared: HoldBudget, size: int) -> None:
    """429, and those that wait already are served as before."""
    desk = Authority("g", shared)
    desk.declare(declared(hold=policy), START)  # type: ignore[arg-type]  # a HoldPolicy
    for index in range(2):
        assert refusals(desk.take(ticket(f"r{index}", size=10), START)) == {}
    refusal = refusals(desk.take(ticket("r2", size=size), START))["r2"]
    assert refusal.code is RefusalCode.QUEUE_FULL
    assert refusal.retry_after == 3.0  # the promise, for a model that never started
    assert granted(desk.observe(observed(replica()), START)) == ["r0", "r1"]


def test_a_model_that_holds_nothing_serves_only_free_slots() -> None:
    """maxRequests 0."""
    desk = authority(hold=hold(requests=0))
    assert refusals(desk.take(ticket("r0"), START))["r0"].code is RefusalCode.QUEUE_FULL
    desk.observe(observed(replica(slots=1)), START)
    assert granted(desk.take(ticket("r1"), START)) == ["r1"]
    assert refusals(desk.take(ticket("r2"), START))["r2"].code is RefusalCode.QUEUE_FULL


def test_when_a_full_queue_drains_says_when_to_come_back() -> None:
    """With replicas the measured rate counts: ten wait, one leaves a second."""
    desk = authority(hold=hold(requests=10))
    desk.observe(observed(replica(slots=1)), START)
    (lease,) = leases(desk.take(ticket("x"), START))
    for index in range(100):
        now = Instant(START + index)
        desk.take(ticket(f"r{index}", now), now)
        if index >= 10:
            (lease,) = leases(desk.give_back(lease.id, DONE, now))
    desk.take(ticket("last", START + 99), Instant(START + 99))
    refusal = refusals(desk.take(ticket("late", START + 99), Instant(START + 99)))["late"]
    assert refusal.retry_after == pytest.approx(10.0, rel=0.1)


def test_shutting_down_refuses_who_waits_and_who_comes() -> None:
    """503 with a time to come back; live leases are given back as ever."""
    desk = authority()
    desk.observe(observed(replica(slots=1)), START)
    (lease,) = leases(desk.take(ticket("r1"), START))
    desk.take(ticket("r2"), START)
    for found in (refusals(desk.shutdown(START))["r2"], refusals(desk.take(ticket("r3"), START))["r3"]):
        assert found.code is RefusalCode.SHUTTING_DOWN
        assert found.retry_after is not None
    assert granted(desk.give_back(lease.id, DONE, START)) == []
    assert refusals(desk.take(ticket("r4"), START))["r4"].code is RefusalCode.SHUTTING_DOWN
    assert desk.live_leases == 0


def test_shutting_down_while_a_deleted_model_drains() -> None:
    """What is not declared any more has nobody waiting; its last lease is given back as ever."""
    desk = authority()
    desk.observe(observed(replica(slots=1)), START)
    (lease,) = leases(desk.take(ticket("r1"), START))
    desk.delete(MODEL, START)
    assert refusals(desk.shutdown(START)) == {}
    desk.give_back(lease.id, DONE, START)
    assert desk.live_leases == 0


def test_whoever_waits_too_long_gets_504() -> None:
    """At its own deadline, by the alarm; the one that can wait longer goes on."""
    desk = authority()
    desk.take(ticket("short", wait=10.0), START)
    desk.take(ticket("long", wait=20.0), START)
    seen = {}
    for now in (START + 1, START + 9.9, START + 10, START + 15):
        seen |= dict.fromkeys(refusals(desk.advance(Instant(now))), now)
    assert seen == {"short": START + 10}
    assert list(refusals(desk.advance(Instant(START + 20)))) == ["long"]
    assert [status.held for status in desk.statuses()] == [0]


def test_a_cold_start_is_told_once_with_its_first_request() -> None:
    """Of all that waited, the first that got a lease; the next cold start is told anew."""
    desk = authority()
    for index in range(3):
        desk.take(ticket(f"r{index}"), START)
    one, two = leases(desk.observe(observed(replica(slots=2)), LATER))
    answered = Outcome(Ending.FINISHED, status=200, first_byte_at=Instant(LATER + 0.3))
    third = desk.give_back(two.id, answered, LATER)
    assert others(third) == []
    (told,) = others(desk.give_back(one.id, answered, LATER))
    assert isinstance(told, TellColdStart)
    finished = told.finished
    assert (finished.request, finished.held_requests, finished.arrived_at) == ("r0", 3, START)
    assert (finished.first_byte_at, finished.sla_seconds) == (LATER + 0.3, 3.0)
    assert others(desk.give_back(leases(third)[0].id, answered, LATER)) == []


def test_a_cold_start_whose_first_client_left_is_told_by_another() -> None:
    """The first lease saw no byte: the next that ends with one tells."""
    desk = authority()
    for index in range(2):
        desk.take(ticket(f"r{index}"), START)
    one, two = leases(desk.observe(observed(replica(slots=2)), LATER))
    assert others(desk.give_back(one.id, Outcome(Ending.CLIENT_LEFT), LATER)) == []
    answered = Outcome(Ending.FINISHED, status=200, first_byte_at=LATER)
    (told,) = others(desk.give_back(two.id, answered, LATER))
    assert isinstance(told, TellColdStart)
    assert told.finished.request == "r1"


@pytest.mark.parametrize(
    ("replicas", "failures", "state"),
    [
        ((), 0, ModelState.ZERO),
        ((replica(state=ReplicaState.STARTING),), 0, ModelState.STARTING),
        ((replica(), replica(1, state=ReplicaState.STARTING)), 0, ModelState.READY),
        ((replica(state=ReplicaState.DRAINING),), 0, ModelState.DRAINING),
        ((replica(state=ReplicaState.STOPPING),), 0, ModelState.DRAINING),
        ((replica(state=ReplicaState.FAILED),), 1, ModelState.FAILED),
        ((), 3, ModelState.FAILED),
        ((replica(state=ReplicaState.STARTING),), 2, ModelState.STARTING),
    ],
)
def test_the_state_of_a_model_in_one_word(replicas: tuple[object, ...], failures: int, state: ModelState) -> None:
    """As users see it in lists."""
    desk = authority()
    desk.observe(observed(*replicas, failures=failures), START)  # type: ignore[arg-type]  # replica statuses
    assert [status.state for status in desk.statuses()] == [state]


def test_ten_thousand_idle_models_have_nothing_due() -> None:
    """No alarm, no window: passing of time costs them nothing."""
    desk = Authority("g", HoldBudget(10, Bytes(1000)))
    for index in range(10_000):
        desk.declare(declared_as(f"m{index}"), START)
    assert desk.due() is None
    assert desk.advance(Instant(START + 1e6)) == []
    assert len(desk._alarms) == 0


def declared_as(model: str) -> Declared:
    """MODEL under another name."""
    return replace(declared(), model=ModelName(model))
