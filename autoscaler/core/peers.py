"""What policies are set by beside `ScalingPolicy`, and what those of other autoscalers remember. Values only: the rules
are in `policies`.

Each has a `kind`, so that it can be told from the others when it is read from a record.
"""

from __future__ import annotations

from typing import Literal

from events.kinds import value
from events.types.shared import Amount, At, Count
from events.units import Seconds


@value
class RelumeOptions:
    """Ours. `keep_extra`: how long replicas beyond the first live after they were needed; None: as the first does."""

    kind: Literal["relume"] = "relume"
    keep_extra: Seconds | None = None


@value
class KpaOptions:
    """Knative's autoscaler. Defaults: `config/core/configmaps/autoscaler.yaml` of knative/serving 98e5ef90.

    `utilisation`: the part of a replica's target that is aimed at. `panic_threshold`: how many times the ready replicas
    demand must need for panic. `up_rate`, `down_rate`: by how much one decision may multiply or divide. `burst`: target
    burst capacity, requests that must fit at once before the hold queue leaves the path; -1: it never does.
    `retention`: the last replica stays so long after it was found idle; `delay`: fewer only after so long.
    """

    kind: Literal["kpa"] = "kpa"
    utilisation: float = 0.7
    panic_threshold: float = 2.0
    up_rate: float = 1000.0
    down_rate: float = 2.0
    activation_scale: int = 1
    burst: float = 211.0
    grace: Seconds = Seconds(30.0)
    retention: Seconds = Seconds(0.0)
    delay: Seconds = Seconds(0.0)


@value
class HpaOptions:
    """Kubernetes' Horizontal Pod Autoscaler, as it is delivered: a look each 15 s, a tolerance of a tenth, up by four
    replicas or to twice in 15 s (the larger), down to the most wanted in 300 s."""

    kind: Literal["hpa"] = "hpa"
    sync: Seconds = Seconds(15.0)
    tolerance: float = 0.1
    stabilisation: Seconds = Seconds(300.0)
    up_pods: int = 4
    up_factor: float = 1.0
    up_period: Seconds = Seconds(15.0)


@value
class KedaOptions:
    """KEDA: between zero and one by `activation` and `cooldown`, above one by the `hpa` that it drives.

    `polling`: how often activity is looked at. 500 ms is KEDA's HTTP add-on, which looks at concurrency as we do; a
    source that KEDA polls itself has 30 s.
    """

    kind: Literal["keda"] = "keda"
    polling: Seconds = Seconds(0.5)
    activation: float = 0.0
    cooldown: Seconds = Seconds(300.0)
    hpa: HpaOptions = HpaOptions()


@value
class ConcurrencyOptions:
    """KubeAI (`config/system.go` of f442a2cd): a sample each `interval`, their mean over `window`, and as many votes in
    a row for fewer as fill `delay`."""

    kind: Literal["concurrency"] = "concurrency"
    interval: Seconds = Seconds(10.0)
    window: Seconds = Seconds(600.0)
    delay: Seconds = Seconds(30.0)


Options = RelumeOptions | KpaOptions | HpaOptions | KedaOptions | ConcurrencyOptions


@value
class Sample:
    """A number and when it was taken."""

    at: At
    amount: Amount


@value
class KpaMemory:
    """Of `kpa`. `decided_at`: the last tick. `began_at`: since when there is demand without a quiet stable window.
    `panic_since`, `panic_most`: as in Knative. `delayed`: numbers of the delay window, falling. `active_since`,
    `idle_since`: since when more than zero, or zero, was wanted. `path_since`: since when the hold queue has been in
    the path, as the burst capacity that is left says."""

    kind: Literal["kpa"] = "kpa"
    decided_at: At
    began_at: At | None = None
    panic_since: At | None = None
    panic_most: Count = 0
    delayed: tuple[Sample, ...] = ()
    active_since: At | None = None
    idle_since: At | None = None
    path_since: At | None = None


@value
class HpaMemory:
    """Of `hpa` and `keda`. `synced_at`: the last look. `wanted`: recommendations of the stabilisation window, falling.
    `raised`: replicas added in the last period. `active_at`: when something was last active; `polled_at`."""

    kind: Literal["hpa"] = "hpa"
    synced_at: At | None = None
    wanted: tuple[Sample, ...] = ()
    raised: tuple[Sample, ...] = ()
    active_at: At | None = None
    polled_at: At | None = None


@value
class SamplesMemory:
    """Of `concurrency`: samples, newest last, and the votes for fewer so far."""

    kind: Literal["samples"] = "samples"
    sampled_at: At
    samples: tuple[float, ...] = ()
    votes: Count = 0


@value
class KeptMemory:
    """Of `keepalive`: what was needed, each until when it is kept; falling."""

    kind: Literal["kept"] = "kept"
    kept: tuple[Sample, ...] = ()


@value
class IdleMemory:
    """Of `hybrid-histogram`: the present minute ends at `ends_at`, and `most` was needed in it; before it the app has
    been idle for `idle` minutes (None: never busy) after it needed `needed`. `counts`: (minutes, how often it idled so
    long); `beyond`: the last idle times that no bin holds, `beyond_count`: how many."""

    kind: Literal["idle"] = "idle"
    ends_at: At
    most: Count = 0
    idle: Count | None = None
    needed: Count = 0
    counts: tuple[tuple[int, int], ...] = ()
    beyond: tuple[int, ...] = ()
    beyond_count: Count = 0


PeerMemory = KpaMemory | HpaMemory | SamplesMemory | KeptMemory | IdleMemory


def keep_most(kept: tuple[Sample, ...], new: Sample, since: float, most: int) -> tuple[Sample, ...]:
    """The samples after `since` that no later one reaches, with the new one: the first is their largest. Of more than
    `most` the oldest stand for the next ones too."""
    left = [one for one in kept if one.at > since and one.amount > new.amount]
    left.append(new)
    while len(left) > most:  # two steps become one, as high as the higher and as late as the later: it holds longer
        left[0:2] = [Sample(at=left[1].at, amount=left[0].amount)]
    return tuple(left)
