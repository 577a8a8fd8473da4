"""What a simulated cluster is like: how long requests and starts take, what there is, what goes wrong. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isnan

from events.types.replicas import Phase
from events.units import Seconds


@dataclass(frozen=True, slots=True)
class Service:
    """How long one request takes on a replica that runs `others` beside it, in seconds.

    First token: `base` and `prefill` for each input token; then `decode` for each output token; each other request
    slows all of that by `crowding`; or `curve` says how many times as long it takes with so many at once, by points
    with straight lines between them. Whether who comes later slows it too is the setting's (`Setting.sharing`).

    The defaults are a choice of this project, of the size of a large model on one accelerator: 4,000 tokens read and 40
    written a second, and at 16 at once each is written 1.45 times as slowly (batching of decodes is cheap, not free).
    """

    base: Seconds = Seconds(0.02)
    prefill: Seconds = Seconds(0.00025)
    decode: Seconds = Seconds(0.025)
    crowding: float = 0.03
    curve: tuple[tuple[int, float], ...] = ()

    def slow(self, running: int) -> float:
        """How many times as long a request takes while so many run, itself among them."""
        if not self.curve:
            return 1.0 + self.crowding * (running - 1)
        (before, factor), *rest = self.curve
        for upto, slower in rest:
            if running <= upto:
                part = max(0.0, running - before) / (upto - before)
                return factor + part * (slower - factor)
            before, factor = upto, slower
        return factor

    def times(
        self, tokens: tuple[int, int], seconds: float, others: int, *, alone: bool = False
    ) -> tuple[float, float]:
        """To the first token and to the last. `seconds`: as the trace tells it, for a request alone; NaN: not told.
        `alone`: as if nobody were beside it.

        Where only seconds are told, nothing is known of the first token: it is taken to come after `base`.
        """
        slow = 1.0 if alone else self.slow(others + 1)
        if not isnan(seconds):
            return min(self.base, seconds) * slow, seconds * slow
        first = (self.base + self.prefill * tokens[0]) * slow
        return first, first + self.decode * tokens[1] * slow


PHASES = ((Phase.SPAWN, 0.1), (Phase.LOAD, 0.8), (Phase.WARMUP, 0.1))
"""The parts of a start, with weights on the node."""


@dataclass(frozen=True, slots=True)
class Starting:
    """`seconds`: of a typical start; each differs by a log-normal factor of `spread`. `fails`: the part that fails."""

    seconds: Seconds = Seconds(30.0)
    spread: float = 0.2
    fails: float = 0.0


@dataclass(frozen=True, slots=True)
class Slowness:
    """From `at` on (seconds of the simulation) requests that begin take `factor` times as long."""

    at: float
    factor: float


@dataclass(frozen=True, slots=True)
class Silence:
    """From `begin` to `end` no window reaches the autoscaler."""

    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Setting:
    """A whole simulation. `gpus`: in the pool (None: enough); `gpus_each`: of one replica. `slo`: seconds from arrival
    to the first token that keep the objective. `max_wait`: how long a request is held. `settles`: seconds that go on
    after the last arrival and count too. `seed`: of the spread of starts. `priorities`: of single models. `sharing`:
    requests slow each other as long as they run, not only by who is there when one begins. `nodes`: GPUs of each node;
    `gpus` is then not asked. `neighbours`: by how much each other busy replica of a node slows one, with `sharing`."""

    service: Service = field(default_factory=Service)
    starting: Starting = field(default_factory=Starting)
    slots: int = 16
    max_replicas: int = 64
    gpus: int | None = None
    gpus_each: int = 1
    slo: Seconds = Seconds(5.0)
    max_wait: Seconds = Seconds(300.0)
    settles: Seconds = Seconds(600.0)
    seed: int = 0
    slowness: tuple[Slowness, ...] = ()
    silences: tuple[Silence, ...] = ()
    priorities: tuple[tuple[str, int], ...] = ()
    sharing: bool = False
    nodes: tuple[int, ...] = ()
    neighbours: float = 0.0

    def factor(self, at: float) -> float:
        """How many times as long a request takes that begins then."""
        found = 1.0
        for one in self.slowness:
            if one.at <= at:
                found = one.factor
        return found

    def silent(self, at: float) -> bool:
        """Whether windows are lost then."""
        return any(one.begin <= at < one.end for one in self.silences)
