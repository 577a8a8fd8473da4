"""The desk: the authority at work, on a log in memory and a simulated clock."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest

from events.adapters.memory import MemoryEventLog
from events.clock import SimulatedClock, settle
from events.log import Batch, LogClosed, LogUnavailable, Position, Start, Subscription
from events.names import Topic
from events.types.caches import CacheObserved, ModelWarmth
from events.types.gateways import GatewayBeat
from events.types.phases import ColdStartFinished, ReplicaDrained, ReplicaSuspected
from events.types.replicas import ReplicaState
from events.types.requests import RequestWindow
from events.units import Instant
from runtime.core.ledger import LeaseEnded
from runtime.core.policy import Heartbeat
from runtime.desk.desk import LEASES_A_TURN
from runtime.ports import Ending, Lease, Outcome, RefusalCode
from tests.support.desk import Asker, World, declaration, world
from tests.support.slots import DONE, MODEL, observed, replica


async def test_it_is_ready_when_it_knows_what_is_declared_and_what_runs() -> None:
    """A desk that starts anew serves at once what stood in the log."""
    async with world() as one:
        await one.observe(replica())
        other = one.another_desk()
        assert not other.ready
        assert other.route(MODEL) is None
        await other.start()
        assert other.ready
        assert other.take(one.wanted("r1"), Asker("r1")) is not None
        await other.close()


async def test_a_log_that_closes_before_all_was_read_is_an_error() -> None:
    """A desk that knows nothing must not serve."""
    clock = SimulatedClock()
    log = MemoryEventLog(clock)
    desk = World(clock, log).desk
    starting = asyncio.create_task(desk.start())
    await log.close()
    with pytest.raises(LogClosed):
        await starting
    await desk.close()


async def test_a_route_is_the_declaration_in_plain_numbers() -> None:
    """By name and by alias; unknown fields of other parts are not its business."""
    async with world() as one:
        await one.declare(
            aliases=["openai/small"],
            timeouts={"firstByte": "7s", "total": "90s"},
            coldStart={"sla": "2s", "hold": {"maxWait": "11s"}, "heartbeat": "5s"},
            scaling={"maxReplicas": 3},
        )
        route = one.desk.route("openai/small")
        assert route is not None
        assert route == one.desk.route(MODEL)
        assert (route.model, route.uid, route.revision, route.max_wait) == (MODEL, "u1", 1, 11.0)
        assert (route.timeouts.first_byte, route.timeouts.idle, route.timeouts.total) == (7.0, 120.0, 90.0)
        assert route.heartbeat == Heartbeat(every=5.0)  # type: ignore[arg-type]  # Seconds
        assert one.desk.route("nobody") is None


async def test_an_unreadable_declaration_leaves_what_was_known() -> None:
    """It is counted; the model goes on as it was."""
    async with world() as one:
        await one.append(declaration(revision=2, timeouts={"total": "soon"}))
        route = one.desk.route(MODEL)
        assert route is not None
        assert route.revision == 1
        assert one.desk.counts.unreadable == 1


async def test_agents_tell_where_weights_are() -> None:
    """Who cannot wait for the bytes is refused at once, before a start of the model was ever seen."""
    async with world() as one:
        warmth = ModelWarmth(model=MODEL, tier="remote", missing=400, revision=1)
        await one.append(CacheObserved(node="n1", used_bytes=0, capacity_bytes=1, models=(warmth,), network=10.0))
        refusal = one.ask("r1", wait=39.0).refusal
        assert refusal is not None
        assert refusal.code is RefusalCode.IMPOSSIBLE
        assert one.ask("r2", wait=41.0).refusal is None


async def test_the_catalog_lists_what_is_declared_with_its_state() -> None:
    """Also at zero; `created` is when it was declared first, not when it was changed."""
    async with world() as one:
        born = int(one.clock.now())
        await one.clock.advance(100)
        await one.declare(aliases=["short"])
        (entry,) = one.desk.entries()
        assert (entry.name, entry.state, entry.created, entry.aliases) == (MODEL, "Zero", born, ("short",))
        await one.observe(replica())
        one.ask("r1")
        assert [entry.state for entry in one.desk.entries()] == ["Ready"]
        (status,) = one.desk.statuses()
        assert (status.held, status.running, status.ready) == (0, 1, 1)
        await one.append(declaration(deleted=True))
        assert one.desk.entries() == []


async def test_a_thousand_requests_to_a_model_at_zero() -> None:
    """None lost, none twice, in order within each caller, never more at once than slots."""
    async with world() as one:
        served: list[str] = []
        running: Counter[str] = Counter()
        most = 0
        askers = []
        for index in range(1000):
            asker = Asker(f"caller{index % 7}/{index}", served)
            assert one.desk.take(one.wanted(asker.request, caller=f"caller{index % 7}"), asker) is None
            askers.append(asker)
        await one.observe(replica(0, slots=4), replica(1, slots=2))
        by_request = {asker.request: asker for asker in askers}
        live = [asker.lease for asker in askers if asker.lease is not None]
        while live:
            running = Counter(lease.replica for lease in live)
            most = max(most, running.total())
            assert running[replica(0).replica] <= 4  # type: ignore[index]  # names are strings
            assert running[replica(1).replica] <= 2  # type: ignore[index]  # names are strings
            before = len(served)
            one.desk.give_back(live.pop(0), DONE)
            live += [lease for name in served[before:] if (lease := by_request[name].lease) is not None]
        assert most == 6
        assert sorted(served) == sorted(asker.request for asker in askers)
        for caller in range(7):
            own = [int(name.split("/")[1]) for name in served if name.startswith(f"caller{caller}/")]
            assert own == sorted(own)
        assert one.desk.running == 0


async def test_five_thousand_held_requests_drain_by_their_own_callbacks() -> None:
    """Each gives its lease back inside its callback: the next is served without growing the stack, nor the turn."""
    async with world() as one:
        await one.declare(coldStart={"hold": {"maxRequests": 5000}})
        served: list[str] = []

        def answer(lease: Lease) -> None:
            one.desk.give_back(lease, DONE)

        for index in range(5000):
            one.desk.take(one.wanted(f"r{index}"), Asker(f"r{index}", served, answer))
        await one.observe(replica(slots=1))
        for _ in range(5000 // LEASES_A_TURN):
            await settle()
        assert served == [f"r{index}" for index in range(5000)]
        assert one.desk.running == 0


async def test_windows_tell_the_edge_at_once_and_then_each_second_until_zeros() -> None:
    """A request is held for 1.5 s, runs for 1 s: the last window of each interval adds up to exactly that."""
    async with world() as one:
        asker = one.ask("r1")
        (edge,) = await one.written(Topic.REQUESTS, RequestWindow)
        assert (edge.edge, edge.now.waiting, edge.arrivals, edge.gateway) == (True, 1, 1, "gw")
        await one.clock.advance(1.5)
        await one.observe(replica())
        assert asker.lease is not None
        await one.clock.advance(1.0)
        one.desk.give_back(asker.lease, DONE)
        await one.clock.advance(10.0)
        windows = await one.written(Topic.REQUESTS, RequestWindow)
        newest = list({window.started_at: window for window in windows}.values())
        assert sum(window.waiting_seconds for window in newest) == pytest.approx(1.5)
        assert sum(window.running_seconds for window in newest) == pytest.approx(1.0)
        assert [window.ended_at - window.started_at for window in newest] == [1.0] * 4
        assert (newest[-1].now.running, newest[-1].running_seconds, newest[-1].finishes) == (0, 0.0, 0)
        assert sum(window.finishes for window in newest) == 1


async def test_an_idle_desk_sets_no_alarm() -> None:
    """After the last window nothing is due: only the beat goes on."""
    async with world() as one:
        await one.observe(replica())
        asker = one.ask("r1")
        assert asker.lease is not None
        one.desk.give_back(asker.lease, DONE)
        await one.clock.advance(5.0)
        count = len(await one.written(Topic.REQUESTS, RequestWindow))
        assert one.desk._alarm is None
        await one.clock.advance(60.0)
        assert len(await one.written(Topic.REQUESTS, RequestWindow)) == count


async def test_a_held_request_is_refused_at_its_deadline() -> None:
    """By the clock, to the instant."""
    async with world() as one:
        patient, hasty = one.ask("patient", wait=60.0), one.ask("hasty", wait=2.5)
        await one.clock.advance(2.4)
        assert hasty.refusal is None
        await one.clock.advance(0.1)
        assert hasty.refusal is not None
        assert hasty.refusal.code is RefusalCode.DEADLINE
        assert patient.refusal is None
        progress = one.desk.progress("patient")
        assert progress is not None
        assert (progress.phase, progress.ahead) == ("hold", 0)


async def test_states_of_a_replaced_adapter_change_nothing() -> None:
    """Its replicas were ready before the next adapter told its own; what it says after that is refused and counted."""
    async with world() as one:
        await one.append(observed(replica(0)), epoch=3)
        await one.append(observed(replica(1)), epoch=8)
        await one.append(observed(replica(0), replica(2)), epoch=3)
        leases = [one.ask(f"r{number}").lease for number in range(5)]
        assert {lease.replica for lease in leases if lease is not None} == {replica(1).replica}
        assert one.desk.counts.refused_states == 1


async def test_a_refusal_comes_inside_take() -> None:
    """Take says None, and the waiter was called already."""
    async with world() as one:
        await one.declare(coldStart={"hold": {"maxRequests": 0}})
        asker = one.ask("r1")
        assert asker.refusal is not None
        assert asker.refusal.code is RefusalCode.QUEUE_FULL


async def test_a_lease_for_a_request_that_just_left_goes_to_the_next() -> None:
    """One callback makes another request leave whose lease is on its way already."""
    async with world() as one:
        served: list[str] = []
        first, second, third = (Asker(name, served) for name in ("r1", "r2", "r3"))
        first.then = lambda _: one.desk.leave("r2")
        for asker in (first, second, third):
            one.desk.take(one.wanted(asker.request), asker)
        await one.observe(replica(slots=2))
        assert served == ["r1", "r3"]
        assert (one.desk.running, second.lease, second.refusal) == (2, None, None)


async def test_callbacks_may_take_and_give_back() -> None:
    """A request that is answered at once asks again from inside its callback, a hundred times."""
    async with world() as one:
        served: list[str] = []

        def again(lease: Lease) -> None:
            one.desk.give_back(lease, DONE)
            if len(served) < 100:
                asker = Asker(f"r{len(served)}", served, again)
                if (found := one.desk.take(one.wanted(asker.request), asker)) is not None:
                    asker.leased(found)

        one.desk.take(one.wanted("r0"), Asker("r0", served, again))
        await one.observe(replica(slots=1))
        assert served == [f"r{index}" for index in range(100)]
        assert one.desk.running == 0


async def test_a_callback_that_fails_does_not_harm_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged; the rest get their leases."""

    def fail(_: Lease) -> None:
        raise RuntimeError("a bug in one request")

    async with world() as one:
        bad, good = Asker("bad", then=fail), Asker("good")
        for asker in (bad, good):
            one.desk.take(one.wanted(asker.request), asker)
        with caplog.at_level(logging.ERROR):
            await one.observe(replica(slots=2))
        assert good.lease is not None
        assert one.desk.counts.commands_failed == 1
        assert "a command was not carried out" in caplog.text


