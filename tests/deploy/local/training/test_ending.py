"""How a run ended: exit codes, signals, and what it said."""

from __future__ import annotations

import signal

import pytest

from deploy.local.process import Exit
from deploy.local.training.ending import End, Said, ending_of, others_must_end
from events.types.training import Ending

TERM, KILL, USR1 = int(signal.SIGTERM), int(signal.SIGKILL), int(signal.SIGUSR1)
SDK = Said(reports=True)


def code(number: int, *sent: int) -> End:
    return End(Exit(code=number), frozenset(sent))


def by(number: int, *sent: int) -> End:
    return End(Exit(signal=number), frozenset(sent))


LOST = End(Exit())


@pytest.mark.parametrize(
    ("ends", "said", "wanted"),
    [
        ([code(0)], Said(finished=True, reports=True), Ending.FINISHED),
        ([code(0)], Said(), Ending.FINISHED),
        ([code(0), code(0)], Said(), Ending.FINISHED),
        ([code(0)], SDK, Ending.FAILED),
        ([code(1)], Said(finished=True, reports=True), Ending.FINISHED),
        ([code(75)], Said(reports=True, told=True), Ending.SAVED),
        ([code(75)], Said(told=True), Ending.SAVED),
        ([code(75)], Said(reports=True, got_on=True), Ending.SAVED),
        ([code(75, USR1)], Said(), Ending.SAVED),
        ([code(75)], SDK, Ending.FAILED),
        ([code(75)], Said(), Ending.FAILED),
        ([code(75), by(TERM, TERM, KILL)], SDK, Ending.SAVED),
        ([by(TERM, TERM, KILL)], Said(), Ending.TOLD),
        ([by(KILL, TERM, KILL)], Said(), Ending.TOLD),
        ([by(KILL, TERM, KILL)], Said(reports=True, saved=True), Ending.SAVED),
        ([code(143, TERM, KILL)], Said(), Ending.TOLD),
        ([code(0, TERM, KILL)], Said(), Ending.TOLD),
        ([code(0, USR1)], Said(), Ending.TOLD),
        ([by(USR1, USR1)], Said(), Ending.TOLD),
        ([code(1, TERM, KILL)], Said(), Ending.FAILED),
        ([code(143)], Said(), Ending.FAILED),
        ([by(KILL)], SDK, Ending.FAILED),
        ([by(int(signal.SIGSEGV), TERM, KILL)], SDK, Ending.FAILED),
        ([code(3), by(TERM, TERM, KILL)], SDK, Ending.FAILED),
        ([LOST], SDK, Ending.LOST),
        ([End(Exit(), frozenset({KILL}))], SDK, Ending.TOLD),
        ([LOST, by(TERM, TERM, KILL)], SDK, Ending.LOST),
        ([code(3), LOST], SDK, Ending.FAILED),
        ([], Said(), Ending.TOLD),
    ],
)
def test_ending(ends: list[End], said: Said, wanted: Ending) -> None:
    """The ends of a gang's members in their order, and the ending."""
    assert ending_of(ends, said) is wanted


@pytest.mark.parametrize(("exit_", "wanted"), [
    (Exit(code=0), False), (Exit(code=75), False), (Exit(code=1), True), (Exit(signal=9), True), (Exit(), True),
])  # fmt: skip
def test_who_ends_the_gang(exit_: Exit, wanted: bool) -> None:
    """Others may go on when one has finished, and have time to leave when one has saved."""
    assert others_must_end(exit_) is wanted
