"""What is always so of a status, whatever is known."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from deploy.api.shapes import ModelState
from deploy.api.status import Facts, model_status
from events.types.decisions import WishDecided
from events.types.grants import GrantDecided, Placement, ReplicaGrant, Shortage
from events.types.models import ModelDeclared, Override
from events.types.replicas import ReplicasObserved, ReplicaState
from events.types.requests import Levels
from events.types.shared import Resources
from events.units import Instant
from tests.support.admin import observed, replica

UIDS = st.sampled_from(["u", "old"])

OBSERVED = st.builds(
    lambda states, failures, uid: observed(
        *(replica(f"echo-r1-{n}", state, uid) for n, state in enumerate(states)), failures=failures, uid=uid
    ),
    st.lists(st.sampled_from(ReplicaState), max_size=6), st.integers(0, 5), UIDS,
)  # fmt: skip


def _grant(count: int, drained: int, short: int, uid: str) -> GrantDecided:
    where = Placement(node="local")
    replicas = tuple(
        ReplicaGrant(replica=f"r{n}", revision=1, placement=where, resources=Resources(), drain=n < drained)
        for n in range(count)
    )
    shortage = Shortage(replicas=short, resources=Resources(), message="none is free") if short else None
    return GrantDecided(model="echo", uid=uid, revision=1, wished=count, replicas=replicas, shortage=shortage)


GRANTS = st.builds(_grant, st.integers(0, 4), st.integers(0, 4), st.integers(0, 3), UIDS)
WISHES = st.builds(
    lambda replicas, uid: WishDecided(model="echo", uid=uid, revision=1, replicas=replicas, priority=1, reasons=("x",),
                                      snapshot={}, policy={}, memory={}),
    st.integers(0, 5), UIDS,
)  # fmt: skip
DECLARED = st.builds(
    lambda deleted, override: ModelDeclared(model="echo", uid="u", revision=1, generation=1, spec={}, deleted=deleted,
                                            override=override),
    st.booleans(),
    st.none() | st.builds(Override, replicas=st.integers(0, 3), until=st.sampled_from([500.0, 1500.0])),
)  # fmt: skip
FACTS = st.builds(
    Facts, declared=DECLARED, now=st.just(Instant(1000.0)), wish=st.none() | WISHES, grant=st.none() | GRANTS,
    observed=st.none() | OBSERVED,
    levels=st.none() | st.builds(Levels, running=st.integers(0, 9), waiting=st.integers(0, 9)),
)  # fmt: skip


def _seen(facts: Facts) -> ReplicasObserved | None:
    return facts.observed if facts.observed and facts.observed.uid == "u" else None


@given(FACTS)
def test_state_and_numbers_agree(facts: Facts) -> None:
    """Ready means a ready replica; Zero means that nothing runs or starts; failed replicas are counted nowhere."""
    status = model_status(facts)
    if status.state is ModelState.READY:
        assert status.ready_replicas > 0
    if status.ready_replicas and not facts.declared.deleted:
        assert status.state is ModelState.READY
    if status.state is ModelState.ZERO:
        assert status.replicas == 0
    assert status.replicas == status.ready_replicas + status.starting_replicas + status.draining_replicas


@given(FACTS)
def test_every_trouble_has_a_reason(facts: Facts) -> None:
    """Whoever sees Starting, Draining or Failed is told why in a word and in a sentence."""
    status = model_status(facts)
    if status.state in {ModelState.STARTING, ModelState.DRAINING, ModelState.FAILED}:
        assert status.reason
        assert status.message


@given(FACTS)
def test_another_uid_changes_nothing(facts: Facts) -> None:
    """What carries another uid is void: taking it away gives the same status."""
    without = replace(
        facts,
        wish=facts.wish if facts.wish and facts.wish.uid == "u" else None,
        grant=facts.grant if facts.grant and facts.grant.uid == "u" else None,
        observed=_seen(facts),
    )
    assert model_status(facts) == model_status(without)