async def test_an_event_that_cannot_be_written_costs_nobody_a_lease(caplog: pytest.LogCaptureFixture) -> None:
    """The window of the first activity fails; the request has its lease all the same."""

    def fail(_: object) -> bool:
        raise ValueError("cannot be encoded")

    async with world() as one:
        await one.observe(replica(slots=1))
        one.log.offer = fail  # type: ignore[method-assign]  # stands for a bug in the codec
        with caplog.at_level(logging.ERROR):
            assert one.ask("r1").lease is not None
        assert one.desk.counts.commands_failed == 1


async def test_giving_back_twice_raises() -> None:
    """The second call is a bug of the caller, and frees nothing."""
    async with world() as one:
        await one.observe(replica(slots=1))
        asker = one.ask("r1")
        assert asker.lease is not None
        one.desk.give_back(asker.lease, DONE)
        with pytest.raises(LeaseEnded):
            one.desk.give_back(asker.lease, DONE)
        assert one.ask("r2").lease is not None
        assert one.ask("r3").lease is None


async def test_drained_suspected_and_cold_starts_are_published() -> None:
    """Whoever waits for them reads `relume.phases`."""
    async with world() as one:
        asker = one.ask("r1")
        await one.clock.advance(2.0)
        await one.observe(replica(0))
        assert asker.lease is not None
        now = Instant(one.clock.now())
        one.desk.give_back(asker.lease, Outcome(Ending.FINISHED, status=200, first_byte_at=now))
        (cold,) = await one.written(Topic.PHASES, ColdStartFinished)
        assert (cold.request, cold.replica, cold.first_byte_at - cold.arrived_at) == ("r1", replica(0).replica, 2.0)
        lost = one.ask("r2")
        assert lost.lease is not None
        one.desk.give_back(lost.lease, Outcome(Ending.UNREACHABLE))
        (suspected,) = await one.written(Topic.PHASES, ReplicaSuspected)
        assert (suspected.model, suspected.replica) == (MODEL, replica(0).replica)
        await one.observe(replica(0, state=ReplicaState.DRAINING))
        (drained,) = await one.written(Topic.PHASES, ReplicaDrained)
        assert (drained.model, drained.replica) == (MODEL, replica(0).replica)


