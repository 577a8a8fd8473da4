"""The partitioner agrees with Kafka's."""

from __future__ import annotations

import pytest

from events.partitions import murmur2, partition_of


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_murmur2(text: str, hashed: int) -> None:
    """The vectors of Kafka's own UtilsTest."""
    assert murmur2(text.encode()) == hashed


def test_partition_of() -> None:
    """The hash without its sign bit, modulo; one partition needs no hash; all partitions are used."""
    assert partition_of("foobar", 1) == 0
    assert partition_of("foobar", 7) == (-790332482 & 0x7FFFFFFF) % 7
    assert {partition_of(f"model/{n}", 8) for n in range(200)} == set(range(8))


def test_ownership_names_its_partition() -> None:
    """Whatever the number of partitions; what only looks like it is hashed as any key."""
    assert [partition_of(f"ownership/{number}", 12) for number in (0, 3, 11, 12)] == [0, 3, 11, 0]
    assert partition_of("ownership/3", 1) == 0
    assert partition_of("ownership/" + "9" * 5000, 7) in range(7)
    for key in ("ownership/", "ownership/a", "ownership/-1"):
        assert partition_of(key, 1000) == (murmur2(key.encode()) & 0x7FFFFFFF) % 1000
