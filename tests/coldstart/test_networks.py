"""How fast bytes come, by place."""

from __future__ import annotations

import pytest

from coldstart.core.cache.wanted import Access, Wanted
from coldstart.core.networks import PLACES_MOST, Networks, place_of


def test_each_place_has_its_own_speed() -> None:
    """What comes from one says nothing of another; of one that is not known, all together is expected."""
    networks = Networks()
    near, far = Wanted("http://near:9000/a"), Wanted("hf://org/name@main")
    assert networks.of(near) is None
    networks.measured(near, 1e9)
    networks.measured(far, 1e7)
    networks.measured(Wanted("http://near:9000/b"), 2e9)
    assert networks.of(near) == pytest.approx(1.3e9)
    assert networks.of(Wanted("hf://other/model")) == pytest.approx(1e7)
    assert networks.of(Wanted("s3://bucket/key")) == networks.all_together
    assert networks.all_together == pytest.approx(0.7 * (0.7e9 + 0.3e7) + 0.6e9)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Wanted("https://me:secret@host/a"), Wanted("https://host/b/c"), True),
        (Wanted("https://host/a"), Wanted("https://host:8443/a"), False),
        (Wanted("s3://one/a"), Wanted("s3://two/a"), False),
        (Wanted("s3://one/a"), Wanted("s3://one/a", access=Access(endpoint="http://near:9000")), False),
        (Wanted("hf://a/b"), Wanted("hf://c/d@main"), True),
        (Wanted("http://[::1/a"), Wanted("http://[::1/b"), True),
    ],
)
def test_what_is_one_place(one: Wanted, other: Wanted, same: bool) -> None:
    """Host and port, bucket or hub, and where the store is."""
    assert (place_of(one) == place_of(other)) is same
    assert "secret" not in place_of(one)


def test_they_are_bounded() -> None:
    """Those heard of longest ago are forgotten."""
    networks = Networks()
    for number in range(PLACES_MOST + 10):
        networks.measured(Wanted(f"http://host-{number}/a"), 1.0 + number)
        networks.measured(Wanted("http://host-0/a"), 1e6)
    assert networks.of(Wanted("http://host-1/a")) == networks.all_together
    assert networks.of(Wanted("http://host-0/a")) == pytest.approx(1e6)
    assert networks.of(Wanted(f"http://host-{PLACES_MOST}/a")) == 1.0 + PLACES_MOST
