"""The cold-start budget: what it takes at least, what each phase took, and the verdict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstart.core.budget import Bandwidths, Judged, Tier, Verdict, judge, least, least_for_bytes, parts_of
from events.types.replicas import Phase, PhaseSpan
from events.units import Bytes, Instant, Seconds

P = Phase
GB = Bytes(1000**3)
SPEEDS = Bandwidths(network=100e6, disk=1e9, digest=500e6)
QUICKEST = {P.SPAWN: Seconds(0.5), P.LOAD: Seconds(1.0), P.WARMUP: Seconds(0.1)}

BYTES = [
    ("in memory", GB, Tier.MEMORY, SPEEDS, 0.0),
    ("in an engine that sleeps", GB, Tier.SLEEP, Bandwidths(), 0.0),
    ("nothing to bring", Bytes(0), Tier.REMOTE, Bandwidths(), 0.0),
    ("on the disk", GB, Tier.DISK, SPEEDS, 1.0),
    ("far away, the network is slowest", GB, Tier.REMOTE, SPEEDS, 10.0),
    ("far away, the digest is slowest", GB, Tier.REMOTE, Bandwidths(network=2e9, digest=500e6), 2.0),
    ("far away, no digest measured", GB, Tier.REMOTE, Bandwidths(network=2e9), 0.5),
    ("far away, no network measured", GB, Tier.REMOTE, Bandwidths(disk=1e9, digest=5e8), None),
    ("on the disk, never read", GB, Tier.DISK, Bandwidths(network=1e9), None),
]


@pytest.mark.parametrize(("size", "tier", "speeds", "seconds"), [row[1:] for row in BYTES], ids=[r[0] for r in BYTES])
def test_what_bytes_take_at_least(size: Bytes, tier: Tier, speeds: Bandwidths, seconds: float | None) -> None:
    """The slowest of what they must pass; what was not measured is unknown, not zero."""
    assert least_for_bytes(size, tier, speeds) == seconds


WHOLE = [
    ("bytes hide behind the engine", 0.8, 0.5 + 1.0 + 0.1 + 0.2),
    ("the engine hides behind the bytes", 4.0, 4.0 + 0.1 + 0.2),
    ("bytes unknown", None, None),
]


@pytest.mark.parametrize(("for_bytes", "seconds"), [row[1:] for row in WHOLE], ids=[row[0] for row in WHOLE])
def test_a_whole_start_at_least(for_bytes: float | None, seconds: float | None) -> None:
    """Of bytes and engine the larger counts, since they overlap; warm-up and answer come on top."""
    told = least(for_bytes, QUICKEST, Seconds(0.2))
    assert told == (seconds if seconds is None else pytest.approx(seconds))


def test_a_wake_at_least() -> None:
    """The wake stands in the place of spawn and load."""
    told = least(0.0, {P.WAKE: Seconds(0.4), P.WARMUP: Seconds(0.1)}, Seconds(0.2))
    assert told == pytest.approx(0.7)


def test_without_a_start_nothing_is_known() -> None:
    """Before a start was seen, nobody can say what the engine needs."""
    assert least(0.0, None, Seconds(0.0)) is None


SPANS = (
    PhaseSpan(phase=P.FETCH, started_at=11.0, ended_at=14.0), PhaseSpan(phase=P.SPAWN, started_at=14.0, ended_at=15.0),
    PhaseSpan(phase=P.LOAD, started_at=15.0, ended_at=17.0), PhaseSpan(phase=P.WARMUP, started_at=17.0, ended_at=17.5),
)  # fmt: skip

CUTS = [
    ("from before", 10.0, {"hold": 1.0, "fetch": 3.0, "spawn": 1.0, "load": 2.0, "warmup": 0.5, "answer": 0.5}),
    ("in the middle of the fetch", 12.0, {"fetch": 2.0, "spawn": 1.0, "load": 2.0, "warmup": 0.5, "answer": 0.5}),
    ("in the middle of the load", 16.0, {"load": 1.0, "warmup": 0.5, "answer": 0.5}),
    ("when it was ready", 17.5, {"answer": 0.5}),
]
BESIDE = (
    SPANS[0], PhaseSpan(phase=P.SPAWN, started_at=11.5, ended_at=12.5),
    PhaseSpan(phase=P.SPAWN, started_at=14.0, ended_at=15.0), *SPANS[2:],
)  # fmt: skip


@pytest.mark.parametrize(("arrived", "parts"), [row[1:] for row in CUTS], ids=[row[0] for row in CUTS])
def test_what_one_request_waited_for(arrived: float, parts: dict[str, float]) -> None:
    """A request's wait is cut along the start's phases; what was over when it came is none of its wait."""
    assert parts_of(SPANS, Instant(arrived), Instant(17.5), Instant(18.0)) == parts


@pytest.mark.parametrize(("arrived", "parts"), [row[1:] for row in CUTS], ids=[row[0] for row in CUTS])
def test_a_spawn_beside_the_fetch_costs_nothing(arrived: float, parts: dict[str, float]) -> None:
    """What went on beside the fetch nobody waited for."""
    assert parts_of(BESIDE, Instant(arrived), Instant(17.5), Instant(18.0)) == parts


def test_what_is_read_ahead_is_waited_for_first() -> None:
    """Beside spawn and load the disk's time counts: what is left of these is told as theirs."""
    read = PhaseSpan(phase=P.READ, started_at=14.0, ended_at=16.0)
    parts = parts_of((SPANS[0], read, *SPANS[1:]), Instant(10.0), Instant(17.5), Instant(18.0))
    assert parts == {"hold": 1.0, "fetch": 3.0, "read": 2.0, "load": 1.0, "warmup": 0.5, "answer": 0.5}


@given(st.floats(0, 30), st.floats(0, 5), st.floats(0, 5), st.sampled_from([SPANS, BESIDE]))
def test_parts_add_up(arrived: float, until_ready: float, until_byte: float, spans: tuple[PhaseSpan, ...]) -> None:
    """Whenever it arrives, the parts add up to its wait."""
    ready = Instant(max(17.5, arrived) + until_ready)
    byte = Instant(ready + until_byte)
    spans = (*spans[:-1], PhaseSpan(phase=P.WARMUP, started_at=17.0, ended_at=ready))
    parts = parts_of(spans, Instant(arrived), ready, byte)
    assert sum(parts.values()) == pytest.approx(byte - arrived, abs=1e-6)


VERDICTS = [
    ("kept", {"load": 1.0}, 0.5, Judged(Verdict.MET, Seconds(0.5))),
    ("kept although the floor says no", {"load": 1.0}, 9.0, Judged(Verdict.MET, Seconds(9.0))),
    ("missed by what it lost", {"fetch": 2.0, "spawn": 2.2, "load": 1.0}, 2.0,
     Judged(Verdict.MISSED, Seconds(2.0), "fetch")),
    ("missed, and the floor is unknown", {"load": 5.0}, None, Judged(Verdict.MISSED, None, "load")),
    ("impossible", {"fetch": 8.0, "load": 1.0}, 8.5, Judged(Verdict.IMPOSSIBLE, Seconds(8.5), "fetch")),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "floor", "judged"), [row[1:] for row in VERDICTS], ids=[row[0] for row in VERDICTS])
def test_verdicts(parts: dict[str, Seconds], floor: Seconds | None, judged: Judged) -> None:
    """Met, missed by the phase that took most beyond its quickest, or impossible because of the longest."""
    assert judge(Seconds(3.0), floor, parts, {P.SPAWN: Seconds(2.0), P.LOAD: Seconds(0.9)}) == judged
