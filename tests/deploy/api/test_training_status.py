"""A training job's status: one row of the table a state, from what was declared, granted and observed."""

from __future__ import annotations

from collections import Counter

import pytest

from deploy.api.training_facts import JobCosts, JobFacts
from deploy.api.training_status import training_status
from deploy.api.trainingshapes import TrainingState
from events.types.training import (
    Ending,
    NoticeGiven,
    NoticeMode,
    NoticeStatus,
    RunState,
    Stop,
    TrainingDeclared,
    TrainingGranted,
    TrainingObserved,
)
from events.units import Instant
from tests.support.training_events import AT, declared, ended, granted, observed

NOTICE = NoticeGiven(id="r1", deadline=AT + 60, reason="model llama lacks 1 GPU")
CONTINUE = NoticeGiven(id="r1", deadline=AT + 60, mode=NoticeMode.SAVE_AND_CONTINUE)
WITHDRAWN = NoticeGiven(id="r1", deadline=AT + 60, mode=NoticeMode.WITHDRAWN)
WENT_ON = NoticeStatus(id="r1", continued_at=AT + 9)

Case = tuple[TrainingDeclared, TrainingGranted | None, TrainingObserved | None, TrainingState, str]

CASES: dict[str, Case] = {
    "declared": (declared(), None, None, TrainingState.PENDING, "Declared"),
    "no-room": (declared(), granted(0, 0, reasons=("lacks_room",), message="3 GPUs are not free"), None,
                TrainingState.PENDING, "LacksRoom"),
    "granted": (declared(), granted(), None, TrainingState.STARTING, "Granted"),
    "starting": (declared(), granted(), observed(RunState.STARTING), TrainingState.STARTING, "Run"),
    "running": (declared(), granted(), observed(), TrainingState.RUNNING, ""),
    "noticed": (declared(), granted(notice=NOTICE), observed(), TrainingState.SAVING, "Notice"),
    "noticed-before": (declared(), granted(2, notice=NOTICE), observed(run=1), TrainingState.RUNNING, ""),
    "paused-running": (declared(paused=True), granted(notice=NOTICE), observed(), TrainingState.SAVING, "Paused"),
    "save-and-go-on": (declared(), granted(notice=CONTINUE), observed(), TrainingState.SAVING, "Notice"),
    "went-on": (declared(), granted(notice=CONTINUE), observed(notice=WENT_ON), TrainingState.RUNNING, ""),
    "withdrawn": (declared(), granted(notice=WITHDRAWN), observed(), TrainingState.RUNNING, ""),
    "stopping": (declared(), granted(notice=NOTICE, stop=Stop.TERMINATE), observed(), TrainingState.SAVING, "Stopping"),
    "killing": (declared(), granted(notice=NOTICE, stop=Stop.KILL), observed(), TrainingState.SAVING, "Killing"),
    "parked": (declared(), granted(members=0, reasons=("waits_for_higher_priority",)), ended(Ending.SAVED),
               TrainingState.PARKED, "WaitsForHigherPriority"),
    "parked-without-a-save": (declared(), granted(members=0), ended(Ending.TOLD), TrainingState.PARKED, "Waiting"),
    "back": (declared(), granted(2), ended(Ending.SAVED), TrainingState.STARTING, "Granted"),
    "paused": (declared(paused=True), granted(members=0), ended(Ending.SAVED), TrainingState.PAUSED, "Paused"),
    "paused-before-the-first": (declared(paused=True), None, None, TrainingState.PAUSED, "Paused"),
    "back-off": (declared(), granted(members=0), ended(Ending.FAILED, failures=2, retry_at=AT + 99),
                 TrainingState.PENDING, "BackOff"),
    "gave-up": (declared(), granted(members=0), ended(Ending.FAILED, failures=5, reason="ExitCode"),
                TrainingState.FAILED, "ExitCode"),
    "lost": (declared(), granted(members=0), ended(Ending.LOST), TrainingState.PENDING, "Waiting"),
    "finished": (declared(), granted(members=0), ended(Ending.FINISHED), TrainingState.FINISHED, ""),
    "finished-then-cancelled": (declared(cancelled=True), None, ended(Ending.FINISHED), TrainingState.FINISHED, ""),
    "cancelling": (declared(cancelled=True), granted(notice=NOTICE), observed(), TrainingState.CANCELLED, "Ending"),
    "cancelled": (declared(cancelled=True), granted(members=0), ended(Ending.SAVED), TrainingState.CANCELLED, ""),
    "deleted": (declared(deleted=True), granted(notice=NOTICE), observed(), TrainingState.CANCELLED, "Deleted"),
    "of-another-uid": (declared(uid="v"), granted(), observed(), TrainingState.PENDING, "NameInUse"),
    "of-another-uid-not-empty": (declared(uid="v"), granted(), observed(RunState.ENDED, ending=Ending.SAVED),
                                 TrainingState.PENDING, "NameInUse"),
    "of-another-uid-gone": (declared(uid="v"), granted(), ended(Ending.SAVED), TrainingState.PENDING, "Declared"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_state_and_its_reason(name: str) -> None:
    """Each row of the table has its state, with a reason where there is something to say."""
    made, given, seen, state, reason = CASES[name]
    status = training_status(JobFacts(made, Instant(AT + 30), given, seen))
    assert (status.state, status.reason) == (state, reason)
    assert bool(status.message) == bool(reason)


def test_every_state_is_reached() -> None:
    """No state of the API is one that the table cannot give."""
    assert {state for *_, state, _ in CASES.values()} == set(TrainingState)


def test_the_numbers_of_a_run() -> None:
    """Run, members, step, checkpoint and times are those that were observed."""
    status = training_status(
        JobFacts(declared(), Instant(AT + 30), granted(), observed(run=3), JobCosts(2, Counter(save=1.5)))
    )
    assert (status.run, status.restarts, status.preemptions, status.failures) == (3, 2, 2, 0)
    assert status.gpu_seconds_lost == {"save": 1.5}
    assert (status.members, status.granted_members, status.ready_members) == (1, 1, 1)
    assert (status.step, status.resumed_step, status.reports) == (120, 0, True)
    checkpoint = status.checkpoint
    assert checkpoint is not None
    assert (checkpoint.step, checkpoint.path, checkpoint.verified, checkpoint.size) == (100, "/c/step-100", True, 2048)
    assert (checkpoint.at, status.started_at) == ("2023-11-14T22:13:30.000000Z", "2023-11-14T22:13:20.000000Z")
    assert [(one.name, one.gpus, one.pid) for one in status.processes] == [("tune-0", ["gpu-0"], 77)]


def test_restarts_are_of_this_declaration() -> None:
    """A job that is declared under a deleted one's name has the runs of that one before its own, and not restarted."""
    for first, restarts in ((0, 6), (1, 6), (7, 0), (5, 2)):
        facts = JobFacts(declared(), Instant(AT + 30), granted(7, first_run=first), observed(run=7))
        assert (training_status(facts).run, training_status(facts).restarts) == (7, restarts)


def test_what_nobody_has_told_is_unknown() -> None:
    """A job that never ran has no step, no checkpoint, no grant: null, not zero."""
    status = training_status(JobFacts(declared(), Instant(AT)))
    assert (status.run, status.restarts, status.ready_members) == (0, 0, 0)
    unknown = (status.step, status.checkpoint, status.granted_members, status.started_at, status.ending)
    assert unknown == (None,) * 5
    assert (status.usual_save, status.usual_restore) == (None, None)


def test_what_the_trainer_said_to_the_notice() -> None:
    """The notice that stands is shown with the answer to it, and not with the answer to an earlier one."""
    answer = NoticeStatus(id="r1", heard_at=AT + 5, eta=3.0, progress=10)
    shown = training_status(JobFacts(declared(), Instant(AT + 30), granted(notice=NOTICE), observed(notice=answer)))
    assert shown.notice is not None
    assert (shown.notice.eta, shown.notice.progress, shown.notice.deadline) == (3.0, 10, "2023-11-14T22:14:20.000000Z")
    assert "model llama lacks 1 GPU; it saves by 2023-11-14T22:14:20" in shown.message
    earlier = observed(notice=NoticeStatus(id="r0", heard_at=AT + 5))
    again = training_status(JobFacts(declared(), Instant(AT + 30), granted(notice=NOTICE), earlier))
    assert again.notice is not None
    assert again.notice.heard_at is None


def test_a_failure_says_what_to_do() -> None:
    """A job that gave up says how often it failed and why, and how it can be run again."""
    seen = ended(Ending.FAILED, failures=5, message="exit code 1", log_tail=("Traceback", "ValueError"))
    status = training_status(JobFacts(declared(), Instant(AT + 30), granted(members=0), seen))
    assert status.message == (
        "it failed 5 times in a row: exit code 1; it is not started again by itself: relume train resume tune"
    )
    assert status.log_tail == ["Traceback", "ValueError"]