async def test_it_beats_each_second_and_says_when_it_leaves() -> None:
    """With the same boot for its whole life."""
    async with world() as one:
        await one.clock.advance(3.5)
        beats = await one.written(Topic.GATEWAYS, GatewayBeat)
        assert [beat.leaving for beat in beats] == [False] * 4
        assert {(beat.gateway, beat.boot) for beat in beats} == {("gw", "boot-1")}
        await one.desk.close()
        assert (await one.written(Topic.GATEWAYS, GatewayBeat))[-1].leaving


async def test_shutting_down_refuses_who_waits_and_lets_run_who_runs() -> None:
    """Then it is not ready any more, and empty when the last lease is given back."""
    async with world() as one:
        await one.observe(replica(slots=1))
        running, held = one.ask("r1"), one.ask("r2")
        one.desk.shut_down()
        late = one.ask("r3")
        for asker in (held, late):
            assert asker.refusal is not None
            assert asker.refusal.code is RefusalCode.SHUTTING_DOWN
        assert not one.desk.ready
        assert running.lease is not None
        assert one.desk.running == 1
        one.desk.give_back(running.lease, DONE)
        assert one.desk.running == 0


async def test_no_task_is_left_when_it_is_closed() -> None:
    """Not the alarm, the follower, the pulse or the poller."""
    async with world() as one:
        one.ask("r1")
        await settle()
        await one.desk.close()
        await settle()
        assert [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("desk-")] == []


