"""Learned start times and drain rates."""

from __future__ import annotations

import pytest

from coldstart.core.budget import ENGINE_PHASES
from coldstart.core.estimate import OVERRUN, STARTS_KEPT, DrainRate, StartEstimate, quantile
from coldstart.core.whereabouts import ToFetch
from events.types.replicas import Phase, PhaseSpan, ReplicasObserved, ReplicaState, StartWeights
from events.units import Instant, Seconds
from tests.support.slots import START, observed, replica, spans


def learned(*starts: tuple[float, float, float]) -> StartEstimate:
    """An estimate that has seen starts with these seconds of spawn, load and warm-up."""
    estimate = StartEstimate()
    for life, seconds in enumerate(starts, 1):
        estimate.fold(observed(replica(life=life, phases=spans(*seconds))))
    return estimate


def running(phase: Phase, since: float) -> tuple[PhaseSpan, ...]:
    return (PhaseSpan(phase=phase, started_at=START - since),)


def test_nothing_is_known_before_the_first_start() -> None:
    """Unknown is None, also while a start is on its way."""
    estimate = StartEstimate()
    estimate.fold(observed(replica(state=ReplicaState.STARTING, phases=spans(1.0))))
    assert not estimate.known
    assert estimate.eta(START) is None
    assert estimate.eta_at_most(START, running(Phase.LOAD, 1.0)) is None


def test_a_start_is_learned_once_however_often_it_is_observed() -> None:
    """Observations repeat the whole state; only new lives teach."""
    estimate = learned((1.0, 4.0, 1.0))
    for _ in range(20):
        estimate.fold(observed(replica(life=1, phases=spans(1.0, 4.0, 1.0))))
    estimate.fold(observed(replica(life=2, phases=spans(1.0, 8.0, 1.0))))
    estimate.fold(observed(replica(life=3, phases=spans(1.0, 8.0, 1.0))))
    assert estimate.eta(START) == 10.0


def test_a_failed_start_teaches_nothing() -> None:
    """How long it took to fail says nothing about how long it takes to succeed."""
    estimate = StartEstimate()
    estimate.fold(observed(replica(state=ReplicaState.FAILED, phases=spans(1.0, 2.0)), failures=1))
    assert not estimate.known


def test_one_slow_start_does_not_move_the_estimate_but_the_cautious_one() -> None:
    """The median for decisions, the ninth of ten for what clients are told."""
    estimate = learned(*[(1.0, 4.0, 1.0)] * 8, (1.0, 60.0, 1.0), (1.0, 60.0, 1.0))
    assert estimate.eta(START) == 6.0
    assert estimate.eta_at_most(START) == 62.0


@pytest.mark.parametrize("phase", list(Phase))
def test_every_phase_may_be_asked_for(phase: Phase) -> None:
    """Also one that no start has: it adds nothing."""
    estimate = learned((1.0, 4.0, 2.0))
    with_it = estimate.typical((Phase.LOAD, phase))
    assert with_it == 4.0 + {Phase.SPAWN: 1.0, Phase.LOAD: 4.0, Phase.WARMUP: 2.0}.get(phase, 0.0)


def test_what_an_engine_does_of_a_start_is_told() -> None:
    """Among the phases of an engine is `wake`, which a start does not go through."""
    assert learned((1.0, 4.0, 2.0)).typical(ENGINE_PHASES) == 7.0


