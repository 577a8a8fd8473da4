"""`relume.caches` and the `weights.*` news: the weights of a node and what becomes of fetches, by its agent."""

from __future__ import annotations

from events.kinds import event, value
from events.names import Topic
from events.types.shared import Amount, At, Count

MOST_CONTENTS = 1000
"""Weights that one state tells of, the largest first: about 300 bytes each, and an event has 1 MiB at most."""


@value
class CachedWeights:
    """Weights that are here and verified. `source`: the address without secrets; `models`: who names them."""

    source: str
    digest: str
    bytes: Count
    models: tuple[str, ...] = ()
    pinned: bool = False
    in_use: bool = False
    fetched_at: At | None = None


@value
class WeightsFetching:
    """Weights on their way. `why`: ``demand`` or ``prewarm``; `waiting`: starts that wait for them."""

    source: str
    bytes: Count
    done: Count
    rate: Amount | None = None
    why: str = "demand"
    waiting: Count = 0


@value
class ModelWarmth:
    """How far a model is from its first token on this node.

    `tier`: where its weights are (``memory``, ``disk`` or ``remote``). `seconds`: from the start to the first token, by
    what this node measured; None: a part of it was never seen. `revision`: the model's declaration that this is of; 0:
    not told. `missing`: bytes that a start here would have to fetch; None: nobody has asked the source yet.
    """

    model: str
    tier: str
    bytes: Count | None = None
    seconds: Amount | None = None
    revision: Count = 0
    missing: Count | None = None


@event("relume.caches.observed", Topic.CACHES)
class CacheObserved:
    """The weights of a node, whole. State of key ``node/NAME``.

    `network`, `disk`, `digest`: bytes a second as measured. `untold`: contents beyond the most that are told. `peer`:
    where other nodes' agents read them (``http://HOST:PORT``); empty: nowhere.
    """

    node: str
    used_bytes: Count
    capacity_bytes: Count
    contents: tuple[CachedWeights, ...] = ()
    fetching: tuple[WeightsFetching, ...] = ()
    models: tuple[ModelWarmth, ...] = ()
    network: Amount | None = None
    disk: Amount | None = None
    digest: Amount | None = None
    untold: Count = 0
    peer: str = ""


@event("relume.weights.fetch_started", Topic.PHASES)
class WeightsFetchStarted:
    """Weights begin to come to a node; `why`: a start waits for them (``demand``), or probably will (``prewarm``)."""

    node: str
    source: str
    why: str
    models: tuple[str, ...] = ()


@value
class FetchTimes:
    """Seconds of a fetch. `prepare`: asking the source what there is, and making room, until the first byte was asked
    for; `network`, `disk` and `digest`: in which bytes were read, written and digested, at the same time for the most
    part, so that together they are more than the fetch took; `publish`: after the last of those until usable."""

    prepare: Amount
    network: Amount
    disk: Amount
    digest: Amount
    publish: Amount


@event("relume.weights.fetched", Topic.PHASES)
class WeightsFetched:
    """They are there and verified. `transferred`: bytes that the source gave: less than all where a fetch went on."""

    node: str
    source: str
    digest: str
    bytes: Count
    transferred: Count
    seconds: Amount
    models: tuple[str, ...] = ()
    times: FetchTimes | None = None


@event("relume.weights.failed", Topic.PHASES)
class WeightsFailed:
    """They could not be had, or are wanted no longer (`reason`: the error's name, such as NoSpace)."""

    node: str
    source: str
    reason: str
    message: str
    models: tuple[str, ...] = ()


@event("relume.weights.evicted", Topic.PHASES)
class WeightsEvicted:
    """They are no longer there. `why`: ``room``, ``asked``, or ``damaged`` when their bytes were no longer theirs."""

    node: str
    source: str
    digest: str
    bytes: Count
    why: str
