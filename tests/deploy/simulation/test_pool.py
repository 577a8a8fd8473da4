"""The simulated pool: room, order, drains, failed starts, and what it all costs."""

from __future__ import annotations

from dataclasses import replace

from deploy.simulation.pool import Group, Pool
from deploy.simulation.setting import Setting, Starting
from events.types.replicas import Phase, ReplicaState
from preemption.core.view import Wish

SETTING = Setting(slots=2, starting=Starting(seconds=10.0, spread=0.0))


def pool(**fields: object) -> tuple[Pool, list[tuple[str, float]]]:
    """A pool, and who changed when."""
    told: list[tuple[str, float]] = []
    setting = replace(SETTING, **fields)  # type: ignore[arg-type] # as given
    return Pool(setting, lambda group, now: told.append((group.model, now))), told


def wish(replicas: int, gain: float = 0.0, kept: int = 0, *, waits: bool = False) -> Wish:
    """What an autoscaler would say."""
    return Wish("u", replicas, gain, kept, waits)


def test_a_start_takes_its_time_and_gives_slots() -> None:
    """Ready after its phases, which are told then and not before."""
    made, told = pool()
    group = Group("m", 100, [])
    made.wish(group, wish(1), 5.0)
    (before,) = made.observed(group).replicas
    assert (before.state, len(before.phases), group.free) == (ReplicaState.STARTING, 1, 0)
    assert made.next_at() == 15.0
    made.due(15.0)
    (after,) = made.observed(group).replicas
    assert (after.state, after.ready_at, group.free) == (ReplicaState.READY, 15.0, 2)
    assert [span.phase for span in after.phases] == [Phase.SPAWN, Phase.LOAD, Phase.WARMUP]
    assert told == [("m", 5.0), ("m", 15.0)]


def test_the_least_loaded_takes_the_next_and_an_idle_one_goes_first() -> None:
    """Slots are taken evenly; a descent drains the one with the fewest requests."""
    made, _ = pool()
    group = Group("m", 100, [])
    made.wish(group, wish(2), 0.0)
    made.due(10.0)
    first, second, third = (made.take(group, 11.0) for _ in range(3))
    assert first is not second
    assert third is first or third is second
    lone = second if third is first else first
    made.wish(group, wish(1), 12.0)
    assert lone.state is ReplicaState.DRAINING
    assert group.free == 0
    made.wish(group, wish(2), 13.0)
    assert lone.state is ReplicaState.READY
    assert group.free == 1
    made.wish(group, wish(1), 14.0)
    made.give(group, lone, 20.0)
    assert len(group.replicas) == 1
    assert made.cost.gpu_seconds == 20.0


def test_too_little_room_goes_by_priority_then_gain() -> None:
    """Who is there stays; what becomes free goes to who stands first."""
    made, _ = pool(gpus=1)
    groups = {name: Group(name, priority, []) for name, priority in (("a", 100), ("b", 100), ("c", 200), ("d", 100))}
    for name, gain in (("a", 0.0), ("b", 1.0), ("c", 0.0), ("d", 5.0)):
        made.wish(groups[name], wish(1, gain), 0.0)
    served = []
    for now in (20.0, 40.0, 60.0, 80.0):
        made.due(now)
        holder = next(group for group in groups.values() if group.replicas)
        served.append(holder.model)
        made.wish(holder, wish(0), now)
    assert served == ["a", "c", "d", "b"]


def test_a_failed_start_backs_off_and_its_failure_is_told() -> None:
    """One second, two, four …; a success begins anew."""
    made, _ = pool(starting=Starting(seconds=10.0, spread=0.0, fails=1.0))
    group = Group("m", 100, [])
    made.wish(group, wish(1), 0.0)
    made.due(10.0)
    assert (group.failures, group.retry_at, group.replicas) == (1, 11.0, [])
    assert made.observed(group).retry_at == 11.0
    made.due(11.0)
    made.due(21.0)
    assert (group.failures, group.retry_at) == (2, 23.0)
    assert made.cost.failed == 2


def test_idle_time_is_what_nothing_ran_in() -> None:
    """From ready to the first request, between requests, and to the end."""
    made, _ = pool()
    group = Group("m", 100, [])
    made.wish(group, wish(1), 0.0)
    made.due(10.0)
    one = made.take(group, 15.0)
    made.give(group, one, 25.0)
    made.end([group], 40.0)
    assert made.cost.gpu_seconds == 40.0
    assert made.cost.idle_seconds == 5.0 + 15.0


def test_the_same_start_is_as_long_whatever_else_happens() -> None:
    """The n-th start of a model is drawn by the seed alone, so policies meet the same luck."""
    ends = []
    for others in (0, 3):
        made, _ = pool(starting=Starting(seconds=10.0, spread=0.5))
        for other in range(others):
            made.wish(Group(f"other-{other}", 100, []), wish(2), 0.0)
        group = Group("m", 100, [])
        made.wish(group, wish(1), 0.0)
        seen = 0.0
        while not group.ready:
            seen = made.next_at() or 0.0
            made.due(seen)
        ends.append(seen)
    assert ends[0] == ends[1] != 10.0


def test_what_is_only_kept_goes_to_who_waits() -> None:
    """Once it has been ready for as long as its start took, and not before; who gave it has no other start for it."""
    made, _ = pool(gpus=1)
    keeper, asked = Group("keeper", 100, []), Group("asked", 100, [])
    made.wish(keeper, wish(1), 0.0)
    made.due(10.0)
    made.wish(keeper, wish(1, kept=1), 12.0)
    made.wish(asked, wish(1, waits=True), 13.0)
    assert (keeper.serving, asked.serving, made.next_at()) == (1, 0, 20.0)
    made.due(20.0)
    assert (keeper.serving, asked.serving, keeper.given) == (0, 1, 1)
    made.due(30.0)
    made.wish(asked, wish(0), 40.0)
    assert (keeper.serving, keeper.wished) == (0, 1)
    made.wish(keeper, wish(1, waits=True), 41.0)
    assert (keeper.serving, keeper.given) == (1, 0)


def test_what_is_needed_or_comes_first_is_not_taken() -> None:
    """Not for a lower priority, not for who does not wait, and not while a request runs on it."""
    made, _ = pool(gpus=1)
    keeper, asked = Group("keeper", 100, []), Group("asked", 50, [])
    made.wish(keeper, wish(1, kept=1), 0.0)
    made.due(10.0)
    made.wish(asked, wish(1, waits=True), 50.0)
    assert keeper.serving == 1
    asked.priority = 100
    made.wish(asked, wish(1), 50.0)
    assert keeper.serving == 1
    busy = made.take(keeper, 51.0)
    made.wish(asked, wish(1, waits=True), 52.0)
    assert keeper.serving == 1
    made.give(keeper, busy, 53.0)
    made.wish(asked, wish(1, waits=True), 54.0)
    assert (keeper.serving, asked.serving) == (0, 1)
