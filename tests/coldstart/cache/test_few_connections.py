"""Real servers that serve few connections: a fetch comes to its end over those that they serve."""

from __future__ import annotations

import pytest

from coldstart.cache import fetching
from coldstart.core.cache.errors import SourceUnavailable
from events.units import Seconds
from tests.coldstart.cache.conftest import CHUNK, Cache
from tests.support.flaky_origin import Origin, served

WAYS = ("refused", "dropped", "closed", "wait")


@pytest.fixture
def hungry(monkeypatch: pytest.MonkeyPatch) -> None:
    """More connections are of use, however quick or busy the machine is."""
    monkeypatch.setattr(fetching, "takes_in", lambda *_: None)
    monkeypatch.setattr(fetching.Hunger, "share", lambda *_: 1.0)


@pytest.mark.usefixtures("hungry")
@pytest.mark.parametrize("others", WAYS)
@pytest.mark.parametrize("serves", [1, 2, 3])
@pytest.mark.parametrize("chunks", [8, 200])
def test_it_ends_over_those_that_are_served(cache: Cache, serves: int, others: str, chunks: int) -> None:
    """However few, from the first chunk on or when more are tried, with few retries for it, long before the two minutes
    in which the others should come back, and before those that bring nothing are given up."""
    cache.impatient(retries=8, retries_share=0.0, patience=Seconds(60.0), stall=Seconds(30.0))
    with served(Origin(bytes(range(256)) * (CHUNK // 256) * chunks)) as origin:
        origin.serves, origin.others = serves, others
        got = cache.fetch(origin.url)
        assert got.path.read_bytes() == origin.content
        assert origin.most_serving <= serves
        assert origin.turned_away or chunks < 16, "more were tried"
        assert got.seconds < 20


@pytest.mark.parametrize("fault", ["throttled-minute", "throttled-long"])
def test_one_that_refuses_all_is_told(cache: Cache, origin: Origin, fault: str) -> None:
    """Of whom nothing comes nobody is one too many."""
    origin.faults = lambda _: fault
    cache.impatient(patience=Seconds(1.0))
    with pytest.raises(SourceUnavailable):
        cache.fetch(origin.url)
