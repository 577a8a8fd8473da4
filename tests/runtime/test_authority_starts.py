"""The slot authority while a model starts, or does not: admission by ETA, failed starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from events.types.caches import CacheObserved, ModelWarmth
from events.types.replicas import FAILED_STARTS, Phase, PhaseSpan, ReplicaState, ReplicaStatus, StandIns
from events.units import Instant
from runtime.core.authority import Authority
from runtime.core.commands import Command, Expect, SendWindow
from runtime.ports import RefusalCode
from tests.support.slots import MODEL, START, authority, granted, observed, refusals, replica, spans, ticket

WHY = {"reason": "ExitedWhileStarting", "message": "the engine exited with 1: no such file"}


def at(seconds: float) -> Instant:
    return Instant(START + seconds)


def experienced() -> Authority:
    """An authority that has seen MODEL start in 10 s, and go back to zero."""
    desk = authority()
    desk.observe(observed(replica(phases=spans(1.0, 8.0, 1.0))), START)
    desk.observe(observed(), START)
    return desk


def starting(since: float) -> ReplicaStatus:
    """A replica that has been loading for `since` seconds at START."""
    span = PhaseSpan(phase=Phase.LOAD, started_at=START - since)
    return replica(state=ReplicaState.STARTING, life=2, phases=(*spans(1.0, at=START - since - 1), span))


def test_nobody_is_refused_on_a_guess() -> None:
    """Before a start of the model was seen, also an impatient request may wait."""
    assert refusals(authority().take(ticket("r1", wait=0.1), START)) == {}


@pytest.mark.parametrize(
    ("replicas", "wait", "code"),
    [
        ((), 10.5, None),
        ((), 9.5, RefusalCode.IMPOSSIBLE),
        ((starting(4.0),), 5.5, None),
        ((starting(4.0),), 4.5, RefusalCode.IMPOSSIBLE),
    ],
    ids=["whole-start-in-time", "whole-start-too-slow", "half-way-in-time", "half-way-too-slow"],
)
def test_a_request_that_cannot_be_served_in_time_is_told_at_once(
    replicas: tuple[ReplicaStatus, ...], wait: float, code: RefusalCode | None
) -> None:
    """503 with a time to come back, when the measured start takes longer than it may wait; its arrival still counts."""
    desk = experienced()
    desk.observe(observed(*replicas), START)
    out = desk.take(ticket("r1", wait=wait), START)
    refusal = refusals(out).get("r1")
    assert (refusal and refusal.code) == code
    assert refusal is None or refusal.retry_after == (5.0 if replicas else 10.0)
    (window,) = [command.window for command in out if isinstance(command, SendWindow)]
    assert (window.edge, window.arrivals, window.refusals) == (True, 1, int(code is not None))


@pytest.mark.parametrize(
    ("tier", "missing", "wait", "code"),
    [
        ("disk", 0, 9.0, None),
        ("remote", 400, 9.0, RefusalCode.IMPOSSIBLE),
        ("remote", 50, 9.0, None),
        ("remote", None, 9.0, RefusalCode.IMPOSSIBLE),
    ],
    ids=["here-now", "remote-too-slow", "remote-in-time", "remote-as-before"],
)
def test_where_the_weights_are_decides_who_may_wait(
    tier: str, missing: int | None, wait: float, code: RefusalCode | None
) -> None:
    """A start that fetched for 30 s says nothing of one that finds its weights; nor the other way round."""
    desk = authority()
    fetch = PhaseSpan(phase=Phase.FETCH, started_at=START - 30, ended_at=START)
    desk.observe(observed(replica(phases=(fetch, *spans(1.0, 1.0, 1.0)))), START)
    desk.observe(observed(), START)
    warmth = ModelWarmth(model=MODEL, tier=tier, missing=missing, revision=1)
    desk.hear(CacheObserved(node="n1", used_bytes=0, capacity_bytes=1, models=(warmth,), network=10.0), START)
    refusal = refusals(desk.take(ticket("r1", wait=wait), START)).get("r1")
    assert (refusal and refusal.code) == code
    if missing:
        assert refusal is None or refusal.retry_after == 43.0


def test_a_model_that_never_started_tells_the_least_of_its_fetch() -> None:
    """Enough to refuse at once who cannot wait for the bytes alone; who can may wait."""
    desk = authority()
    warmth = ModelWarmth(model=MODEL, tier="remote", missing=400, revision=1)
    desk.hear(CacheObserved(node="n1", used_bytes=0, capacity_bytes=1, models=(warmth,), network=10.0), START)
    assert refusals(desk.take(ticket("r1", wait=39.0), START))["r1"].code is RefusalCode.IMPOSSIBLE
    assert refusals(desk.take(ticket("r2", wait=41.0), START)) == {}


def test_a_warm_model_refuses_nobody_by_the_start_time() -> None:
    """Whoever waits for a slot of a running replica waits for no start."""
    desk = experienced()
    desk.observe(observed(replica(slots=1, life=3)), START)
    desk.take(ticket("r1"), START)
    assert refusals(desk.take(ticket("r2", wait=0.5), START)) == {}


def test_held_requests_fail_at_the_third_failed_start() -> None:
    """With the reason and the message of the adapter, and when to come back; before that they wait on."""
    desk = authority()
    desk.take(ticket("r1"), START)
    for failures in (1, 2):
        assert refusals(desk.observe(observed(failures=failures, retry_at=at(1), **WHY), START)) == {}
    refusal = refusals(desk.observe(observed(failures=FAILED_STARTS, retry_at=at(40), **WHY), START))["r1"]
    assert refusal.code is RefusalCode.START_FAILED
    assert "3 times in a row: ExitedWhileStarting: the engine exited with 1: no such file" in refusal.message
    assert refusal.retry_after == 40.0


def test_a_held_request_fails_as_soon_as_no_retry_can_help_it() -> None:
    """After one failure: the back-off and a start of 10 s end after the deadline of one, not of the other."""
    desk = experienced()
    desk.take(ticket("short", wait=30.0), START)
    desk.take(ticket("long", wait=31.5), START)
    gone = refusals(desk.observe(observed(failures=1, retry_at=at(21), **WHY), at(5)))
    assert list(gone) == ["short"]
    assert gone["short"].code is RefusalCode.START_FAILED
    assert "failed to start once" in gone["short"].message
    assert granted(desk.observe(observed(replica(life=4)), at(25))) == ["long"]


def test_a_retry_after_the_deadline_is_no_hope() -> None:
    """Though no start of the model was ever seen, a request that comes while it backs off longer than it may wait is
    told why at once."""
    desk = authority()
    desk.observe(observed(failures=1, retry_at=at(2), **WHY), START)
    assert refusals(desk.take(ticket("long", wait=3.0), START)) == {}
    refusal = refusals(desk.take(ticket("short", wait=1.5), START))["short"]
    assert refusal.code is RefusalCode.START_FAILED
    assert "failed to start once: ExitedWhileStarting" in refusal.message


def test_who_waits_is_told_when_no_node_came() -> None:
    """A call for nodes that was taken back: who could not wait for the next one is told so, those that wait and those
    that come; who can waits on, and a replica that starts all the same changes that."""
    desk = authority()
    desk.take(ticket("short", wait=30.0), START)
    desk.take(ticket("long", wait=50.0), START)
    paused = replace(observed(), stand_ins=StandIns(paused_until=at(40), message="no node came within 15m"))
    refusal = refusals(desk.observe(paused, START))
    assert list(refusal) == ["short"]
    assert (refusal["short"].code, refusal["short"].retry_after) == (RefusalCode.IMPOSSIBLE, 40.0)
    assert "there is no room" in refusal["short"].message
    assert "no node came within 15m" in refusal["short"].message
    assert list(refusals(desk.take(ticket("later", at(1), wait=20.0), at(1)))) == ["later"]
    assert refusals(desk.observe(replace(paused, replicas=(starting(0.0),)), at(2))) == {}
    assert refusals(desk.take(ticket("last", at(3), wait=20.0), at(3))) == {}
    assert refusals(desk.observe(replace(paused, uid="another"), at(4))) == {}


def test_a_model_that_keeps_failing_refuses_at_once_until_the_retry() -> None:
    """While the back-off lasts nobody needs to wait; when it is over, whoever comes waits for that start."""
    desk = authority()
    desk.observe(observed(failures=3, retry_at=at(40), **WHY), START)
    refusal = refusals(desk.take(ticket("r1", at(10)), at(10)))["r1"]
    assert (refusal.code, refusal.retry_after) == (RefusalCode.START_FAILED, 30.0)
    assert refusals(desk.take(ticket("r2", at(41)), at(41))) == {}
    assert refusals(desk.observe(observed(starting(0.0), failures=3, retry_at=at(40), **WHY), at(42))) == {}
    assert list(refusals(desk.observe(observed(failures=4, retry_at=at(120), **WHY), at(43)))) == ["r2"]


def test_failures_of_more_replicas_do_not_fail_who_can_be_served() -> None:
    """One replica is ready; that a second one cannot start is nobody's end."""
    desk = authority()
    desk.observe(observed(replica(slots=1)), START)
    for request in ("r1", "r2"):
        desk.take(ticket(request), START)
    assert refusals(desk.observe(observed(replica(slots=1), failures=5, retry_at=at(60), **WHY), START)) == {}
    assert refusals(desk.take(ticket("r3"), START)) == {}


