"""The plan: one row a rule, then what must hold for any view."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstart.core.policy import SleepPolicy
from deploy.local.plan import (
    Actual,
    ActualReplica,
    Command,
    Drain,
    Granted,
    Plan,
    Sleep,
    Start,
    Stop,
    TakeBack,
    Wake,
    plan,
)
from events.names import ReplicaName
from events.types.grants import Placement, ReplicaGrant
from events.types.replicas import ReplicaState
from events.types.shared import Resources
from events.units import Instant, Seconds

S = ReplicaState
NOW = Instant(1000.0)
BOUND = Seconds(30.0)
A, B = ReplicaName("m-r1-0"), ReplicaName("m-r1-1")


def grant(name: str = A, *, drain: bool = False, gpus: tuple[str, ...] = (), revision: int = 1) -> ReplicaGrant:
    """A granted replica."""
    placement = Placement(node="local", gpus=gpus)
    return ReplicaGrant(replica=name, revision=revision, placement=placement, resources=Resources(), drain=drain)


def actual(
    state: ReplicaState, name: ReplicaName = A, *, since: float | None = None, drained: bool = False, uid: str = "u",
    gpus: tuple[str, ...] = (), dozing: bool = False, sleeps: tuple[int, ...] = (1,), revision: int = 1,
) -> ActualReplica:  # fmt: skip
    """A replica that exists; `since`: it drains, or sleeps."""
    began = None if since is None else Instant(since)
    return ActualReplica(
        name, uid, state, gpus=gpus, draining_since=began, drained=drained, revision=revision, dozing=dozing,
        sleeps=frozenset(sleeps), sleeping_since=began if state is S.SLEEPING else None,
    )  # fmt: skip


def made(grants: tuple[ReplicaGrant, ...], replicas: tuple[ActualReplica, ...], **retry_at: float) -> Plan:
    """The plan for these, at `NOW`; `r1=…` says until when starts of revision 1 wait."""
    retries = {int(name[1:]): Instant(at) for name, at in retry_at.items()}
    return plan(Granted("u", grants, BOUND), Actual(replicas, retries), NOW)


def sleepy(grants: tuple[ReplicaGrant, ...], *replicas: ActualReplica, level: int | None = 1) -> Plan:
    """The plan where replicas of revision 1 sleep at a level for a minute; None: they do not."""
    policy = None if level is None else SleepPolicy(level, Seconds(60.0))
    return plan(Granted("u", grants, BOUND, revision=1, sleep=policy), Actual(replicas), NOW)


ROWS: list[tuple[str, Plan, tuple[Command, ...], float | None]] = [
    ("nothing is granted, nothing is", made((), ()), (), None),
    ("granted and absent starts", made((grant(),), ()), (Start(grant()),), None),
    ("two are granted", made((grant(), grant(B)), ()), (Start(grant()), Start(grant(B))), None),
    ("granted with drain and absent does not start", made((grant(drain=True),), ()), (), None),
    ("waits for its back-off", made((grant(),), (), r1=1005.0), (), 1005.0),
    ("back-off is over", made((grant(),), (), r1=1000.0), (Start(grant()),), None),
    ("back-off of another revision", made((grant(),), (), r2=1005.0), (Start(grant()),), None),
    ("starting goes on", made((grant(),), (actual(S.STARTING),)), (), None),
    ("ready goes on", made((grant(),), (actual(S.READY),)), (), None),
    ("starting and no longer granted", made((), (actual(S.STARTING),)),
     (Stop(A, "no longer granted while it started"),), None),
    ("starting and told to drain", made((grant(drain=True),), (actual(S.STARTING),)),
     (Stop(A, "no longer granted while it started"),), None),
    ("ready and no longer granted", made((), (actual(S.READY),)), (Drain(A),), None),
    ("ready and told to drain", made((grant(drain=True),), (actual(S.READY),)), (Drain(A),), None),
    ("draining and busy", made((), (actual(S.DRAINING, since=990.0),)), (), 1020.0),
    ("draining and done", made((), (actual(S.DRAINING, since=990.0, drained=True),)), (Stop(A, "drained"),), None),
    ("draining at the bound", made((), (actual(S.DRAINING, since=970.0),)),
     (Stop(A, "not drained within 30 s"),), None),
    ("draining and wanted again", made((grant(),), (actual(S.DRAINING, since=990.0),)), (TakeBack(A),), None),
    ("drained and wanted again", made((grant(),), (actual(S.DRAINING, since=990.0, drained=True),)),
     (TakeBack(A),), None),
    ("stopping is left to end", made((), (actual(S.STOPPING),)), (), None),
    ("failed is left to end", made((), (actual(S.FAILED),)), (), None),
    ("granted while the old one stops", made((grant(),), (actual(S.STOPPING),)), (), None),
    ("granted while the old one fails", made((grant(),), (actual(S.FAILED),)), (), None),
    ("of another declaration", made((grant(),), (actual(S.READY, uid="old"),)), (Drain(A),), None),
    ("on other cards", made((grant(gpus=("g1",)),), (actual(S.READY, gpus=("g0",)),)), (Drain(A),), None),
    ("on the same cards in another order", made((grant(gpus=("g1", "g0")),), (actual(S.READY, gpus=("g0", "g1")),)),
     (), None),
    ("ends come before starts", made((grant(B),), (actual(S.READY),)), (Drain(A), Start(grant(B))), None),
    ("drained and may sleep", sleepy((), actual(S.DRAINING, since=990.0, drained=True)), (Sleep(A, 1),), None),
    ("busy, and may sleep when it is done", sleepy((), actual(S.DRAINING, since=990.0)), (), 1020.0),
    ("cannot sleep at that level", sleepy((), actual(S.DRAINING, since=990.0, drained=True), level=2),
     (Stop(A, "drained"),), None),
    ("an older revision does not sleep", sleepy((), actual(S.DRAINING, since=990.0, drained=True, revision=0)),
     (Stop(A, "drained"),), None),
    ("another declaration's does not sleep", sleepy((), actual(S.DRAINING, since=990.0, drained=True, uid="old")),
     (Stop(A, "drained"),), None),
    ("falling asleep is left alone", sleepy((), actual(S.DRAINING, since=900.0, drained=True, dozing=True)), (), None),
    ("wanted while it falls asleep", sleepy((grant(),), actual(S.DRAINING, since=900.0, drained=True, dozing=True)),
     (), None),
    ("asleep", sleepy((), actual(S.SLEEPING, since=950.0)), (), 1010.0),
    ("asleep, named as draining", sleepy((grant(drain=True),), actual(S.SLEEPING, since=950.0)), (), 1010.0),
    ("asleep for long enough", sleepy((), actual(S.SLEEPING, since=940.0)),
     (Stop(A, "it slept for 60 s and nobody asked"),), None),
    ("asleep and wanted", sleepy((grant(),), actual(S.SLEEPING, since=900.0)), (Wake(A),), None),
    ("asleep, wanted on other cards", sleepy((grant(gpus=("g1",)),), actual(S.SLEEPING, since=950.0, gpus=("g0",))),
     (), 1010.0),
    ("asleep, and sleep is no longer declared", sleepy((), actual(S.SLEEPING, since=950.0), level=None),
     (Stop(A, "its model, or this revision of it, does not sleep any more"),), None),
    ("the earliest instant counts", made((grant(B),), (actual(S.DRAINING, since=999.0),), r1=1003.0), (), 1003.0),
]  # fmt: skip


@pytest.mark.parametrize(("got", "commands", "again_at"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_rule(got: Plan, commands: tuple[Command, ...], again_at: float | None) -> None:
    """Each view leads to these commands, and to this instant."""
    assert got == Plan(commands, None if again_at is None else Instant(again_at))


NAMES = [ReplicaName(f"m-r1-{index}") for index in range(4)]
GRANTS = st.lists(
    st.builds(grant, st.sampled_from(NAMES), drain=st.booleans()), max_size=4, unique_by=lambda one: one.replica
)
ACTUALS = st.lists(
    st.builds(
        actual, st.sampled_from(S), st.sampled_from(NAMES), since=st.none() | st.floats(900.0, 1000.0),
        drained=st.booleans(), uid=st.sampled_from(["u", "old"]),
    ),
    max_size=4, unique_by=lambda one: one.replica,
)  # fmt: skip


@given(GRANTS, ACTUALS)
def test_one_command_a_replica(grants: list[ReplicaGrant], replicas: list[ActualReplica]) -> None:
    """No replica gets two commands; only absent ones start; a ready one is never stopped without a drain."""
    got = made(tuple(grants), tuple(replicas))
    named = [one.grant.replica if isinstance(one, Start) else one.replica for one in got.commands]
    assert len(named) == len(set(named))
    states = {one.replica: one.state for one in replicas}
    for command in got.commands:
        match command:
            case Start(grant=granted):
                assert granted.replica not in states
                assert not granted.drain
            case Stop(replica=name):
                assert states[name] in (S.STARTING, S.DRAINING, S.SLEEPING)
            case Drain(replica=name):
                assert states[name] is S.READY
            case TakeBack(replica=name) | Sleep(replica=name):
                assert states[name] is S.DRAINING
            case Wake(replica=name):
                assert states[name] is S.SLEEPING


@given(GRANTS, ACTUALS)
def test_looks_again_in_the_future(grants: list[ReplicaGrant], replicas: list[ActualReplica]) -> None:
    """The next instant is never now or before: the cluster cannot spin."""
    again_at = made(tuple(grants), tuple(replicas), r1=1000.0).again_at
    assert again_at is None or again_at > NOW


def worth(asleep: int | None, *replicas: ActualReplica, grants: tuple[ReplicaGrant, ...] = ()) -> Plan:
    """The plan where so many of those that sleep are worth it, and the declared time is ten seconds."""
    granted = Granted("u", grants, BOUND, 1, SleepPolicy(1, Seconds(10.0)), asleep)
    return plan(granted, Actual(replicas), NOW)


def stopped(got: Plan) -> set[str]:
    return {one.replica for one in got.commands if isinstance(one, Stop)}


C = ReplicaName("m-r1-2")
ASLEEP_A, ASLEEP_B = (
    actual(S.SLEEPING, name, since=at, revision=1) for name, at in ((A, NOW - 900.0), (B, NOW - 5.0))
)  # fmt: skip
LIES_DOWN = actual(S.DRAINING, C, since=NOW - 1.0, drained=True, revision=1)


@pytest.mark.parametrize(
    ("asleep", "replicas", "gone"),
    [
        (None, (ASLEEP_A, ASLEEP_B), {A}),
        (2, (ASLEEP_A, ASLEEP_B), set()),
        (1, (ASLEEP_A, ASLEEP_B), {A}),
        (0, (ASLEEP_A, ASLEEP_B), {A, B}),
        (2, (ASLEEP_A, ASLEEP_B, LIES_DOWN), {A}),
        (0, (LIES_DOWN,), {C}),
        (1, (ASLEEP_A, replace(LIES_DOWN, drained=False)), set()),
        (1, (ASLEEP_A, replace(LIES_DOWN, sleeps=frozenset())), {C}),
        (0, (replace(LIES_DOWN, dozing=True),), {C}),
    ],
    ids=["the declared time", "both are worth it", "who has slept longest goes", "none is", "for one that comes",
         "one that would lie down", "one that still drains takes no bed", "nor one that cannot sleep", "a dozing one"],
)  # fmt: skip
def test_so_many_sleep_as_are_worth_it(asleep: int | None, replicas: tuple[ActualReplica, ...], gone: set[str]) -> None:
    """However long they slept; where it is not said the declared time counts."""
    assert stopped(worth(asleep, *replicas)) == gone


def test_one_that_is_wanted_again_takes_no_bed() -> None:
    """It is woken, whatever sleep is worth, and the other stays."""
    got = worth(1, ASLEEP_A, ASLEEP_B, grants=(grant(A),))
    assert got.commands == (Wake(A),)


@given(
    st.integers(0, 5), st.lists(st.tuples(st.sampled_from([S.SLEEPING, S.DRAINING]), st.floats(1.0, 999.0)), max_size=5)
)
def test_never_more_sleep_than_are_worth_it(asleep: int, made_of: list[tuple[ReplicaState, float]]) -> None:
    """Whatever there is: those that are left, and those that lie down, are so many at most; and as many as may, do."""
    replicas = [
        actual(state, ReplicaName(f"m-r1-{at}"), since=since, drained=True, revision=1)
        for at, (state, since) in enumerate(made_of)
    ]
    left = {one.replica for one in replicas} - stopped(worth(asleep, *replicas))
    assert len(left) == min(asleep, len(replicas))
