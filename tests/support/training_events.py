"""Events about training jobs and reclaims for tests of the admin port and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from deploy.spec.declare_training import declare_training
from events.types.grants import Placement
from events.types.reclaims import ReclaimChanged, ReclaimLedger, ReclaimStep, ReclaimVerdict
from events.types.shared import Resources
from events.types.training import (
    CheckpointStatus,
    Ending,
    MemberGrant,
    MemberStatus,
    RunState,
    TrainingDeclared,
    TrainingGranted,
    TrainingObserved,
)
from tests.support.specs import smallest_training

TUNE = """apiVersion: relume.dev/v1alpha1
kind: TrainingJob
metadata: {name: tune}
spec:
  command: [python, train.py]
  resources: {gpus: 1}
"""

AT = 1_700_000_000.0
"""When these things happen: 2023-11-14T22:13:20Z."""


def declared(name: str = "tune", uid: str = "u", **more: Any) -> TrainingDeclared:
    """The smallest job."""
    return replace(declare_training(None, smallest_training(name), uid), **more)


def granted(run: int = 1, members: int = 1, uid: str = "u", **more: Any) -> TrainingGranted:
    """A grant of `run`, each member with a card."""
    given = tuple(
        MemberGrant(
            member=f"tune-{index}", placement=Placement(node="local", gpus=(f"gpu-{index}",)),
            resources=Resources(gpus=1, cpu=1.0),
        )
        for index in range(members)
    )  # fmt: skip
    return replace(TrainingGranted(job="tune", uid=uid, revision=1, run=run, members=given), **more)


def observed(state: RunState = RunState.RUNNING, run: int = 1, uid: str = "u", **more: Any) -> TrainingObserved:
    """What the adapter sees of `run`: one process that was at step 120 and has saved step 100."""
    member = MemberStatus(member="tune-0", node="local", gpus=("gpu-0",), pid=77)
    seen = TrainingObserved(
        job="tune", uid=uid, revision=1, run=run, state=state, members=(member,), started_at=AT, reports=True,
        step=120, step_at=AT + 12, resumed_step=0,
        checkpoint=CheckpointStatus(step=100, at=AT + 10, path="/c/step-100", manifest="m", size=2048, seconds=0.5,
                                    verified=True),
    )  # fmt: skip
    return replace(seen, **more)


def ended(ending: Ending, run: int = 1, **more: Any) -> TrainingObserved:
    """A run that has ended, its cards seen empty."""
    return observed(RunState.ENDED, run, ending=ending, ended_at=AT + 20, empty_at=AT + 21, members=(), **more)


def reclaim(state: str = "saving", name: str = "r1", **more: Any) -> ReclaimChanged:
    """An attempt to take tune's card for llama."""
    steps = (
        ReclaimStep(at=AT + 1, happened="planned", state="selected"),
        ReclaimStep(at=AT + 1.5, happened="sent", state="notified"),
        ReclaimStep(at=AT + 2, happened="ack", state="saving"),
    )
    verdicts = (
        ReclaimVerdict(job="tune", why="taken", numbers={"cost": 12.0}),
        ReclaimVerdict(job="guarded", why="protected"),
    )
    made = ReclaimChanged(
        id=name, job="tune", job_uid="u", run=1, members=("tune-0",), shortage="llama", shortage_uid="m",
        shortage_since=AT, cards=("local/gpu-0",), state=state, since=AT + 2, due=AT + 60, deadline=AT + 50, cost=12.0,
        history=steps, verdicts=verdicts, ledger=ReclaimLedger(gpus=1.0, lost={"save": 0.5}, stages={"plan": 1.0}),
    )  # fmt: skip
    return replace(made, **more)


def resumed(name: str = "r1", history_of: Sequence[ReclaimStep] = (), **more: Any) -> ReclaimChanged:
    """The same, over: no step was lost. `history_of`: at other times."""
    whole = reclaim().history
    steps = (
        *whole,
        ReclaimStep(at=AT + 4, happened="checkpointed", state="saved"),
        ReclaimStep(at=AT + 5, happened="timeout", state="stopping"),
        ReclaimStep(at=AT + 6, happened="exit_saved", state="draining"),
        ReclaimStep(at=AT + 7, happened="cards_empty", state="claimed"),
        ReclaimStep(at=AT + 8, happened="bound", state="parked"),
        ReclaimStep(at=AT + 90, happened="capacity_back", state="resuming"),
        ReclaimStep(at=AT + 95, happened="step_seen", state="resumed"),
    )
    ledger = ReclaimLedger(
        gpus=1.0, lost={"save": 2.0, "drain": 1.0, "restore": 5.0}, stages={"plan": 1.0, "save": 2.0, "drain": 1.0},
        steps_lost=0,
    )  # fmt: skip
    return reclaim(
        "resumed", name, ended=True, deadline=None, since=AT + 95, step=120, manifest="m",
        history=tuple(history_of) or steps,
        held=granted().members,
        ledger=ledger,
        **more,
    )  # fmt: skip
