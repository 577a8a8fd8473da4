"""How fast bytes come from each place that weights are fetched from. Pure.

A store in the same building and a hub on another continent differ a hundredfold; one figure for both calls starts
impossible that are not, and the other way round.
"""

from __future__ import annotations

import re
from typing import Final

from coldstart.core.cache.wanted import Wanted

SMOOTH: Final = 0.3
"""Weight of the newest measurement of a bandwidth: it shows in three fetches. A choice."""

PLACES_MOST: Final = 256
"""Those heard of last are remembered. A choice: a node's models come from a few."""


_HOST_ENDS: Final = re.compile("[/?#]")


class Networks:
    """Bytes a second by place. Not thread-safe."""

    __slots__ = ("_by_place", "all_together")

    def __init__(self) -> None:
        self._by_place: dict[str, float] = {}
        self.all_together: float | None = None
        """Of all fetches, whatever their place: what is expected of a place that nothing came from yet."""

    def measured(self, wanted: Wanted, speed: float) -> None:
        """A fetch that nothing held back brought so many bytes a second."""
        place = place_of(wanted)
        known = self._by_place.pop(place, None)
        self._by_place[place] = smooth(known, speed)
        self.all_together = smooth(self.all_together, speed)
        if len(self._by_place) > PLACES_MOST:
            del self._by_place[next(iter(self._by_place))]

    def of(self, wanted: Wanted) -> float | None:
        """What to expect of its place; None: nothing was fetched yet."""
        return self._by_place.get(place_of(wanted), self.all_together)


def place_of(wanted: Wanted) -> str:
    """Whom bytes come from: host and port, bucket, or hub; and where the store is, if it is said."""
    scheme, _, rest = wanted.address.partition("://")
    host = _HOST_ENDS.split(rest, maxsplit=1)[0].rpartition("@")[2]
    name = "" if scheme == "hf" else host  # all repositories are one hub's
    return f"{scheme}://{name} {wanted.access.endpoint or ''}"


def smooth(before: float | None, now: float) -> float:
    """The newest measurement among those before it."""
    return now if before is None else before + SMOOTH * (now - before)
