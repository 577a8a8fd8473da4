"""Which partition a key belongs to: murmur2 as Kafka's default partitioner computes it, so that all logs agree."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995  # murmur2's multiplier (Austin Appleby, public domain)
_SEED = 0x9747B28C  # the seed that Kafka's Utils.murmur2 uses

OWNERSHIP = "ownership/"
"""Keys ``ownership/PARTITION`` stand in the partition that they name: who reads a partition reads who owns it."""


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash of `data` as a signed number, as Java shows it."""
    length = len(data)
    whole = length & ~3
    h = (_SEED ^ length) & _MASK
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    if whole != length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h & 0x80000000 else h


KNOWN: Final = 16_384
"""Keys whose partition is remembered: the hash costs 4 us, and a log has far more events than keys."""


@lru_cache(maxsize=KNOWN)
def partition_of(key: str, partitions: int) -> int:
    """The partition of `key`, 0 ≤ n < `partitions`: the hash without its sign bit, modulo; of ``ownership/N``, N."""
    if partitions == 1:
        return 0
    if key.startswith(OWNERSHIP) and key[len(OWNERSHIP) :].isdecimal():
        return int(key[len(OWNERSHIP) :][:18]) % partitions
    return (murmur2(key.encode()) & 0x7FFFFFFF) % partitions
