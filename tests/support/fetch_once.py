"""One fetch in a process of its own, to be killed: ``python -m tests.support.fetch_once FOLDER URL CHUNK
[CONNECTIONS]``, over so many connections from the beginning."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from coldstart.adapters.sources import source_of
from coldstart.cache.wanting import Progress, Wanted
from coldstart.cache.weights import WeightCache
from coldstart.core.cache.policy import FetchPolicy, RoomPolicy
from events.clock import SystemClock


def main() -> None:
    """Fetch, and print how many bytes the source gave."""
    folder, url, chunk, *connections = sys.argv[1:]
    policy = FetchPolicy(chunk_bytes=int(chunk))
    if connections:
        policy = replace(policy, connections_first=int(connections[0]), ahead_chunks=1000)
    weights = WeightCache(Path(folder), policy, RoomPolicy(), SystemClock())
    got = weights.fetch(Wanted(url), source_of(url, {}, policy, SystemClock()), Progress())
    sys.stdout.write(f"{got.transferred}\n")


if __name__ == "__main__":
    main()
