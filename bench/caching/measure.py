"""What the cache keeps of public traces beside other policies and the bound; what evictions cost in a large folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from bench import load
from bench.caching import folder
from bench.caching.bound import most
from bench.caching.keeping import Keeping, Kept, Ours, belady, gdsf, lfu, lru, play
from bench.caching.starts import Starts, starts_of
from bench.figures import Effort, Figure, median
from coldstart.cache.making_room import Rooms
from coldstart.core.cache.policy import RoomPolicy
from coldstart.core.cache.quotas import Charge
from deploy.simulation.minutes import MinuteTrace, read_azure_functions, read_femux
from events.units import Bytes
from tests.support.needs import traces_folder

FILES: Final[Mapping[str, tuple[str, Callable[[Path], MinuteTrace]]]] = {
    "Azure Functions": ("azure_functions_2019_sample500_invocations.csv.gz", read_azure_functions),
    "FeMux": ("femux_knative100_containers_per_min.csv.gz", read_femux),
}
SHARES: Final = (0.05, 0.2)
"""Sizes of the cache, as shares of all weights that are asked for."""
SEED: Final = 1
CHARGE: Final = Charge("https://models.example/new", Bytes(folder.SIZE), 1)
"""What each of these fetches would add to a quota, if there were one."""
OTHERS: Final[Mapping[str, Callable[[Starts], Keeping]]] = {"LRU": lru, "LFU": lfu, "GDSF": gdsf, "Belady": belady}


async def run(effort: Effort) -> list[Figure]:
    """Shares of bytes and of promises (per cent), then CPU milliseconds of evictions."""
    figures = []
    for name, (file, read) in FILES.items():
        if not (traces_folder() / file).exists():
            figures.append(Figure(f"{name}: what the cache keeps", why=f"the trace {file} is not there"))
            continue
        starts = starts_of(read(traces_folder() / file), SEED)
        for share in SHARES[:: effort.size(1, 2)]:
            figures += _kept(f"{name}, a cache of {share:.0%}", starts, int(starts.total * share))
    for count in (effort.size(1_000, 100), effort.size(10_000, 300)):
        figures += _evictions(count, effort.rounds)
    return figures


def _kept(what: str, starts: Starts, capacity: int) -> list[Figure]:
    ours = play(starts, Ours(starts), capacity)
    others = {name: play(starts, make(starts), capacity) for name, make in OTHERS.items()}
    others["no cache can exceed"] = most(starts, capacity)
    return [line for name, other in others.items() for line in _beside(what, ours, name, other)]


def _beside(what: str, ours: Kept, name: str, other: Kept) -> list[Figure]:
    return [
        Figure(f"{what}: starts within the promise", "%", 100 * ours.promises, name, 100 * other.promises),
        Figure(f"{what}: bytes found", "%", 100 * ours.bytes, name, 100 * other.bytes),
    ]


def _evictions(count: int, rounds: int) -> list[Figure]:
    with load.scratch() as scratch:
        root = Path(scratch) / "cache"
        layout = folder.fill(root, count)
        walks, fits, evicts = [], [], []
        roomy = Rooms(layout, RoomPolicy(capacity=Bytes(2 * count * folder.SIZE)))
        full = Rooms(layout, RoomPolicy(capacity=Bytes(count * folder.SIZE)))
        _cpu_ms(
            lambda: full.promise("first", {layout.partial / "first": Bytes(folder.SIZE)}, CHARGE)
        )  # reads all manifests
        for index in range(rounds):
            walks.append(_cpu_ms(lambda: folder.walked(root)))
            one = {layout.partial / str(index): Bytes(folder.SIZE)}
            fits.append(_cpu_ms(lambda one=one: roomy.promise("one", one, CHARGE)))
            evicts.append(_cpu_ms(lambda index=index, one=one: full.promise(str(index), one, CHARGE)))
    what, yardstick = f"room among {count:,} weights", "looking at each file once"
    walked = median(walks)
    return [
        Figure(f"{what}: there is room", "ms CPU", median(fits), yardstick, walked, low=min(fits), high=max(fits)),
        Figure(
            f"{what}: one is evicted", "ms CPU", median(evicts), yardstick, walked, low=min(evicts), high=max(evicts)
        ),
    ]


def _cpu_ms(act: Callable[[], object]) -> float:
    began = time.process_time()
    act()
    return (time.process_time() - began) * 1000
