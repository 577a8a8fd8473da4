"""Which requests go together, and when."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from events.units import Instant, Seconds
from runtime.core.batching.gathering import Gatherer, Knobs, Member

WINDOW = Seconds(0.02)


def member(name: str, at: float, key: str = "m", size: int = 1) -> Member:
    return Member(name, key, size, Instant(at))


def names(gatherer: Gatherer, now: float) -> list[list[str]]:
    """What goes now."""
    return [[one.name for one in batch.members] for batch in gatherer.take(Instant(now))]


def test_an_idle_engine_waits_for_company_only_if_some_is_expected() -> None:
    """The first goes at once; of a dense stream the first waits the window; a patient one always waits."""
    gatherer = Gatherer(Knobs(8, WINDOW))
    gatherer.add(member("a", 1.0))
    assert gatherer.due(Instant(1.0)) == 1.0
    assert names(gatherer, 1.0) == [["a"]]
    gatherer.ended()
    for index in range(5):
        gatherer.add(member(f"b{index}", 1.1 + 0.001 * index))
    assert gatherer.due(Instant(1.105)) == 1.12
    assert names(gatherer, 1.105) == []
    assert names(gatherer, 1.12) == [["b0", "b1", "b2", "b3", "b4"]]
    patient = Gatherer(Knobs(8, WINDOW), patient=True)
    patient.add(member("a", 1.0))
    assert names(patient, 1.0) == []
    assert names(patient, 1.02) == [["a"]]


def test_while_it_is_busy_they_gather() -> None:
    """Nothing goes before the batch is back; then the oldest, as many as fit, however long they waited."""
    gatherer = Gatherer(Knobs(2, WINDOW))
    gatherer.add(member("a", 1.0))
    assert names(gatherer, 1.0) == [["a"]]
    for name in "bcd":
        gatherer.add(member(name, 1.01))
    assert names(gatherer, 9.0) == []
    assert gatherer.due(Instant(9.0)) is None
    gatherer.ended()
    assert names(gatherer, 9.0) == [["b", "c"]]


def test_a_full_batch_waits_for_nothing() -> None:
    """As many as are allowed, counted by their inputs; one that is larger goes alone."""
    gatherer = Gatherer(Knobs(4, Seconds(9.0)), parallel=9, patient=True)
    for name, size in (("a", 3), ("b", 1), ("big", 9), ("c", 1)):
        gatherer.add(member(name, 1.0, size=size))
    assert names(gatherer, 1.0) == [["a", "b"], ["big"]]
    assert gatherer.waiting == 1


def test_keys_do_not_mix_and_the_oldest_goes_first() -> None:
    """Two keys are two batches."""
    gatherer = Gatherer(Knobs(8, WINDOW), parallel=2, patient=True)
    for name, key, at in (("a1", "a", 1.001), ("b1", "b", 1.0), ("a2", "a", 1.002)):
        gatherer.add(member(name, at, key))
    assert names(gatherer, 1.5) == [["b1"], ["a1", "a2"]]


def test_who_has_left_goes_nowhere() -> None:
    """Left while it waited: it is in no batch. Left twice, or on its way: nothing changes."""
    gatherer = Gatherer(Knobs(8, WINDOW), patient=True)
    first, second = member("a", 1.0), member("b", 1.0)
    gatherer.add(first)
    gatherer.add(second)
    gatherer.leave(first)
    gatherer.leave(first)
    assert names(gatherer, 1.02) == [["b"]]
    gatherer.leave(second)
    assert gatherer.waiting == 0
    assert gatherer.due(Instant(2.0)) is None


@settings(max_examples=100)
@given(
    steps=st.lists(st.tuples(st.sampled_from("abt"), st.integers(1, 5), st.floats(0.0, 0.05)), max_size=60),
    most=st.integers(1, 6), parallel=st.integers(1, 3), patient=st.booleans(),
)  # fmt: skip
def test_each_goes_once_in_order(
    steps: list[tuple[str, int, float]], most: int, parallel: int, *, patient: bool
) -> None:
    """Whatever comes and ends: everybody goes once, those of a key in their order, no batch is too large, and never
    more than so many are at the engine."""
    gatherer, now, count = Gatherer(Knobs(most, WINDOW), parallel, patient=patient), 1.0, 0
    gone: list[Member] = []

    def go() -> None:
        for batch in gatherer.take(Instant(now)):
            assert len(batch.members) == 1 or sum(one.size for one in batch.members) <= most
            assert {one.key for one in batch.members} == {batch.key}
            gone.extend(batch.members)
        assert gatherer.running <= parallel

    for what, size, passed in steps:
        now += passed
        if what == "t":
            if gatherer.running:
                gatherer.ended()
        else:
            count += 1
            gatherer.add(member(f"{count}", now, what, size))
        go()
    while gatherer.waiting or gatherer.running:
        due = gatherer.due(Instant(now))
        now = now + 1.0 if due is None else max(now, due)
        if gatherer.running:
            gatherer.ended()
        go()
    assert len(gone) == count == len({one.name for one in gone})
    for key in "ab":
        mine = [int(one.name) for one in gone if one.key == key]
        assert mine == sorted(mine)
