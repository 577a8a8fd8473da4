"""How long a model takes to start, learned from the starts that were seen; and how fast its queue drains.

Deterministic: the same observations in the same order give the same answer. Unknown is None, never a guess: before a
start of this model was seen, nobody can say when it will be ready.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from coldstart.core.phases import beside_fetch, durations
from coldstart.core.whereabouts import ToFetch
from events.types.replicas import Phase, PhaseSpan, ReplicasObserved, ReplicaState, ReplicaStatus, StartWeights
from events.units import Instant, Seconds

STARTS_KEPT = 10
"""Starts that an estimate remembers. Enough for a median that one slow start does not move, few enough that a new node,
a cold page cache or a new file shows after five starts. Chosen by reasoning, not measured."""

OVERRUN = 0.5
"""A phase that has lasted longer than ever seen is expected to last half as long again: for durations with a heavy tail
what is left grows with what has passed; the factor is a choice, and right only in its direction."""

STARTING_PHASES = (Phase.PLACE, Phase.FETCH, Phase.SPAWN, Phase.LOAD, Phase.WARMUP)
"""The phases that a replica goes through by itself. `hold` is the time of the autoscaler and the allocator."""

WAKING_PHASES = (Phase.WAKE, Phase.WARMUP)
"""Those of a replica that slept. Its starts are learned by themselves: they say nothing of a cold one."""


class StartEstimate:
    """What is known of one model's start time."""

    __slots__ = ("_beside", "_learned", "_reads", "_samples", "_wakes")

    def __init__(self) -> None:
        self._beside = False
        self._samples: dict[Phase, deque[float]] = {}
        self._reads: deque[float] = deque(maxlen=STARTS_KEPT)
        """What reading ahead of the engine took, of starts whose weights were on the disk. It goes on beside spawn and
        load, so it is no part of a sum."""
        self._wakes: dict[Phase, deque[float]] = {}
        self._learned: frozenset[tuple[str, float]] = frozenset()

    @property
    def known(self) -> bool:
        """Whether a finished start was seen."""
        return bool(self._samples)

    def fold(self, observed: ReplicasObserved) -> None:
        """Learn from the replicas of a model: each start that ended in ready counts once, however often observed."""
        ready = {
            (status.replica, status.ready_at): status
            for status in observed.replicas
            if status.ready_at is not None and status.state in (ReplicaState.READY, ReplicaState.DRAINING)
        }
        for start in sorted(ready.keys() - self._learned, key=lambda key: (key[1], key[0])):
            self._learn(ready[start])
        self._learned = frozenset(ready)

    def eta(self, now: Instant, spans: Sequence[PhaseSpan] = (), weights: StartWeights | None = None) -> Seconds | None:
        """Seconds from `now` to ready, as likely as not, for a start that has gone through `spans` so far.

        Without spans: a start that begins now. While `weights` are fetched, what is left of them at their present rate
        counts, not what earlier fetches took. None: no start of this model was ever seen to its end. Then, of one that
        fetches, the rest of the fetch is told: it takes so long at least.
        """
        return self._eta(now, spans, 0.5, fetch_rest(now, weights))

    def whole(self, fetch: ToFetch | None, rank: float = 0.5) -> Seconds | None:
        """Seconds of a start that begins now and has to `fetch` that; None there: as starts had to until now.

        What earlier starts fetched does not count where this one has nothing to fetch. Where it has, and how long that
        takes is not known, those count that fetched. Of a model that never started the least of its fetch is told.
        """
        if fetch is None:
            return self._eta(Instant(0.0), (), rank, None)
        if not self._samples:
            return fetch.least or None
        engine = sum(quantile(seen, rank) for phase, seen in self._samples.items() if phase is not Phase.FETCH)
        fetched = [seconds for seconds in self._samples[Phase.FETCH] if seconds > 0]
        usual = quantile(fetched, rank) if fetched else 0.0
        bytes_come = usual if fetch.least is None else fetch.least
        return Seconds(engine + bytes_come - self.hidden(bytes_come, rank))

    def hidden(self, fetch: float, rank: float = 0.5) -> Seconds:
        """Seconds of the engine's spawn that pass while a fetch takes `fetch`: none where it begins after it."""
        if not self._beside or not self._samples:
            return Seconds(0.0)
        return Seconds(min(fetch, quantile(self._samples[Phase.SPAWN], rank)))

    def wake(self, rank: float = 0.5) -> Seconds | None:
        """Seconds in which a replica that sleeps is ready, at this rank of the wakes that were seen; None: none was."""
        return Seconds(sum(quantile(seen, rank) for seen in self._wakes.values())) if self._wakes else None

    def eta_at_most(
        self, now: Instant, spans: Sequence[PhaseSpan] = (), weights: StartWeights | None = None
    ) -> Seconds | None:
        """As `eta`, for whoever should rather come late than early: nine starts of ten are quicker, phase by phase."""
        return self._eta(now, spans, 0.9, fetch_rest(now, weights))

    def typical(self, phases: Sequence[Phase], rank: float = 0.5) -> Seconds | None:
        """Seconds of these phases together, each at this rank of the starts that were seen; None: none was seen. A
        phase that starts do not have (`wake`) takes none of them."""
        if not self._samples:
            return None
        return Seconds(sum(quantile(seen, rank) for phase in phases if (seen := self._samples.get(phase))))

    def quickest(self, spans: Sequence[PhaseSpan] = ()) -> dict[Phase, Seconds] | None:
        """Each phase at its quickest; None: no start was seen. With the spans of a wake: among wakes."""
        seen = self._wakes if woke(spans) else self._samples
        found = {phase: Seconds(min(some)) for phase, some in seen.items()}
        if found and self._reads:
            found[Phase.READ] = Seconds(min(self._reads))
        return found or None

    def _learn(self, status: ReplicaStatus) -> None:
        ended = [span for span in status.phases if span.ended_at is not None]
        if not ended:
            return
        seen = durations(ended, Instant(0.0))
        learned, phases = (self._wakes, WAKING_PHASES) if woke(ended) else (self._samples, STARTING_PHASES)
        if any(span.phase is Phase.FETCH for span in ended):
            self._beside = beside_fetch(ended)
        if Phase.READ in seen:
            self._reads.append(seen[Phase.READ])
        for phase in phases:
            learned.setdefault(phase, deque(maxlen=STARTS_KEPT)).append(seen.get(phase, Seconds(0.0)))

    def _eta(
        self, now: Instant, spans: Sequence[PhaseSpan], rank: float, fetch: Seconds | None
    ) -> Seconds | None:  # fmt: skip
        passed = durations(spans, now)
        running = {span.phase for span in spans if span.ended_at is None}
        samples, phases = (self._wakes, WAKING_PHASES) if woke(spans) else (self._samples, STARTING_PHASES)
        if not samples:
            return fetch if Phase.FETCH in running else None
        reached = max((phases.index(phase) for phase in passed if phase in phases), default=-1)
        left: dict[Phase, float] = {}
        for index, phase in enumerate(phases):
            if phase in running:
                known = fetch if phase is Phase.FETCH else None
                left[phase] = _rest(samples[phase], passed[phase], rank) if known is None else known
            elif index > reached:
                left[phase] = quantile(samples[phase], rank)
        beside = self._beside or beside_fetch(spans)
        both = min(left.get(Phase.FETCH, 0.0), left.get(Phase.SPAWN, 0.0)) if beside else 0.0
        return Seconds(sum(left.values()) - both)


