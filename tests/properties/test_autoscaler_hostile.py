"""Whatever anybody tells, within the shapes of events: it is folded, decided, recorded, read back and explained."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autoscaler.explain import explain_decision
from autoscaler.record import replay
from events.codec import decode_structured, encode_structured
from events.envelope import Envelope
from events.types.decisions import WishDecided
from events.types.metrics import BacklogMeasured, LagMeasured, QueryMeasured, ReplicaMetrics, SignalMeasured
from events.types.models import ModelDeclared
from events.types.requests import ActivationRequested, Levels, RequestArrived, RequestFinished, RequestWindow
from events.types.shared import Sketch
from events.writer import EventWriter
from tests.support.autoscaling import T0, Run, declared, observed

SOURCES: Final = ("relume/gateway/g", "relume/gateway/h", "somebody")
POLICIES: Final = ("relume", "kpa", "keda", "hpa", "keepalive", "concurrency", "hybrid-histogram")
NAMES: Final = ("s", "t", "prometheus/q", "x" * 300, "")
NUMBERS: Final = (0.0, 5e-324, 1e-9, 0.5, 1.0, 3.0, 100.0, 1e6, 1e12, 1e18, 1e100, 1e300, 1.7e308)
COUNTS: Final = (0, 1, 2, 7, 100, 10**6, 2**31, 2**53, 2**63 - 1)


class Teller:
    """Draws events by a seed."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw

    def number(self, least: float = 0.0) -> float:
        return max(least, self.draw.choice(NUMBERS) * self.draw.choice((1.0, 0.3)))

    def count(self) -> int:
        return self.draw.choice(COUNTS)

    def time(self, now: float) -> float:
        return self.draw.choice((now, now - 1, now + 1, now - 3600, now + 86_400 * 400, 1e-9, 1e18, 1e308))

    def sketch(self) -> Sketch:
        buckets = self.draw.sample((-200, -60, 0, 5, 30, 139, 8000, 10**9), self.draw.choice((0, 1, 1, 3)))
        told = tuple((bucket, self.count()) for bucket in sorted(buckets))
        return Sketch(buckets=told, count=sum(count for _, count in told), sum=self.number())

    def window(self, now: float) -> RequestWindow:
        levels = [Levels(running=self.count(), waiting=self.count()) for _ in range(2)]
        return RequestWindow(
            model="m", uid=self.draw.choice("uuuv"), revision=self.draw.choice((1, 1, 2, 2**53)),
            gateway=self.draw.choice("gh"), started_at=self.time(now), ended_at=self.time(now),
            running_seconds=self.number(), waiting_seconds=self.number(), now=levels[0], peak=levels[1],
            arrivals=self.count(), starts=self.count(), finishes=self.count(), failures=self.count(),
            refusals=self.count(), tokens_in=self.count(), tokens_out=self.count(), held=self.sketch(),
            first_byte=self.sketch(), total=self.sketch(), edge=self.draw.random() < 0.5,
            oldest_waiting_since=self.draw.choice((None, self.time(now))),
            earliest_deadline=self.draw.choice((None, self.time(now))),
        )  # fmt: skip

    def number_or_none(self) -> float | None:
        return self.draw.choice((None, self.number()))

    def event(self, now: float) -> object:
        name, tiny = self.draw.choice(NAMES), 5e-324
        tellers: tuple[Callable[[], object], ...] = (
            lambda: self.window(now),
            lambda: ActivationRequested(model="m", replicas=self.count(), until=self.time(now)),
            lambda: RequestArrived(model="m", request=name),
            lambda: RequestFinished(model="m", request=name),
            lambda: SignalMeasured(model="m", name=name, value=self.number(), target=self.number(tiny),
                                   valid_for=self.number(tiny)),
            lambda: QueryMeasured(model="m", name=name, value=self.number_or_none(), delay=self.number(),
                                  series=self.count(), error="e", valid_for=self.number(tiny)),
            lambda: LagMeasured(model="m", name=name, lag=self.number_or_none(), standing=self.number(),
                                partitions=self.count(), with_lag=self.count(), unknown=self.count(),
                                produced=self.number_or_none(), consumed=self.number_or_none(),
                                valid_for=self.number(tiny)),
            lambda: BacklogMeasured(model="m", source=name, items=self.number(), concurrency=self.number_or_none()),
            lambda: ReplicaMetrics(model="m", replica="m-r1-0", revision=1, running=self.number(),
                                   waiting=self.number(), tokens_out_total=self.number()),
            lambda: observed(self.draw.choice((0, 1, 3)), self.draw.choice((0, 1))),
        )  # fmt: skip
        return self.draw.choice((*tellers, *[tellers[0]] * len(tellers)))()

    def declaration(self) -> ModelDeclared:
        scaling: dict[str, object] = {
            "policy": self.draw.choice(POLICIES),
            "maxReplicas": self.draw.choice((1, 10, 500)),
        }
        if self.draw.random() < 0.5:
            scaling["signals"] = [
                {"name": "s", "target": self.draw.choice((5e-324, 1.0, 1e300))}, {"name": "t"},
                {"prometheus": {"query": "q", "target": 5e-324}},
            ]  # fmt: skip
        made = declared(**scaling)
        if self.draw.random() < 0.6:
            made.spec["slo"] = {"timeToFirstToken": {"p95": "2s"}}
        return made


def through_the_log(writer: EventWriter, data: object) -> object:
    """As it is read there; None: it is refused."""
    found = decode_structured(encode_structured(writer.envelope(data)))
    return found.data if isinstance(found, Envelope) else None


@settings(max_examples=60, deadline=None)
@example(seed=382)  # answers of ten seconds that are more than 2^63
@given(seed=st.integers(0, 2**32))
def test_nothing_that_is_told_breaks_anything(seed: int) -> None:
    """No error, no number out of bounds, and no record that another process could not read."""
    draw = random.Random(seed)
    teller = Teller(draw)
    run = Run(teller.declaration())
    writer = EventWriter("somebody", run.clock)
    for _ in range(40):
        data = through_the_log(writer, teller.event(run.now))
        if data is not None:
            run.put(data, draw.choice(SOURCES))
        run.advance(draw.choice((0.0, 0.01, 1.0, 1.0, 10.0, 61.0, 700.0)))
    assert not run.fold.unreadable
    declaration = run.fold.models["m"].declared
    assert declaration is not None
    for _, wish in run.wishes:
        back = through_the_log(writer, wish)
        assert isinstance(back, WishDecided)
        assert replay(back).replicas == wish.replicas
        assert 0 <= wish.replicas <= declaration.policy.max_replicas
        told = explain_decision(back)
        assert "NaN" not in json.dumps(dict(told.facts), allow_nan=False)


@pytest.mark.parametrize("seed", [31, 43, 149])
def test_the_teller_tells_what_it_told(seed: int) -> None:
    """The same seed, the same events: a failure can be played again."""
    first, second = (Teller(random.Random(seed)) for _ in range(2))
    assert [first.event(T0) for _ in range(20)] == [second.event(T0) for _ in range(20)]
