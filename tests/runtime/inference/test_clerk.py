"""The clerk's rules one by one: parking, retries, deadlines, duplicates, turns, and models that are in nobody's way."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from events.types.inference import FailureReason, Origin
from events.units import Instant, Seconds
from runtime.core.inference.backlog import Backlog, concurrency
from runtime.core.inference.endings import Dead, Settle
from runtime.core.inference.errand import TABLE, Arrival, Errand, Happening, State
from runtime.core.inference.lane import Lane
from runtime.core.inference.outcomes import Outcomes
from runtime.core.inference.policy import InferencePolicy
from tests.support.inference_world import PARKED, REQUESTS, World

BROKEN = Dead(FailureReason.ATTEMPTS, "the replica broke off", 500)


def told(world: World) -> dict[str, str]:
    return {outcome.id: outcome.what for outcome in world.outcomes}


def models_asked(world: World) -> list[str]:
    return [errand.arrival.origin.id for errand in world.tickets.values()]


def pump(world: World, seconds: float, never: str = "never") -> None:
    """Everything but `never` is answered at once, for so long; a step is a tenth of a second."""
    for _ in range(round(seconds * 10)):
        world.deliver()
        for at, errand in reversed(list(enumerate(world.tickets.values()))):
            if errand.arrival.model != never:
                world.grant(at)
        while world.running:
            world.answer()
        if world.pending:
            world.settle()
        world.advance(0.1)


def test_a_request_is_asked_run_answered_and_committed() -> None:
    """The plain way: one result, and the offset behind it."""
    world = World()
    world.produce("one", "good")
    world.deliver()
    world.grant()
    world.answer()
    world.settle()
    assert told(world) == {"one": "result"}
    assert world.marks == {(REQUESTS, 0): (1, ())}
    assert len(world.clerk) == 0


def test_finished_requests_behind_an_unfinished_one_are_in_the_mark() -> None:
    """The offset stays at the unfinished one; a restart runs that one alone."""
    world = World()
    for name in ("slow", "two", "three"):
        world.produce(name, name)
    world.deliver()
    world.grant(1)
    world.answer()
    world.settle()
    assert world.marks == {(REQUESTS, 0): (0, (1,))}
    world.start()
    world.deliver()
    assert models_asked(world) == ["slow", "three"]


def test_who_waits_five_seconds_for_a_model_without_slots_is_parked() -> None:
    """Not before; and it asks again from there, still counted."""
    world = World()
    world.produce("one", "never")
    world.deliver()
    world.advance(4.9)
    assert not world.pending
    world.advance(0.1)
    assert world.tickets == {}
    world.settle()
    assert [arrival.parks for arrival in world.topics[PARKED, 0]] == [1]
    assert world.marks[REQUESTS, 0] == (1, ())
    world.deliver()
    assert models_asked(world) == ["one"]
    ((backlog, running),) = world.clerk.backlogs()
    assert (backlog.items, running, backlog.oldest_since) == (1, 0, 1000.0)


def test_who_waits_for_a_model_that_gives_slots_is_not_parked() -> None:
    """As long as others stand behind nothing: its turn comes."""
    world = World()
    for name in "abcd":
        world.produce(name, "busy")
    world.deliver()
    for _ in range(3):
        world.advance(3.0)
        world.grant()
        world.answer()
        world.settle()
    assert not world.topics[PARKED, 0]


def test_a_flood_for_a_model_that_never_starts_keeps_nobody_else_waiting() -> None:
    """Two hundred of them, with a look-ahead of six: whoever stands behind them, and behind those that are parked, is
    answered within a few laps."""
    world = World()
    for number in range(200):
        world.produce(f"never-{number}", "never")
    world.produce("behind", "good")
    pump(world, 80)
    assert told(world)["behind"] == "result"
    world.produce("later", "good")
    pump(world, 5)
    assert told(world)["later"] == "result"


def test_a_parked_request_is_found_behind_those_of_a_model_that_never_starts() -> None:
    """The topic of parked requests turns round: a model that becomes ready gets its own out of the middle."""
    world = World(InferencePolicy(lookahead=6, tickets=2, lap=Seconds(10.0)))
    names = itertools.cycle(["never", "never", "late"])
    for number in range(30):
        world.produce(f"{number}", next(names))
    for _ in range(150):
        world.deliver()
        world.advance(0.5)
        if world.pending:
            world.settle()
    pump(world, 300)
    assert sum(what == "result" for what in told(world).values()) == 10


def test_an_attempt_that_fails_is_made_again_later_and_not_for_ever() -> None:
    """Back-off doubles, by chance up to half less; after the last attempt it is a dead letter with the status."""
    world = World()
    world.produce("one", "good")
    world.deliver()
    world.grant()
    world.fail(0, BROKEN, chance=0.0)
    assert not world.tickets
    world.advance(0.9)
    assert not world.tickets
    world.advance(0.1)
    world.grant()
    world.fail(0, BROKEN, chance=1.0)
    world.advance(1.0)
    world.grant()
    world.fail(0, BROKEN)
    world.settle()
    assert told(world) == {"one": "attempts_exhausted"}
    assert world.runs["one"] == 3


def test_attempts_are_counted_over_parking() -> None:
    """A back-off longer than five seconds is spent on the topic of parked requests."""
    world = World(InferencePolicy(retry_first=Seconds(20.0), attempts=2))
    world.produce("one", "good")
    world.deliver()
    world.grant()
    world.fail(0, BROKEN, chance=0.0)
    world.advance(5.0)
    world.settle()
    (parked,) = world.topics[PARKED, 0]
    assert (parked.attempts, parked.not_before) == (1, 1020.0)
    world.deliver()
    world.advance(14.9)
    assert not world.tickets
    world.advance(0.1)
    world.grant()
    world.fail(0, BROKEN)
    world.settle()
    assert told(world) == {"one": "attempts_exhausted"}


def test_a_refusal_is_no_attempt() -> None:
    """However often the model fails to start."""
    world = World()
    world.produce("one", "good", lasts=100)
    world.deliver()
    for _ in range(8):
        world.refuse()
        world.advance(2.0)
        world.settle()
        world.deliver()
    assert models_asked(world) == ["one"]
    world.grant()
    world.answer()
    world.settle()
    assert told(world) == {"one": "result"}


@pytest.mark.parametrize("state", [State.ASKED, State.RUNNING, State.WAITING])
def test_the_deadline_ends_it_wherever_it_stands(state: State) -> None:
    """A ticket is given back, a request broken off."""
    world = World()
    world.produce("one", "good", lasts=3)
    world.deliver()
    if state is State.RUNNING:
        world.grant()
    elif state is State.WAITING:
        world.refuse()
    world.advance(3.0)
    assert not world.tickets
    assert not world.running
    world.settle()
    assert told(world) == {"one": "deadline_exceeded"}


def test_a_request_that_comes_again_has_one_outcome() -> None:
    """While it waits, while it runs, while it is parked, when it is done, and after a restart."""
    world = World()
    world.produce("one", "good")
    for _ in range(2):
        world.produce("one", "good")
        world.deliver()
    world.advance(5.0)
    world.settle()
    world.produce("one", "good")
    world.deliver()
    assert models_asked(world) == ["one"]
    world.grant()
    world.produce("one", "good")
    world.deliver()
    world.answer()
    world.settle()
    world.start()
    world.produce("one", "good")
    world.deliver()
    world.settle()
    assert [outcome.what for outcome in world.outcomes] == ["result"]
    assert world.runs["one"] == 1


def test_requests_with_one_idempotency_key_share_one_run() -> None:
    """Those that come meanwhile, and those that come afterwards, also after a restart; another model's do not."""
    world = World()
    for name in ("a", "b"):
        world.produce(name, "good", "key")
    world.produce("c", "other", "key")
    world.deliver()
    assert models_asked(world) == ["a", "c"]
    world.grant()
    world.answer()
    world.settle()
    world.settle()
    world.produce("d", "good", "key")
    world.deliver()
    world.settle()
    world.start()
    world.produce("e", "good", "key")
    world.deliver()
    world.settle()
    answers = {o.id: o.answer.body for o in world.outcomes if o.answer is not None}
    assert answers == {name: {"ok": "a"} for name in "abde"}
    assert world.runs == {"a": 1}


