"""What the allocator takes from the log of wishes and of nodes' weights."""

from __future__ import annotations

from events.clock import SimulatedClock
from events.log import Position, Record
from events.names import Topic
from events.types.caches import CacheObserved, ModelWarmth
from events.types.decisions import WishDecided
from events.types.models import ModelDeclared
from events.units import Instant
from events.writer import EventWriter
from preemption.core.allocator import Pool
from preemption.core.view import AllocatorPolicy
from preemption.folding import AllocatorSettings, PoolFold
from tests.support.pool import node

NOW = Instant(1000.0)


def fold(*data: object, at: float = NOW) -> Pool:
    """A pool that has read these."""
    pool, writer = Pool(AllocatorPolicy()), EventWriter("relume/test", SimulatedClock())
    folded = PoolFold(pool, AllocatorSettings("me"))
    for offset, one in enumerate(data):
        folded.fold(Record(Position(Topic.CACHES, 0, offset), Instant(at), writer.envelope(one)))
    return pool


def declared(model: str, pod: dict[str, object] | None = None) -> ModelDeclared:
    spec = {"resources": {"gpus": 1, "cpu": 1, "memory": "1Gi"}, "scaling": {"maxReplicas": 4}}
    whole = spec if pod is None else spec | {"pod": pod}
    return ModelDeclared(model=model, uid=model, revision=1, generation=1, spec=whole)  # type: ignore[arg-type]  # tests name real fields


def wish(model: str, **fields: object) -> WishDecided:
    whole: dict[str, object] = {
        "model": model, "uid": model, "revision": 1, "replicas": 1, "priority": 100, "reasons": (), "snapshot": {},
        "policy": {}, "memory": {},
    }  # fmt: skip
    return WishDecided(**(whole | fields))  # type: ignore[arg-type]  # tests name real fields


def test_weights_of_nodes_are_folded_with_their_time() -> None:
    """The node that is nearest to the first token is taken, as long as what it said is not too old."""
    warm = CacheObserved(
        node="n2", used_bytes=0, capacity_bytes=1, models=(ModelWarmth(model="m", tier="memory", seconds=1.0),)
    )
    events = (node("n1", gpus=1), node("n2", gpus=2), declared("m"), warm, wish("m", waits=True))
    for later, where in ((10.0, "n2"), (500.0, "n1")):
        (grant,) = fold(*events).decide(Instant(NOW + later)).grants
        assert grant.replicas[0].placement.node == where


def test_what_a_wish_is_for_is_folded() -> None:
    """Of two models that have no place, the one that would only keep a replica comes last, whatever its gain."""
    events = (
        node("n1", gpus=1), declared("keeps"), declared("needs"), wish("keeps", kept=1, marginal_gain=9.0),
        wish("needs", waits=True),
    )  # fmt: skip
    grants = {grant.model: grant for grant in fold(*events).decide(NOW).grants}
    assert (len(grants["needs"].replicas), len(grants["keeps"].replicas)) == (1, 0)


def test_nodes_that_a_declaration_narrows_are_folded() -> None:
    """A model that no node may have is told which label is lacking."""
    seen = node("n1", gpus=1)
    labelled = type(seen)(node="n1", cpu=seen.cpu, memory_bytes=seen.memory_bytes, cards=seen.cards, labels={"a": "b"})
    (grant,) = fold(labelled, declared("m", {"nodeSelector": {"a": "c"}}), wish("m")).decide(NOW).grants
    assert grant.shortage is not None
    assert grant.shortage.message.endswith("n1 comes nearest: its label a is b, not c")
