"""Whatever comes together of declarations, grants and observations, a job has one state that is told in words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deploy.api.training_facts import JobFacts
from deploy.api.training_status import TABLE, training_status
from deploy.api.trainingshapes import TrainingState
from events.types.training import (
    CheckpointStatus,
    Ending,
    MemberStatus,
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
from tests.support.training_events import AT, granted

UIDS = st.sampled_from(["u", "v"])
COUNTS = st.integers(0, 3)
TIMES = st.none() | st.floats(AT, AT + 100)

DECLARED = st.builds(
    TrainingDeclared, job=st.just("tune"), uid=UIDS, revision=st.integers(1, 3), generation=st.integers(1, 3),
    spec=st.fixed_dictionaries(
        {}, optional={"members": COUNTS | st.text(max_size=2), "maxFailures": COUNTS, "command": st.just([])}
    ),
    paused=st.booleans(), cancelled=st.booleans(), deleted=st.booleans(),
)  # fmt: skip
"""Also of another release, which may say less, or otherwise."""

GIVEN = st.builds(NoticeGiven, id=st.sampled_from(["r1", "r2"]), deadline=st.floats(AT, AT + 100),
                  mode=st.sampled_from(NoticeMode), reason=st.text(max_size=3))  # fmt: skip

GRANTED = st.none() | st.builds(
    TrainingGranted, job=st.just("tune"), uid=UIDS, revision=COUNTS, run=COUNTS,
    members=st.sampled_from([(), granted().members, granted(members=2).members]), notice=st.none() | GIVEN,
    stop=st.sampled_from(Stop), reasons=st.tuples() | st.tuples(st.sampled_from(["", "lacks_room", "x"])),
)  # fmt: skip

OBSERVED = st.none() | st.builds(
    TrainingObserved, job=st.just("tune"), uid=UIDS, revision=COUNTS, run=COUNTS, state=st.sampled_from(RunState),
    members=st.sampled_from([(), (MemberStatus(member="tune-0", node="n"),),
                             (MemberStatus(member="tune-0", node="n", pid=7, exit_code=-9),)]),
    started_at=TIMES, ended_at=TIMES, empty_at=TIMES, ending=st.none() | st.sampled_from(Ending),
    step=st.none() | COUNTS, failures=COUNTS, retry_at=TIMES, message=st.text(max_size=3),
    checkpoint=st.none() | st.builds(CheckpointStatus, step=COUNTS, at=st.just(AT)),
    notice=st.none() | st.builds(NoticeStatus, id=st.sampled_from(["r1", "r2"]), continued_at=TIMES),
)  # fmt: skip


@given(DECLARED, GRANTED, OBSERVED)
def test_every_combination_has_one_state_in_words(
    made: TrainingDeclared, given_: TrainingGranted | None, seen: TrainingObserved | None
) -> None:
    """No combination fails; what needs a reason has one; counts are never negative; what is void does not count."""
    status = training_status(JobFacts(made, Instant(AT + 30), given_, seen))
    assert status.state in {state for _, state, _ in TABLE}
    assert status.reason or status.state in {TrainingState.RUNNING, TrainingState.FINISHED, TrainingState.CANCELLED}
    assert min(status.run, status.members, status.ready_members, status.restarts, status.failures) >= 0
    if seen is None or seen.uid != made.uid:
        assert (status.run, status.step, status.checkpoint) == (0, None, None)
        assert status.state in {
            TrainingState.PENDING, TrainingState.STARTING, TrainingState.PAUSED, TrainingState.CANCELLED,
        }  # fmt: skip


@given(DECLARED, GRANTED, OBSERVED)
def test_the_end_of_a_job_is_never_hidden(
    made: TrainingDeclared, given_: TrainingGranted | None, seen: TrainingObserved | None
) -> None:
    """A run that is seen alive is never shown as over by itself, and a finished one never as going on."""
    status = training_status(JobFacts(made, Instant(AT + 30), given_, seen))
    mine = seen is not None and seen.uid == made.uid
    if mine and seen is not None and seen.state is not RunState.ENDED:
        assert status.state not in {TrainingState.FINISHED, TrainingState.FAILED, TrainingState.PARKED}
    if mine and seen is not None and seen.state is RunState.ENDED and seen.ending is Ending.FINISHED:
        assert status.state in {TrainingState.FINISHED, TrainingState.CANCELLED}
