"""The board: where the ranks of one training run read what the others have written, and how they meet there.

It is control traffic on the CPU, never on the accelerators' own network: a rank may sit in a collective there.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Callable, Protocol, TypeVar
from urllib.parse import quote

from preemption.trainer import clock

FIRST_PAUSE = 0.001
LONGEST_PAUSE = 0.05
"""Seconds between two looks at a key that is not there yet: first, and at the most (it doubles)."""


class RankLost(RuntimeError):
    """Another rank did not come to the meeting in time. The run must end; it goes on from its last checkpoint."""


class BoardUsed(RankLost):
    """The board has entries of an earlier start. The ranks would agree with what was said then, so the run must end."""


class Board(Protocol):
    """Keys and texts that all ranks of one run see. New for each run: nothing of an earlier one may be on it.

    Called from several threads. What cannot be reached for now raises OSError; it is tried again.
    """

    def put(self, key: str, value: str) -> None:
        """Write; a reader sees all of the value or none."""

    def get(self, key: str) -> str | None:
        """Read; None when nobody has written it yet. Does not wait."""


class LocalBoard:
    """The board of a run with one rank, or of threads in a test."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def put(self, key: str, value: str) -> None:
        """See `Board.put`."""
        self._values[key] = value

    def get(self, key: str) -> str | None:
        """See `Board.get`."""
        return self._values.get(key)


class FolderBoard:
    """A folder that all ranks reach (one machine, or a shared file system). Give each start of a run a new one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, key: str, value: str) -> None:
        """See `Board.put`."""
        handle, partial = tempfile.mkstemp(dir=str(self._folder), prefix=".")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(value)
        Path(partial).replace(self._path(key))

    def get(self, key: str) -> str | None:
        """See `Board.get`."""
        try:
            return self._path(key).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def _path(self, key: str) -> Path:
        return self._folder / quote(key, safe="")


class Ranks:
    """One rank among `world`, and the meetings they hold. All ranks must hold the same meetings in the same order.

    `hall`: where they meet. Threads that meet independently of each other need a hall each.
    """

    def __init__(self, rank: int = 0, world: int = 1, board: Board | None = None, hall: str = "meeting") -> None:
        if not 0 <= rank < world:
            raise ValueError(f"rank: must be at least 0 and below the number of ranks, {world}; it is {rank}")
        if world > 1 and board is None:
            raise ValueError("board: several ranks need one that all of them reach, such as a FolderBoard")
        self.rank = rank
        self.world = world
        self.board = board if board is not None else LocalBoard()
        self._hall = hall
        self._meetings = 0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Ranks:
        """The rank that the launcher named: RANK of WORLD_SIZE, with RELUME_BOARD, a folder new for each start.

        torchrun starts a run again by itself; its RUN_ID and RESTART_COUNT make a board of their own within the folder.
        Raises ValueError for variables that cannot be meant.
        """
        env = os.environ if environment is None else environment
        rank, world = _number(env, "RANK", 0), _number(env, "WORLD_SIZE", 1)
        if world == 1:
            return cls()
        if not env.get("RELUME_BOARD"):
            raise ValueError(
                f"RELUME_BOARD: WORLD_SIZE says {world} ranks, so it must name a folder that all of them reach, new "
                "for each start; or pass ranks=, such as what preemption.trainer.adapters.torch.ranks() makes"
            )
        parts = [env[name] for name in ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT") if env.get(name)]
        folder = Path(env["RELUME_BOARD"], *(quote(part, safe="") for part in parts))
        return cls(rank, world, FolderBoard(folder))

    def beside(self, hall: str) -> Ranks:
        """The same ranks, meeting elsewhere: for another thread."""
        return Ranks(self.rank, self.world, self.board, hall)

    @property
    def leads(self) -> bool:
        """Whether this rank commits and reports for all."""
        return self.rank == 0

    def wait(self, key: str, patience: float) -> str:
        """What stands under `key`, once it does. Raises RankLost after `patience` seconds."""
        return _patiently(lambda: self.board.get(key), patience, f"rank {self.rank} waited for {key}")

    def put(self, key: str, value: str, patience: float) -> None:
        """Write it on the board, which may be away for a while. Raises RankLost after `patience` seconds."""

        def write() -> bool:
            self.board.put(key, value)
            return True

        _patiently(write, patience, f"rank {self.rank} wrote {key}")

    def gather(self, mine: str, patience: float) -> list[str]:
        """What each rank brought to this meeting, by rank. Raises RankLost."""
        meeting = self._next_meeting()
        if self.world == 1:
            return [mine]
        self._bring(meeting, mine, patience)
        return [self.wait(f"{self._hall}/{meeting}/{rank}", patience) for rank in range(self.world)]

    def follow(self, mine: str, patience: float) -> str:
        """What rank 0 brought to this meeting. Raises RankLost."""
        meeting = self._next_meeting()
        if self.leads:
            if self.world > 1:
                self._bring(meeting, mine, patience)
            return mine
        return self.wait(f"{self._hall}/{meeting}/0", patience)

    def _bring(self, meeting: int, mine: str, patience: float) -> None:
        """Write what this rank brings, which it can have done only in an earlier start if it stands there already."""
        key = f"{self._hall}/{meeting}/{self.rank}"
        (before,) = _patiently(lambda: (self.board.get(key),), patience, f"rank {self.rank} looked for {key}")
        if before is not None:
            raise BoardUsed(
                f"rank {self.rank} finds {key} on its board already: the board is of an earlier start; make a new one "
                "for each start, as RELUME_BOARD names one"
            )
        self.put(key, mine, patience)

    def all_well(self, trouble: str, patience: float) -> str:
        """The first trouble that any rank has; empty when none has. Raises RankLost."""
        return next((text for text in self.gather(trouble, patience) if text), "")

    def _next_meeting(self) -> int:
        self._meetings += 1
        return self._meetings


Found = TypeVar("Found")


def _patiently(look: Callable[[], Found | None], patience: float, what: str) -> Found:
    """What `look` finds, once it finds something. Raises RankLost."""
    until = clock.steady_now() + patience
    nap = FIRST_PAUSE
    trouble = ""
    while True:
        try:
            found = look()
        except OSError as error:  # a store or a file system that is away may come back
            found, trouble = None, f"; the board: {error}"
        if found is not None:
            return found
        if clock.steady_now() > until:
            raise RankLost(f"{what}, in vain, for {patience:.0f} s{trouble}")
        clock.pause(nap)
        nap = min(2 * nap, LONGEST_PAUSE)


def _number(env: Mapping[str, str], name: str, otherwise: int) -> int:
    text = env.get(name, "")
    if text and not text.isdigit():
        raise ValueError(f"{name}: a whole number, not {text!r}")
    return int(text) if text else otherwise