def test_who_follows_a_dead_request_dies_with_it_and_the_next_one_is_run() -> None:
    """A dead letter is no answer to keep."""
    world = World()
    for name in ("a", "b"):
        world.produce(name, "good", "key", lasts=3 if name == "a" else 1e9)
    world.deliver()
    world.advance(3.0)
    world.settle()
    world.settle()
    assert told(world) == {"a": "deadline_exceeded", "b": "deadline_exceeded"}
    world.produce("c", "good", "key")
    world.deliver()
    assert models_asked(world) == ["c"]


def test_who_follows_a_parked_request_waits_for_it() -> None:
    """It is on its way in another partition of another topic, and comes back."""
    world = World()
    world.produce("a", "good", "key")
    world.deliver()
    world.advance(5.0)
    world.settle()
    world.deliver()
    world.produce("b", "good", "key")
    world.deliver()
    assert models_asked(world) == ["a"]
    world.do(world.clerk.revoke([(PARKED, 0)], world.now))
    assert models_asked(world) == []  # its key is known to be under way, parked


def test_callers_take_turns_and_of_one_caller_the_highest_priority_goes_first() -> None:
    """With one ticket at a time."""
    world = World(InferencePolicy(tickets=1))
    for name, priority in (("low", 0), ("high", 5), ("low2", 0)):
        world.produce(name, "good", priority=priority)
    world.deliver(1)
    order = []
    world.deliver()
    while world.tickets:
        order += models_asked(world)
        world.grant()
        world.answer()
    assert order == ["low", "high", "low2"]