def test_old_starts_are_forgotten() -> None:
    """After a change that makes starts slow, the estimate follows within half of what it keeps, and a bit."""
    slow = [(1.0, 10.0, 1.0)] * (STARTS_KEPT // 2 + 1)
    assert learned(*[(1.0, 4.0, 1.0)] * STARTS_KEPT, *slow).eta(START) == 12.0


@pytest.mark.parametrize(
    ("so_far", "expected"),
    [
        ((), 6.0),
        (running(Phase.SPAWN, 0.5), 5.5),
        (running(Phase.LOAD, 1.0), 4.0),
        (spans(1.0, 4.0, at=START - 5), 1.0),
        (running(Phase.WARMUP, 0.25), 0.75),
        (running(Phase.LOAD, 8.0), 8.0 * OVERRUN + 1.0),
        (spans(1.0, 4.0, 1.0, at=START - 6), 0.0),
    ],
    ids=["whole", "in-spawn", "in-load", "between", "in-warmup", "overrun", "over"],
)
def test_what_is_left_depends_on_how_far_the_start_is(so_far: tuple[PhaseSpan, ...], expected: float) -> None:
    """Phases that are over cost nothing more; the one that goes on what is left of it."""
    assert learned((1.0, 4.0, 1.0)).eta(START, so_far) == pytest.approx(expected)


def test_what_is_left_of_a_long_phase_comes_from_the_starts_that_were_longer() -> None:
    """After 5 s of loading the quick starts say nothing any more."""
    estimate = learned((0.0, 4.0, 0.0), (0.0, 4.0, 0.0), (0.0, 20.0, 0.0))
    assert estimate.eta(START, running(Phase.LOAD, 5.0)) == 15.0


def test_the_same_observations_give_the_same_answer() -> None:
    """Nothing depends on the order of replicas within an observation."""
    one, other = StartEstimate(), StartEstimate()
    starts = [replica(index, life=index + 1, phases=spans(1.0, float(index), 1.0)) for index in range(5)]
    one.fold(observed(*starts))
    other.fold(observed(*reversed(starts)))
    assert one.eta(START) == other.eta(START) == 4.0
    assert isinstance(observed(*starts), ReplicasObserved)


@pytest.mark.parametrize(("rank", "expected"), [(0.0, 1.0), (0.5, 2.0), (0.75, 3.0), (0.9, 4.0), (1.0, 4.0)])
def test_quantile_is_the_nearest_rank(rank: float, expected: float) -> None:
    """No value is made up between two samples."""
    assert quantile([4.0, 1.0, 3.0, 2.0], rank) == expected


def test_the_drain_rate_finds_a_steady_rate() -> None:
    """Two a second for a minute is two a second."""
    rate = DrainRate()
    assert rate.rate(START) is None
    for index in range(120):
        rate.add(Instant(START + index / 2))
    assert rate.rate(Instant(START + 59.5)) == pytest.approx(2.0, rel=0.1)


def test_the_drain_rate_of_a_burst_is_not_infinite() -> None:
    """Many at one instant are counted as at most so many a second."""
    rate = DrainRate()
    for _ in range(50):
        rate.add(START)
    assert rate.rate(START) == pytest.approx(50.0)


def test_the_drain_rate_is_forgotten() -> None:
    """After a long silence nobody can say how fast the queue drains."""
    rate = DrainRate()
    rate.add(START)
    assert rate.rate(Instant(START + 120)) is None


def on_its_way(done: int, at: float, rate: float | None = 100.0) -> StartWeights:
    """1,000 bytes of weights of which so many are here."""
    return StartWeights(bytes=1000, tier="remote", done=done, rate=rate, at=at)


FETCHING = (PhaseSpan(phase=Phase.FETCH, started_at=START),)


def test_a_fetch_is_as_long_as_its_bytes() -> None:
    """While weights come, what is left of them at their rate counts, and the engine's part on top of it."""
    estimate = learned((1.0, 4.0, 1.0))
    assert estimate.eta(START, FETCHING, on_its_way(400, START)) == 6.0 + 6.0
    assert estimate.eta(Instant(START + 2.0), FETCHING, on_its_way(400, START)) == 4.0 + 6.0
    assert estimate.eta(Instant(START + 60.0), FETCHING, on_its_way(400, START)) == 6.0
    assert estimate.quickest() == {
        Phase.PLACE: 0.0, Phase.FETCH: 0.0, Phase.SPAWN: 1.0, Phase.LOAD: 4.0, Phase.WARMUP: 1.0,
    }  # fmt: skip
    assert estimate.typical((Phase.SPAWN, Phase.LOAD)) == 5.0


def test_a_first_fetch_tells_at_least_its_own_rest() -> None:
    """Of a model that never started only the fetch is known: the start takes so long at least."""
    estimate = StartEstimate()
    assert estimate.eta(START, FETCHING, on_its_way(400, START)) == 6.0
    assert estimate.eta(START, (), on_its_way(1000, START)) is None
    assert estimate.quickest() is None
    assert estimate.typical((Phase.LOAD,)) is None


def woke(wake: float, warmup: float) -> tuple[PhaseSpan, ...]:
    """The spans of a wake that ended at START."""
    at = START - wake - warmup
    return (
        PhaseSpan(phase=Phase.WAKE, started_at=at, ended_at=at + wake),
        PhaseSpan(phase=Phase.WARMUP, started_at=at + wake, ended_at=START),
    )


def test_wakes_are_learned_by_themselves() -> None:
    """A start by waking says nothing of a cold one, and is estimated from other wakes."""
    estimate = learned((1.0, 6.0, 1.0))
    estimate.fold(observed(replica(life=2, phases=woke(0.5, 0.1))))
    assert estimate.eta(START) == pytest.approx(8.0)
    assert estimate.wake() == pytest.approx(0.6)
    going = running(Phase.WAKE, 0.2)
    assert estimate.eta(START, going) == pytest.approx(0.4)
    assert estimate.quickest(going) == {Phase.WAKE: pytest.approx(0.5), Phase.WARMUP: pytest.approx(0.1)}


def test_a_first_wake_is_unknown() -> None:
    """Before one was seen nobody can say how long it takes."""
    estimate = learned((1.0, 6.0, 1.0))
    assert estimate.wake() is None
    assert estimate.eta(START, running(Phase.WAKE, 0.0)) is None


def beside(fetch: float, spawn: float, load: float) -> tuple[PhaseSpan, ...]:
    """A start that ended at START, whose engine was spawned while it fetched."""
    at = START - load - fetch
    return (
        PhaseSpan(phase=Phase.FETCH, started_at=at, ended_at=at + fetch),
        PhaseSpan(phase=Phase.SPAWN, started_at=at, ended_at=at + spawn),
        PhaseSpan(phase=Phase.LOAD, started_at=at + fetch, ended_at=START),
    )


def test_a_spawn_beside_the_fetch_is_not_waited_for() -> None:
    """Of fetch and spawn the longer counts; where nothing has to be fetched the spawn counts in full."""
    estimate = StartEstimate()
    estimate.fold(observed(replica(phases=beside(10.0, 2.0, 3.0))))
    assert estimate.whole(ToFetch(Seconds(6.0))) == 6.0 + 3.0
    assert estimate.whole(ToFetch(Seconds(1.0))) == 2.0 + 3.0
    assert estimate.whole(ToFetch(Seconds(0.0))) == 2.0 + 3.0
    assert estimate.hidden(10.0) == 2.0
    assert estimate.eta(START) == 10.0 + 3.0
    going_on = (*FETCHING, PhaseSpan(phase=Phase.SPAWN, started_at=START))
    assert estimate.eta(START, going_on, on_its_way(400, START)) == 6.0 + 3.0
    waits = (*FETCHING, PhaseSpan(phase=Phase.SPAWN, started_at=START, ended_at=START + 2.0))
    assert estimate.eta(Instant(START + 5.0), waits, on_its_way(400, START)) == 1.0 + 3.0


def test_whether_it_was_beside_is_learned_anew() -> None:
    """With another engine the spawn follows the fetch, and both count."""
    estimate = StartEstimate()
    estimate.fold(observed(replica(phases=beside(10.0, 2.0, 3.0))))
    at = START + 100.0
    spans_ = (
        PhaseSpan(phase=Phase.FETCH, started_at=at, ended_at=at + 10.0),
        PhaseSpan(phase=Phase.SPAWN, started_at=at + 10.0, ended_at=at + 12.0),
    )
    estimate.fold(observed(replica(life=2, phases=spans_)))
    assert estimate.hidden(10.0) == 0.0


def test_what_is_read_ahead_is_learned_beside_spawn_and_load() -> None:
    """Its quickest is known where it was needed, and it makes no start longer."""
    estimate = learned((1.0, 4.0, 1.0))
    read = PhaseSpan(phase=Phase.READ, started_at=START, ended_at=START + 3.0)
    assert (estimate.quickest() or {}).get(Phase.READ) is None
    estimate.fold(observed(replica(life=2, phases=(read, *spans(1.0, 4.0, 1.0)))))
    assert (estimate.quickest() or {})[Phase.READ] == 3.0
    assert estimate.eta(START) == estimate.whole(ToFetch(Seconds(0.0))) == 6.0
