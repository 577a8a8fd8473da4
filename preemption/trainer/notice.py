"""The notice: "save by then, and leave". What a trainer is told, and what it makes of being told again. Pure.

Wire form, JSON: ``{"id": "a1", "epoch": 7, "reason": "…", "deadline_unix": 1767225600.0, "mode": "save_and_exit"}``.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from enum import Enum

MOST_BYTES = 64 * 1024
"""A longer text is no notice."""

UNFENCED = -1
"""The epoch of a notice that carries none, as a signal does: it is never of a dead controller."""

WITHDRAWN_KNOWN = 16
"""Withdrawn notices remembered, so that one that arrives after its withdrawal is not obeyed."""


class Mode(str, Enum):
    """What the trainer shall do."""

    SAVE_AND_EXIT = "save_and_exit"
    SAVE_AND_CONTINUE = "save_and_continue"
    WITHDRAWN = "withdrawn"
    """The notice with this id no longer holds. A save that is running ends as an ordinary checkpoint."""


class BadNotice(ValueError):
    """The text is no notice. The message names field, rule and value."""


@dataclass(frozen=True)
class Notice:
    """One notice. Equal `id`: the same one, told again. Smaller `epoch` than one seen before: of a dead controller."""

    id: str
    epoch: int = 0
    reason: str = ""
    deadline_unix: float | None = None
    """By when the checkpoint must be committed, seconds since the epoch; None: the sender did not say."""
    mode: Mode = Mode.SAVE_AND_EXIT

    def encode(self) -> str:
        """The wire form."""
        return json.dumps(
            {
                "id": self.id,
                "epoch": self.epoch,
                "reason": self.reason,
                "deadline_unix": self.deadline_unix,
                "mode": self.mode.value,
            }
        )


def decode(text: str | bytes) -> Notice:
    """The notice that `text` is. Unknown fields are ignored: a newer controller may say more. Raises BadNotice."""
    if len(text) > MOST_BYTES:
        raise BadNotice(f"a notice has at most {MOST_BYTES} bytes, not {len(text)}")
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadNotice(f"a notice is a JSON object; this is not JSON: {error}") from None
    if not isinstance(said, dict):
        raise BadNotice(f"a notice is a JSON object, not {type(said).__name__}")
    name, epoch, deadline = said.get("id"), said.get("epoch", 0), said.get("deadline_unix")
    if not isinstance(name, str) or not name:
        raise BadNotice(f"id: must be a text that is not empty, not {name!r}")
    if not isinstance(epoch, int) or isinstance(epoch, bool):
        raise BadNotice(f"epoch: must be a whole number, not {epoch!r}")
    if deadline is not None and (not isinstance(deadline, (int, float)) or isinstance(deadline, bool)):
        raise BadNotice(f"deadline_unix: must be seconds since the epoch or null, not {deadline!r}")
    try:
        mode = Mode(said.get("mode", Mode.SAVE_AND_EXIT.value))
    except ValueError:
        modes = ", ".join(mode.value for mode in Mode)
        raise BadNotice(f"mode: must be one of {modes}, not {said.get('mode')!r}") from None
    return Notice(name, epoch, str(said.get("reason", "")), None if deadline is None else float(deadline), mode)


class Heard(str, Enum):
    """What a notice meant to who heard it."""

    NEW = "new"
    SAME = "same"
    WITHDRAWN = "withdrawn"
    STALE = "stale"


class Mailbox:
    """Which notice holds. Knows the newest and the last few withdrawn, whatever is said: its size is bounded."""

    def __init__(self) -> None:
        self._newest: Notice | None = None
        self._fence = UNFENCED
        self._withdrawn: deque[str] = deque(maxlen=WITHDRAWN_KNOWN)
        self._done = False

    def hear(self, notice: Notice) -> Heard:
        """Take a notice in. The second time it means nothing; one of a smaller epoch means nothing at all."""
        if UNFENCED < notice.epoch < self._fence:
            return Heard.STALE
        self._fence = max(self._fence, notice.epoch)
        if notice.id in self._withdrawn:  # also one that comes after its withdrawal
            return Heard.SAME
        if notice.mode is Mode.WITHDRAWN:
            self._withdrawn.append(notice.id)
            return Heard.WITHDRAWN
        if self._newest is not None and notice.id == self._newest.id:
            return Heard.SAME
        self._newest, self._done = notice, False
        return Heard.NEW

    @property
    def holds(self) -> Notice | None:
        """The notice that is to be obeyed now."""
        newest = self._newest
        return None if newest is None or self._done or newest.id in self._withdrawn else newest

    def done(self, notice: Notice) -> None:
        """It was obeyed (or could not be): being told again changes nothing."""
        if self._newest is not None and self._newest.id == notice.id:
            self._done = True
