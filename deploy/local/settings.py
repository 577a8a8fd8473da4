"""Numbers of the local cluster. Those that users may change are in `deploy.settings`; compose passes them on."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from deploy.local.progress import StartDeadline
from events.types.replicas import Card
from events.units import Seconds


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """Settings of a `LocalCluster`."""

    node: str = "local"
    gpus: int | None = None
    """None: the real cards. N: at most N of them or, on a machine without any, N virtual ones."""
    made_up: tuple[Card, ...] = ()
    """Virtual cards that are declared one by one; then there are no others."""
    gpu_limiter: Path | None = None
    """The library that keeps fractions of real cards to their memory; None: nothing does."""
    cpu: float | None = None
    """Cores for all replicas together; None: all there are."""
    memory_bytes: int | None = None
    """Bytes for all replicas together; None: all there are, less what relume keeps for itself."""
    host: str = "127.0.0.1"
    """Where replicas listen."""
    drain_bound: Seconds = Seconds(300.0)
    """A draining replica is stopped after its model's `timeouts.total`, and after this at the latest. Five minutes:
    longer than nearly all answers, and the longest that a lost `replica.drained` can keep a card busy."""
    grace: Seconds = Seconds(5.0)
    """SIGTERM to SIGKILL when a replica is stopped."""
    orphan_grace: Seconds = Seconds(1.0)
    """The same when relume itself is dead: nobody is left to read what the engine still says."""
    adopt_within: Seconds = Seconds(0.0)
    """How long replicas serve on when relume is dead, for the next one to take them over; 0: they end with it."""
    start_deadline: StartDeadline = field(default_factory=StartDeadline)
    start_places: int | None = None
    """Starts at the same time; None: four a core. More wait in the phase `place`."""
    start_place_bound: Seconds = Seconds(10.0)
    """A start keeps its place so long at most, so that hung starts of one model do not keep another's waiting."""
    warmup_bound: Seconds = Seconds(120.0)
    """Longest one-token request."""
    watch_every: Seconds = Seconds(1.0)
    """Between two looks at what the processes use."""
    metrics_every: Seconds = Seconds(2.0)
    """Between two readings of a ready replica's metrics."""
    sleep_memory: int = 0
    """Bytes of the node's memory that are kept for replicas that sleep; 0: none sleeps."""
    sleep_bound: Seconds = Seconds(120.0)
    """Longest step of a falling asleep or a wake: level 2 reads all weights again."""
    suspect_bound: Seconds = Seconds(2.0)
    """In which a suspected replica must answer its health check; it gets two tries."""
    suspect_token_bound: Seconds = Seconds(30.0)
    """In which it must then answer a one-token request, if it says that it has a slot free."""
    log_bytes: int = 5 << 20
    """Of a replica's log, and again as much of what was before it."""
    log_files: int = 200
    """Kept in all; the oldest go."""
    niceness: int = 5
    """How far engines stand back behind relume when cores run short, so that the gateway's relaying never waits for
    the arithmetic of an engine."""
    pin_cores: bool = True
    """Keep each replica on as many cores as it was granted (Linux)."""
    training_niceness: int = 10
    """The same of training jobs: behind the engines, since nobody waits for a step."""
    training_adopt_within: Seconds = Seconds(3600.0)
    """How long training goes on when relume is dead, for the next one to take it over. Chosen: time to notice and to
    restart it by hand; a step that is trained meanwhile is not lost."""