def test_failures_of_another_uid_are_not_ours() -> None:
    """What an earlier declaration of the name could not do says nothing about this one."""
    desk = authority()
    desk.observe(observed(uid="u0", failures=5, retry_at=at(60), **WHY), START)
    assert refusals(desk.take(ticket("r1"), START)) == {}


def test_progress_tells_phase_place_and_eta() -> None:
    """For heartbeats: how far the replica is, how many are before, how long it still takes."""
    desk = experienced()
    for request in ("r1", "r2"):
        desk.take(ticket(request), START)
    nothing_yet = desk.progress("r2", START)
    assert nothing_yet is not None
    assert (nothing_yet.phase, nothing_yet.ahead, nothing_yet.eta) == ("hold", 1, 10.0)
    desk.observe(observed(starting(4.0)), START)
    loading = desk.progress("r1", at(1))
    assert loading is not None
    assert (loading.phase, loading.ahead, loading.eta) == ("load", 0, 4.0)
    assert desk.progress("nobody", START) is None


def test_a_start_that_is_unknown_has_no_eta() -> None:
    """None, not zero."""
    desk = authority()
    desk.take(ticket("r1"), START)
    progress = desk.progress("r1", START)
    assert progress is not None
    assert progress.eta is None


def listening(index: int = 0, *, slots: int = 4, revision: int = 1) -> ReplicaStatus:
    """A replica that loads and has told where it will answer."""
    status = replica(index, state=ReplicaState.STARTING, slots=slots, revision=revision)
    return replace(status, address=f"127.0.0.1:{9000 + index}")