def woke(spans: Sequence[PhaseSpan]) -> bool:
    """Whether these are the spans of a replica that slept."""
    return any(span.phase is Phase.WAKE for span in spans)


def _rest(samples: Sequence[float], passed: float, rank: float) -> float:
    """What is left of a phase that has lasted `passed`: from the starts in which it lasted longer."""
    longer = [sample - passed for sample in samples if sample > passed]
    return quantile(longer, rank) if longer else passed * OVERRUN


def fetch_rest(now: Instant, weights: StartWeights | None) -> Seconds | None:
    """Seconds until the last byte of weights that are on their way, at the rate that was told; None: unknown."""
    if weights is None or not weights.rate:
        return None
    return Seconds(max(0.0, (weights.bytes - weights.done) / weights.rate - (now - weights.at)))


def quantile(samples: Sequence[float], rank: float) -> float:
    """The smallest sample that at least `rank` of all are not above (nearest rank). `samples` must not be empty."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(rank * len(ordered)) - 1)]


class DrainRate:
    """How many requests a second leave a hold queue for a slot: an average that forgets exponentially."""

    __slots__ = ("_at", "_count", "_since")

    HALF_LIFE = 10.0
    """Seconds after which a grant counts half: a few answers of a language model, so that the rate follows a change of
    replicas within half a minute. Chosen by reasoning, not measured."""

    def __init__(self) -> None:
        self._count = 0.0
        self._at: Instant | None = None
        self._since: Instant | None = None

    def add(self, now: Instant) -> None:
        """One left."""
        self._count = self._faded(now) + 1.0
        self._at = now
        if self._since is None:
            self._since = now

    def rate(self, now: Instant) -> float | None:
        """Requests a second; None when none has left yet or all that have are long forgotten."""
        if self._at is None or self._since is None:
            return None
        count = self._faded(now)
        if count < 0.01:  # about seven half-lives after a single grant
            self._since = self._at = None
            self._count = 0.0
            return None
        # The weight that grants at a steady rate of one a second would have gathered since the first one.
        mean_life = self.HALF_LIFE / math.log(2)
        weight = mean_life * (1.0 - math.exp(-(now - self._since) / mean_life))
        return count / max(weight, 1.0)

    def _faded(self, now: Instant) -> float:
        if self._at is None:
            return 0.0
        return self._count * math.pow(0.5, (now - self._at) / self.HALF_LIFE)
