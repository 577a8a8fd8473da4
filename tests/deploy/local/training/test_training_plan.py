"""What is done so that a job's processes become what was granted: one row a rule."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.local.training import plan as planning
from deploy.local.training.plan import ActualRun, Begin, Command, End, Give, Skip, Withdraw, held_by, plan
from events.types.training import NoticeGiven, NoticeMode, Stop, TrainingGranted
from events.units import Instant
from tests.support.training_stage import granted

NOW = Instant(1000.0)
N1, N2 = NoticeGiven(id="n1", deadline=2000.0), NoticeGiven(id="n2", deadline=2000.0)
WITHDRAWN = NoticeGiven(id="n1", deadline=2000.0, mode=NoticeMode.WITHDRAWN)
GRANT = granted(3, members=2, cards=1)
Actual = partial(planning.Actual, uid="u1")


def run(number: int = 3, *, alive: bool = True, uid: str = "u1", notice: str = "", stop: Stop = Stop.NOT) -> ActualRun:
    """A run with the members and cards of `GRANT`."""
    return ActualRun(uid=uid, run=number, held=held_by(GRANT.members), alive=alive, notice=notice, stop=stop)


def kinds(commands: tuple[Command, ...]) -> list[object]:
    """Commands, without words for people."""
    told: list[object] = []
    for command in commands:
        match command:
            case Begin():
                told.append(("begin", command.grant.run))
            case Skip():
                told.append(("skip", command.grant.run))
            case Give():
                told.append(("give", command.run, command.notice.id))
            case Withdraw():
                told.append(("withdraw", command.run))
            case End():
                told.append((str(command.stop), command.run))
    return told


ELSEWHERE = granted(3, members=2, cards=2)


@pytest.mark.parametrize(
    ("grant", "actual", "wanted"),
    [
        (None, Actual(), []),
        (GRANT, Actual(), [("begin", 3)]),
        (GRANT, Actual(begun=2), [("begin", 3)]),
        (GRANT, Actual(begun=3), []),
        (GRANT, Actual(begun=4), []),
        (replace(GRANT, members=()), Actual(), []),
        (replace(GRANT, stop=Stop.TERMINATE), Actual(begun=2), [("skip", 3)]),
        (GRANT, Actual((run(),), 3), []),
        (GRANT, Actual((run(2),), 2), [("terminate", 2)]),
        (GRANT, Actual((run(2, stop=Stop.TERMINATE),), 2), []),
        (GRANT, Actual((run(2, alive=False),), 2), []),
        (granted(3, cards=0), Actual((run(2, alive=False),), 2), [("begin", 3)]),
        (None, Actual((run(),), 3), [("terminate", 3)]),
        (GRANT, Actual((run(uid="u0"),), 0), [("terminate", 3)]),
        (replace(GRANT, notice=N1), Actual((run(),), 0, uid="u2"), [("give", 3, "n1")]),
        (GRANT, Actual((run(),), 0, uid="u2"), []),
        (GRANT, Actual(uid="u2"), []),
        (replace(GRANT, members=()), Actual((run(),), 3), [("terminate", 3)]),
        (ELSEWHERE, Actual((run(),), 3), [("terminate", 3)]),
        (replace(GRANT, stop=Stop.TERMINATE), Actual((run(),), 3), [("terminate", 3)]),
        (replace(GRANT, stop=Stop.KILL), Actual((run(stop=Stop.TERMINATE),), 3), [("kill", 3)]),
        (replace(GRANT, stop=Stop.TERMINATE), Actual((run(stop=Stop.KILL),), 3), []),
        (replace(GRANT, stop=Stop.KILL), Actual((run(alive=False),), 3), []),
        (replace(GRANT, notice=N1), Actual((run(),), 3), [("give", 3, "n1")]),
        (replace(GRANT, notice=N1), Actual((run(notice="n1"),), 3), []),
        (replace(GRANT, notice=N2), Actual((run(notice="n1"),), 3), [("give", 3, "n2")]),
        (GRANT, Actual((run(notice="n1"),), 3), [("withdraw", 3)]),
        (replace(GRANT, notice=WITHDRAWN), Actual((run(notice="n1"),), 3), [("withdraw", 3)]),
        (replace(GRANT, notice=WITHDRAWN), Actual((run(notice="n2"),), 3), []),
        (replace(GRANT, notice=WITHDRAWN), Actual((run(),), 3), []),
        (replace(GRANT, notice=N1, stop=Stop.TERMINATE), Actual((run(),), 3), [("terminate", 3)]),
    ],
    ids=[
        "nothing is granted", "the first run", "the next run", "begun already", "an older run", "no members",
        "told to end before it began", "as granted", "an earlier run lives", "it was told already",
        "its cards are not empty", "its cards are not needed", "no grant any more", "of another declaration",
        "its declaration was replaced: it is told", "it was replaced: its grant stands", "replaced: it begins no more",
        "no members any more", "on other cards", "terminate", "kill", "killed already", "ended already", "a notice",
        "the same notice", "another notice", "no notice any more", "a withdrawal", "a withdrawal of another",
        "a withdrawal of one that was not given", "told to end: no notice",
    ],
)  # fmt: skip
def test_rules(grant: TrainingGranted | None, actual: Actual, wanted: list[object]) -> None:
    """What is granted and what is, and what to do."""
    assert kinds(plan(grant, actual, NOW).commands) == wanted


def test_back_off() -> None:
    """No run begins before its time; the instant is told."""
    made = plan(GRANT, Actual(begun=2, retry_at=Instant(NOW + 5.0)), NOW)
    assert (made.commands, made.again_at) == ((), NOW + 5.0)
    assert kinds(plan(GRANT, Actual(begun=2, retry_at=NOW), NOW).commands) == [("begin", 3)]


GRANTS = st.builds(
    replace, st.just(GRANT), stop=st.sampled_from(list(Stop)), notice=st.sampled_from([None, N1, N2, WITHDRAWN]),
    run=st.integers(1, 4),
)  # fmt: skip
RUNS = st.builds(
    run, st.integers(1, 4), notice=st.sampled_from(["", "n1", "n2"]), stop=st.sampled_from(list(Stop))
)  # fmt: skip


@given(GRANTS, RUNS)
def test_done_once(grant: TrainingGranted, before: ActualRun) -> None:
    """Whatever is, doing what the plan says leaves nothing more to do, and never softens an end."""
    after = before
    for command in plan(grant, Actual((before,), before.run), NOW).commands:
        match command:
            case End():
                assert command.stop is not Stop.NOT
                after = replace(after, stop=command.stop)
            case Give():
                after = replace(after, notice=command.notice.id)
            case Withdraw():
                after = replace(after, notice="")
            case Begin() | Skip():
                raise AssertionError("a run lives")
    assert plan(grant, Actual((after,), before.run), NOW).commands == ()
