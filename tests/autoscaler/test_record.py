"""Decisions as records: everything survives the log, and what others wrote is read leniently."""

from __future__ import annotations

from dataclasses import replace

from autoscaler.core.decide import decide, hold
from autoscaler.core.model import Memory, Reason, in_order
from autoscaler.record import read_wish, replay, wish_of
from events.adapters.memory import MemoryEventLog
from events.clock import SimulatedClock
from events.codec import decode_structured, encode_structured
from events.envelope import Envelope
from events.units import Instant
from events.writer import EventWriter
from tests.support.autoscaling import POLICY, T0, seen

NOW = Instant(T0)


def test_a_wish_survives_the_wire() -> None:
    """Through a CloudEvent in JSON and back, the same decision is taken again."""
    snapshot = seen(wished=2, ready=1, starting=1, running=4, waiting=9, demand={"stable": 1 / 3, "panic": 2 / 3})
    decision = decide(snapshot, POLICY, NOW)
    event = EventWriter("relume/test", SimulatedClock(T0)).envelope(wish_of(snapshot, POLICY, decision))
    back = decode_structured(encode_structured(event))
    assert isinstance(back, Envelope)
    assert replay(back.data) == decision


def test_a_wish_of_another_release_is_read_leniently() -> None:
    """Its number counts; reasons, memory and policy that this release does not know are left out."""
    wish = wish_of(seen(), POLICY, decide(seen(waiting=9), POLICY, NOW))
    strange = replace(wish, reasons=("Backlog", "Moonshine"), memory={"panicUntil": "tomorrow"}, policy={"name": 7})
    read, memory = read_wish(strange, NOW)
    assert (read.replicas, read.reasons, read.policy, memory) == (3, (Reason.BACKLOG,), None, Memory())
    known, memory = read_wish(wish, NOW)
    assert known.policy == POLICY
    assert memory.panic_floor == 3


def test_reasons_have_one_order() -> None:
    """That of the enum, whatever order they were found in."""
    assert in_order({Reason.AT_MOST_MAX, Reason.PANIC, Reason.BACKLOG}) == (
        Reason.BACKLOG,
        Reason.PANIC,
        Reason.AT_MOST_MAX,
    )


def test_a_deleted_model_is_zero() -> None:
    """Below every minimum, whatever waits."""
    decision = decide(seen(wished=3, waiting=9, deleted=True), replace(POLICY, min_replicas=2), NOW)
    assert (decision.replicas, decision.reasons) == (0, (Reason.DELETED,))


def test_without_a_policy_the_last_wish_stands() -> None:
    """Within the bounds, and whoever waits still wakes the model."""
    odd = replace(POLICY, name="unheard-of")
    assert decide(seen(wished=3, waiting=40), odd, NOW).reasons == (Reason.POLICY_UNKNOWN,)
    assert decide(seen(wished=3, waiting=40), odd, NOW).replicas == 3
    assert decide(seen(wished=0, waiting=1), odd, NOW).replicas == 1
    held = hold(seen(wished=30), POLICY, NOW, Reason.POLICY_FAILED)
    assert (held.replicas, held.reasons) == (10, (Reason.AT_MOST_MAX, Reason.POLICY_FAILED))
    assert held.again_at == T0 + 30


async def test_snapshots_are_small() -> None:
    """A recorded wish is a few KiB at most."""
    clock = SimulatedClock(T0)
    async with MemoryEventLog(clock) as log:
        snapshot = seen(wished=2, ready=1, starting=1, running=4, waiting=9)
        event = EventWriter("relume/test", clock).envelope(wish_of(snapshot, POLICY, decide(snapshot, POLICY, NOW)))
        await log.append([event])
        assert len(encode_structured(event)) < 2500
