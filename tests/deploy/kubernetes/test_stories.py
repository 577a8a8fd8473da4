"""What is known of a model, for its object: an end by another hand is news once."""

from __future__ import annotations

from deploy.kubernetes.stories import Stories
from events.clock import SystemClock
from events.types.replicas import ReplicasObserved, ReplicaState, ReplicaStatus


def seen(*replicas: tuple[str, ReplicaState, str]) -> ReplicasObserved:
    """The replicas of a model, each with a reason or none."""
    found = (ReplicaStatus(replica=name, uid="u", revision=1, state=state, reason=why) for name, state, why in replicas)
    return ReplicasObserved(model="echo", uid="u", replicas=tuple(found))


def test_an_end_by_another_hand_is_told_once() -> None:
    """A drain that we ordered has no reason; one with a reason is new when it is first seen, and again for another."""
    stories = Stories(SystemClock())
    ready, draining = ReplicaState.READY, ReplicaState.DRAINING
    states = [
        seen(("a", ready, ""), ("b", draining, "")),
        seen(("a", draining, "Deleted")),
        seen(("a", draining, "Deleted"), ("b", draining, "Evicted")),
        seen(("b", ready, "")),
        seen(("b", draining, "Deleted")),
    ]
    told = [[one.replica for one in stories.observed(state)] for state in states]
    assert told == [[], ["a"], ["b"], [], ["b"]]
