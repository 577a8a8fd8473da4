"""How a run ended, from how its members ended and what it had said. Pure."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from deploy.local.process import Exit
from events.types.training import Ending, Stop

EX_TEMPFAIL: Final = 75
"""Exit code "not finished, start me again" (sysexits.h; the SDK's too)."""
SHELL: Final = 128
"""A shell's exit code for a program that signal N ended is 128 + N."""


@dataclass(frozen=True, slots=True)
class End:
    """How one member ended. `sent`: the signals that we had sent it by then."""

    exit: Exit
    sent: frozenset[int] = frozenset()

    @property
    def by_us(self) -> bool:
        """Whether a signal that we sent ended it, also where it or a shell turned that into an exit code."""
        code, number = self.exit.code, self.exit.signal
        return number in self.sent or (code is not None and code - SHELL in self.sent)

    @property
    def code(self) -> int | None:
        """As `MemberStatus` tells it."""
        return self.exit.code if self.exit.signal is None else -self.exit.signal


@dataclass(frozen=True, slots=True)
class Said:
    """What the run had said, and heard. `reports`: anything at all; `saved`: a verified checkpoint of after the notice;
    `told`: it was given a notice; `got_on`: it has committed a checkpoint beyond the one that it began at."""

    finished: bool = False
    reports: bool = False
    saved: bool = False
    told: bool = False
    got_on: bool = False


def ending_of(ends: Sequence[End], said: Said) -> Ending:
    """The ending of a run whose members ended so, in this order.

    The first that ended badly decides: what the others die of follows from it. Where one left with code 75 there is a
    checkpoint, for none leaves so before all have committed. But who leaves so of its own accord, and has nothing new
    to go on from, has failed: it would be started again for ever, as fast as it ends. Code 0 of a trainer without the
    SDK means that it has finished, but not after we had told it to go: then it is how it obeyed.
    """
    if said.finished:
        return Ending.FINISHED
    if any(end.exit.code == EX_TEMPFAIL for end in ends):
        asked = said.told or any(end.sent for end in ends)
        return Ending.SAVED if asked or said.got_on else Ending.FAILED
    kinds = [_kind(end, said) for end in ends]
    bad = next((kind for kind in kinds if kind in (Ending.FAILED, Ending.LOST)), None)
    if bad is not None:
        return bad
    if Ending.TOLD in kinds or not kinds:
        return Ending.SAVED if said.saved else Ending.TOLD
    return Ending.FINISHED


def _kind(end: End, said: Said) -> Ending:
    if end.exit == Exit():  # it was killed with its shim
        return Ending.TOLD if end.sent else Ending.LOST
    if end.by_us:
        return Ending.TOLD
    if end.exit.code == 0 and not said.reports:
        return Ending.TOLD if end.sent else Ending.FINISHED
    return Ending.FAILED


def others_must_end(exit_: Exit) -> bool:
    """Whether this end of one member ends the gang at once: the others would wait for it for ever."""
    return exit_.code not in (0, EX_TEMPFAIL)


def signals_of(stop: Stop) -> frozenset[int]:
    """What a member is sent by it, in the end: the grace after SIGTERM ends with SIGKILL."""
    match stop:
        case Stop.NOT:
            return frozenset()
        case Stop.TERMINATE:
            return frozenset({signal.SIGTERM, signal.SIGKILL})
        case Stop.KILL:
            return frozenset({signal.SIGKILL})
