"""The status of a model, as a table: one row a rule."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from deploy.api.status import Facts, model_status
from events.types.decisions import WishDecided
from events.types.grants import GrantDecided, Placement, ReplicaGrant, Shortage
from events.types.models import ModelDeclared, Override
from events.types.replicas import ReplicasObserved, ReplicaState
from events.types.requests import Levels
from events.types.shared import Resources
from events.units import Instant
from preemption.core.view import Reason
from tests.support.admin import observed, replica

NOW = Instant(1000.0)

R = ReplicaState


def declared(*, deleted: bool = False, override: Override | None = None) -> ModelDeclared:
    return ModelDeclared(model="echo", uid="u", revision=1, generation=1, spec={}, deleted=deleted, override=override)


def wish(replicas: int, uid: str = "u") -> WishDecided:
    return WishDecided(
        model="echo", uid=uid, revision=1, replicas=replicas, priority=100, reasons=("edge",), snapshot={}, policy={},
        memory={},
    )  # fmt: skip


def grant(count: int, shortage: int = 0, uid: str = "u") -> GrantDecided:
    names = tuple(
        ReplicaGrant(replica=f"echo-r1-{i}", revision=1, placement=Placement(node="local"), resources=Resources())
        for i in range(count)
    )
    short = Shortage(replicas=shortage, resources=Resources(gpus=1), message="1 GPU is wanted, none is free")
    return GrantDecided(
        model="echo", uid=uid, revision=1, wished=count + shortage, replicas=names, shortage=short if shortage else None
    )  # fmt: skip


def broken(failures: int) -> ReplicasObserved:
    return observed(failures=failures, reason="Crashed", message="exit code 1", retry_at=1004.0)


@dataclass(frozen=True)
class Row:
    """Facts, and the state, reason and a part of the message that they mean."""

    id: str
    state: str
    reason: str = ""
    says: str = ""
    given: dict[str, object] = field(default_factory=dict)
    declared: ModelDeclared = field(default_factory=declared)


ROWS = (
    Row("nothing known", "Zero"),
    Row("nobody wants it", "Zero", given={"wish": wish(0), "grant": grant(0), "observed": observed()}),
    Row("wished", "Starting", "Wished", "allocator", {"wish": wish(1)}),
    Row("what was only kept went to others", "Zero", "Given", "the next request starts it",
        {"wish": wish(1), "grant": replace(grant(0), reasons=(Reason.WISH, Reason.GIVES_UP)), "observed": observed()}),
    Row("somebody asks again", "Starting", "Wished", given={
        "wish": wish(1), "grant": replace(grant(0), reasons=(Reason.WISH, Reason.GIVES_UP)),
        "levels": Levels(waiting=1)}),
    Row("granted", "Starting", "Granted", "1 replica", {"wish": wish(1), "grant": grant(1)}),
    Row("held requests alone", "Starting", "Wished", given={"levels": Levels(waiting=3)}),
    Row("no room", "Starting", "Shortage", "none is free", {"wish": wish(1), "grant": grant(0, 1)}),
    Row("loading", "Starting", "Load", "phase load", {"observed": observed(replica(state=R.STARTING))}),
    Row("ready", "Ready", given={"wish": wish(1), "observed": observed(replica())}),
    Row("ready beside starting", "Ready", given={"observed": observed(replica(), replica("b", R.STARTING))}),
    Row("ready and short", "Ready", "Shortage", "none is", {"grant": grant(1, 1), "observed": observed(replica())}),
    Row("ready, another cannot start", "Ready", "Crashed", "exit code 1",
        {"observed": observed(replica(), failures=1, reason="Crashed", message="exit code 1")}),
    Row("draining", "Draining", "ScaleIn", given={"wish": wish(0), "observed": observed(replica(state=R.DRAINING))}),
    Row("stopping", "Draining", "ScaleIn", given={"wish": wish(0), "observed": observed(replica(state=R.STOPPING))}),
    Row("wanted again while draining", "Starting", "Wished",
        given={"wish": wish(1), "observed": observed(replica(state=R.DRAINING))}),
    Row("one failed start", "Starting", "BackOff", "once: exit code 1", {"wish": wish(1), "observed": broken(1)}),
    Row("two failed starts", "Starting", "BackOff", "2 times", {"wish": wish(1), "observed": broken(2)}),
    Row("three failed starts", "Failed", "Crashed", "3 times", {"wish": wish(1), "observed": broken(3)}),
    Row("three, and trying again", "Failed", "Crashed", given={
        "observed": observed(replica(state=R.STARTING), failures=3, reason="Crashed")}),
    Row("failed earlier, nobody asks", "Zero", given={"wish": wish(0), "grant": grant(0), "observed": broken(1)}),
    Row("deleted", "Draining", "Deleted", "1 replica left", {"observed": observed(replica())}, declared(deleted=True)),
    Row("wish of another uid", "Zero", given={"wish": wish(1, "old")}),
    Row("replicas of another uid", "Zero", given={"observed": observed(replica(uid="old"), uid="old")}),
    Row("by hand to nothing", "Zero", given={"wish": wish(3)},
        declared=declared(override=Override(replicas=0, until=2000.0))),
    Row("by hand to nothing, and somebody asks", "Zero", "Override", "2 requests wait; by hand none is to run until",
        {"wish": wish(1), "levels": Levels(waiting=2)}, declared(override=Override(replicas=0, until=2000.0))),
    Row("asked while it recommends", "Zero", "Recommended", "1 request waits; the mode is recommend",
        {"wish": replace(wish(0), reasons=("Load", "Recommended")), "levels": Levels(waiting=1)}),
    Row("asked while it is paused", "Zero", "Paused", "the mode is paused, so nothing is started",
        {"wish": replace(wish(0), reasons=("Paused",)), "levels": Levels(waiting=1)}),
    Row("paused with one wished", "Starting", "Wished", given={"wish": replace(wish(1), reasons=("Paused",))}),
    Row("by hand to two", "Starting", "Wished", declared=declared(override=Override(replicas=2, until=2000.0))),
    Row("by hand, run out", "Starting", "Wished", given={"wish": wish(3)},
        declared=declared(override=Override(replicas=0, until=999.0))),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_state_reason_and_message(row: Row) -> None:
    """Each combination of facts means one state, with the reason that a person needs."""
    status = model_status(Facts(declared=row.declared, now=NOW, **row.given))  # type: ignore[arg-type]  # rows name them
    assert (status.state.value, status.reason) == (row.state, row.reason)
    assert row.says in status.message


def test_unknown_is_not_zero() -> None:
    """What nobody told is null in the status, never 0."""
    status = model_status(Facts(declared=declared(), now=NOW))
    assert (status.held_requests, status.running_requests) == (None, None)
    assert (status.wish, status.granted, status.shortage) == (None, None, None)
    assert [condition.status for condition in status.conditions] == ["Unknown"] * 3


def test_numbers() -> None:
    """Replicas are counted by state; failed ones are none."""
    replicas = (replica("a"), replica("b", R.STARTING), replica("c", R.DRAINING), replica("d", R.FAILED))
    facts = Facts(declared=declared(), now=NOW, wish=wish(5), grant=grant(3, 2), observed=observed(*replicas),
                  levels=Levels(running=4, waiting=7))  # fmt: skip
    status = model_status(facts)
    assert (status.replicas, status.ready_replicas, status.starting_replicas, status.draining_replicas) == (3, 1, 1, 1)
    assert (status.wish, status.granted, status.shortage) == (5, 3, 2)
    assert (status.running_requests, status.held_requests) == (4, 7)


def test_retry_time_only_while_failing() -> None:
    """retryAt is there while starts fail, with the time of the next try."""
    failing = model_status(Facts(declared=declared(), now=NOW, observed=broken(2)))
    assert (failing.failures, failing.retry_at) == (2, "1970-01-01T00:16:44.000000Z")
    healthy = model_status(Facts(declared=declared(), now=NOW, observed=observed(replica())))
    assert healthy.retry_at is None


def test_last_start_tells_its_phases() -> None:
    """The newest start is told phase by phase, with the seconds of each and of all."""
    status = model_status(Facts(declared=declared(), now=NOW, last_start=replica()))
    assert status.last_start is not None
    assert status.last_start.seconds == 2.0
    assert [(phase.phase, phase.seconds) for phase in status.last_start.phases] == [("spawn", 0.5), ("load", 1.5)]