class Troubled(MemoryEventLog):
    """A log whose next subscriptions fail after their first batch."""

    failures = 0

    def subscribe(self, topics: Sequence[str], start: Start, group: str | None = None) -> Subscription:
        subscription = super().subscribe(topics, start, group)
        if self.failures:
            self.failures -= 1
            return Failing(subscription)
        return subscription


class Failing:
    """Delivers one batch of another subscription, then fails."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    async def __aiter__(self) -> AsyncIterator[Batch]:
        async for batch in self._subscription:
            yield batch
            break
        raise LogUnavailable("the disk is full")

    async def commit(self, positions: Sequence[Position]) -> None:
        await self._subscription.commit(positions)

    async def close(self) -> None:
        await self._subscription.close()


async def test_the_log_may_fail_while_it_is_followed() -> None:
    """After a pause the newest values are read again: what changed meanwhile is not missed."""
    clock = SimulatedClock()
    async with Troubled(clock) as log:
        log.failures = 2
        one = World(clock, log)
        await one.declare()
        starting = asyncio.create_task(one.desk.start())
        await settle()
        await one.observe(replica(slots=1))
        await clock.advance(3.0)
        await starting
        assert one.ask("r1").lease is not None
        assert one.desk.counts.interruptions == 2
        await one.desk.close()


async def test_a_broken_part_is_raised() -> None:
    """Whoever runs the desk learns that it does not follow any more."""
    async with world() as one:

        def fail(*_: object) -> None:
            raise RuntimeError("a bug")

        one.desk._follower._take = fail  # stands for any bug
        broken = asyncio.create_task(one.desk.wait_broken())
        await one.observe(replica())
        with pytest.raises(RuntimeError, match="a bug"):
            await broken