def test_the_table_knows_every_state() -> None:
    """What is not in it is refused; every state but the last goes on, and all end."""
    errand = Errand(1, _arrival(), Instant(1.0))
    for state in State:
        follows = {happening for (at, happening) in TABLE if at is state}
        assert (Happening.END in follows) == (state is not State.SETTLING)
        for happening in set(Happening) - follows:
            errand.state = state
            with pytest.raises(AssertionError, match="cannot happen"):
                errand.go(happening)


def _arrival() -> Arrival:
    world = World()
    world.produce("one", "good")
    return world.topics[REQUESTS, 0][0]


def test_a_lane_finishes_in_any_order() -> None:
    """Low is the first unfinished offset, gaps or not; what was done before a restart is not read again."""
    lane = Lane(("t", 0), 10, (12,))
    assert [offset for offset in (9, 10, 11, 12, 15) if lane.read(offset, 3)] == [10, 11, 15]
    assert (lane.low, lane.span, lane.bytes, len(lane)) == (10, 6, 9, 3)
    lane.finish(11)
    assert lane.mark() == (10, (11, 12))
    lane.finish(10)
    assert lane.mark() == (15, ())
    lane.finish(15)
    assert lane.mark() == (16, ())


def test_the_record_forgets_by_age_number_and_bytes() -> None:
    """Whichever comes first."""
    policy = InferencePolicy(record_ids=3, record_age=Seconds(10.0))
    outcomes = Outcomes(policy)
    for number in range(5):
        outcomes.settled(("s", str(number)), Instant(100.0 + number))
    assert [outcomes.is_settled(("s", str(n)), Instant(104.0)) for n in range(5)] == [False, False, True, True, True]
    assert not outcomes.is_settled(("s", "2"), Instant(113.0))
    assert outcomes.is_settled(("s", "4"), Instant(113.0))


@pytest.mark.parametrize(
    ("items", "seconds", "deadline", "wanted"),
    [
        (0, 1.0, None, 0.0),
        (40, None, None, 40.0),  # nothing is known: like requests that are held
        (3000, 1.0, None, 10.0),  # done in five minutes
        (3000, 1.0, 200.0, 30.0),  # in half the time that is left
        (5, 1.0, 90_000.0, 1.0),  # one at least
        (7, 30.0, 20.0, 7.0),  # too late for all: as many as there are
    ],
)
def test_a_backlog_asks_for_what_its_deadline_needs(
    items: int, seconds: float | None, deadline: float | None, wanted: float
) -> None:
    """Items times seconds of each, over the seconds left."""
    ends = None if deadline is None else Instant(1000.0 + deadline)
    runs = None if seconds is None else Seconds(seconds)
    backlog = Backlog("m", items, Instant(900.0), ends, runs)
    assert concurrency(backlog, InferencePolicy(), Instant(1000.0)) == pytest.approx(wanted)


@pytest.mark.parametrize("key", [None, "key"])
def test_a_parked_request_may_come_back_before_its_parking_is_told(key: str | None) -> None:
    """The log is quicker than the news of its commit: it is itself again, not a repetition of itself."""
    world = World()
    world.produce("one", "good", key)
    world.deliver()
    world.advance(5.0)
    world.settle(late=5)
    assert models_asked(world) == ["one"]
    world.grant()
    world.answer()
    world.settle()
    assert told(world) == {"one": "result"}


def test_who_follows_a_request_whose_partition_goes_leads() -> None:
    """It does not wait for an answer that somebody else gets."""
    world = World(partitions=2)
    world.produce("a", "good", "key")
    world.deliver()
    (leader,) = world.clerk._errands.values()
    other = (REQUESTS, 1 - leader.arrival.place[1])
    world.do(
        world.clerk.arrive(replace(leader.arrival, place=other, origin=Origin(id="b", source="//shop")), world.now)
    )
    assert models_asked(world) == ["a"]
    world.do(world.clerk.revoke([leader.arrival.place], world.now))
    assert models_asked(world) == ["b"]


def test_what_is_no_request_takes_its_amends_with_it() -> None:
    """Also when its partition goes and comes back while it is being settled: the old one is nobody's, the new one
    has them too."""
    world = World()
    place, amends = (REQUESTS, 0), ("a letter",)
    (first,) = world.clerk.pass_over(place, 0, amends, world.now)  # type: ignore[arg-type]  # any value
    world.clerk.revoke([place], world.now)
    world.clerk.assign(place, 0, ())
    (second,) = world.clerk.pass_over(place, 0, amends, world.now)  # type: ignore[arg-type]  # as above
    assert isinstance(second, Settle)
    assert isinstance(first, Settle)
    assert second.settlement.amends == amends
    assert world.clerk.pass_over(place, 0, amends, world.now) == []  # type: ignore[arg-type]  # as above
    ours, marks = world.clerk.finish([second.settlement])
    assert (ours, marks) == ([second.settlement], {place: (1, ())})
    assert world.clerk.finish([first.settlement]) == ([], {})