def expected(commands: list[Command]) -> list[tuple[int, int]]:
    """Port and requests of each replica that is expected."""
    return [(one.port, one.requests) for one in commands if isinstance(one, Expect)]


@pytest.mark.parametrize(
    ("waiting", "replicas", "found"),
    [
        (0, (listening(),), []),
        (2, (listening(),), [(9000, 2)]),
        (9, (listening(),), [(9000, 3)]),
        (5, (listening(0), listening(1)), [(9000, 3), (9001, 2)]),
        (2, (listening(0), listening(1)), [(9000, 2)]),
        (2, (listening(slots=1),), []),
        (2, (replica(state=ReplicaState.STARTING),), []),
        (2, (listening(revision=7),), []),
    ],
    ids=["nobody-waits", "few", "one-slot-is-the-probe's", "two", "one-is-enough", "single", "no-address", "old"],
)
def test_whoever_waits_is_announced_to_replicas_that_listen(
    waiting: int, replicas: tuple[ReplicaStatus, ...], found: list[tuple[int, int]]
) -> None:
    """So that connections can be open when they are ready: never more than wait, nor than a replica bears."""
    desk = authority()
    for index in range(waiting):
        desk.take(ticket(f"r{index}"), START)
    assert expected(desk.observe(observed(*replicas), START)) == found


def test_a_model_sleeps_while_somebody_waits_and_no_replica_exists() -> None:
    """That is when a start is urgent; a starting replica ends it, as does the last who leaves."""
    desk = authority()
    assert not desk.asleep(MODEL)
    desk.take(ticket("r1"), START)
    assert desk.asleep(MODEL)
    assert not desk.asleep("another")
    desk.observe(observed(replica(state=ReplicaState.STARTING)), START)
    assert not desk.asleep(MODEL)
    desk.observe(observed(), START)
    desk.leave("r1", START)
    assert not desk.asleep(MODEL)
