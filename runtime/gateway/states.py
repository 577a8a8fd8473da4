"""The states of a request, and which follows which.

READ -> DONE                        refused at once, or answered here
READ -> HELD -> DISPATCHED -> RELAYING -> DONE
HELD -> DONE                        refused, or the client left
DISPATCHED -> HELD                  the replica was not reached: another try, same arrival
DISPATCHED, RELAYING -> DRAINING    the client left and the engine cannot cancel: its answer is read to the end
any -> DONE
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class State(IntEnum):
    """Where a request is in its life. (Integers, since those hash in C.)"""

    READ = 0
    HELD = 1
    DISPATCHED = 2
    RELAYING = 3
    DRAINING = 4
    DONE = 5


# An attribute of an enumeration is looked up at each use, also in compiled code; these are not.
READ: Final = State.READ
HELD: Final = State.HELD
DISPATCHED: Final = State.DISPATCHED
RELAYING: Final = State.RELAYING
DRAINING: Final = State.DRAINING
DONE: Final = State.DONE

NEXT: Final = {
    State.READ: {State.HELD, State.DONE},
    State.HELD: {State.DISPATCHED, State.DONE},
    State.DISPATCHED: {State.HELD, State.RELAYING, State.DRAINING, State.DONE},
    State.RELAYING: {State.DRAINING, State.DONE},
    State.DRAINING: {State.DONE},
    State.DONE: set(),
}
"""What a request may do next; anything else is a bug, and asserted."""
