"""The watcher: a thread beside the training loop that hears notices, and agrees with the other ranks on a step.

The training loop pays one look at a flag a step. All else happens here: looking at files, speaking to the board. Any
one rank's notice is enough. The protocol (a KV form of "stop at the maximum over ranks, plus one"):

1. a rank that hears a notice puts it up as a request; rank 0 makes it the next *round*, for all to see;
2. each rank's watcher first raises its flag and then puts up where its loop is: steps completed, and polls since. The
   loop first stores where it is and then looks at the flag. So a loop that did not see the flag at p puts up p or more;
3. a loop that sees the flag waits until all positions are there (watchers put them up, so a loop that sits in a
   collective keeps nobody waiting), and stops at its first one beyond the highest, the *barrier*: none has passed it.
"""

from __future__ import annotations

import json
import queue
import threading
from typing import Callable

from preemption.trainer import clock
from preemption.trainer.board import Ranks
from preemption.trainer.channels.file import FileChannel
from preemption.trainer.notice import BadNotice, Heard, Mailbox, Mode, Notice, decode
from preemption.trainer.report import Reporter

POLL = 0.2
"""Seconds between two looks at files and at the board: notice deadlines are seconds, and a look costs microseconds."""

HEARTBEAT = 2.0
"""Seconds between two reports of the step reached, or of the bytes written: often enough to see a stall of 30 s."""


Position = tuple[int, int]
"""Where a loop is: steps completed, and polls since. Replaced as a whole, so that no thread sees half of it."""


class Round:
    """One barrier that the ranks agree on."""

    def __init__(self, number: int, notice: Notice) -> None:
        self.number = number
        self.notice = notice


class Watcher:
    """See the module. `position` is asked where this rank's loop is."""

    def __init__(
        self, ranks: Ranks, reporter: Reporter, files: list[FileChannel], position: Callable[[], Position]
    ) -> None:
        self.pending = False
        """The flag: a round is open, so the loop must take part at its next step."""
        self.began: int | None = None
        """The steps that were completed when the loop began, until its first own one is told: at once, since who waits
        for it to be back counts by that."""
        self.saving: Callable[[], int] | None = None
        """While the loop saves: how many bytes are written so far."""
        self._ranks = ranks
        self._reporter = reporter
        self._files = files
        self._position = position
        self._mailbox = Mailbox()
        self._lock = threading.Lock()
        self._asked: queue.SimpleQueue[Notice | None] = queue.SimpleQueue()
        self._round: Round | None = None
        self._rounds = 0
        self._unsent_position: str | None = None
        self._requests = 0
        self._requests_taken = [0] * ranks.world
        self._next_beat = clock.steady_now() + HEARTBEAT
        self._told: Position = (-1, 0)
        self._board_away = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="relume-watcher", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._ended.set()
        self._asked.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def hear(self, notice: Notice) -> Heard:
        """Take in a notice, from any thread but a signal handler."""
        with self._lock:
            heard = self._mailbox.hear(notice)
        if heard in (Heard.NEW, Heard.WITHDRAWN):
            self._asked.put(notice)
        return heard

    def ask(self, notice: Notice) -> None:
        """Take in a notice from a signal handler: the queue is made for that (it is reentrant), the lock is not."""
        self._asked.put(notice)

    # for the loop

    def barrier(self, patience: float) -> Position:
        """All ranks stop at their first position beyond this one. Waits for the other ranks; raises RankLost."""
        assert self._round is not None
        number = self._round.number
        texts = [self._ranks.wait(f"round/{number}/{rank}", patience) for rank in range(self._ranks.world)]
        return max((int(done), int(polls)) for done, polls in map(json.loads, texts))

    @property
    def notice(self) -> Notice:
        """What the round is about."""
        assert self._round is not None
        return self._round.notice

    @property
    def must_leave(self) -> bool:
        """Whether the run shall end after the save, as of now: the notice may be withdrawn. Rank 0's word counts."""
        with self._lock:
            holds = self._mailbox.holds
        return holds is not None and holds.mode is Mode.SAVE_AND_EXIT

    def end_round(self) -> None:
        """The round is done on this rank; the next one may begin."""
        assert self._round is not None
        with self._lock:
            self._mailbox.done(self._round.notice)
        self.pending = False
        self._round = None

    # the thread

    def _run(self) -> None:
        unsent: list[Notice] = []
        while not self._ended.is_set():
            try:
                asked = self._asked.get(timeout=POLL)
            except queue.Empty:
                asked = None
            if asked is not None:
                unsent.append(asked)
            self._look_at_files()
            try:
                self._meet(unsent)
                self._board_away = False
            except OSError as error:  # the board is away; at the next turn it may be back
                if not self._board_away:
                    self._board_away = True
                    self._reporter.say("board_away", step=self._position()[0], message=str(error))
            self._tell()

    def _meet(self, unsent: list[Notice]) -> None:
        """What this turn needs the board for. Raises OSError; then all of it can be done again."""
        while unsent:
            self._request(unsent[0])
            del unsent[0]
        if self._ranks.leads:
            self._open_round()
        self._join_round()

    def _look_at_files(self) -> None:
        for channel in self._files:
            try:
                notice = channel.look()
            except BadNotice as error:
                self._reporter.say("refused", message=str(error))
                continue
            if notice is not None:
                self.hear(notice)

    def _request(self, notice: Notice) -> None:
        """Hand a notice to rank 0."""
        if self._ranks.leads:
            with self._lock:
                self._mailbox.hear(notice)
            return
        self._requests += 1
        self._ranks.board.put(f"request/{self._ranks.rank}", json.dumps([self._requests, notice.encode()]))

    def _open_round(self) -> None:
        """Rank 0: what any rank asked for becomes the next round, one at a time."""
        for rank in range(1, self._ranks.world):
            text = self._ranks.board.get(f"request/{rank}")
            if text is not None:
                number, notice = json.loads(text)
                if number > self._requests_taken[rank]:
                    self._requests_taken[rank] = number
                    with self._lock:
                        self._mailbox.hear(decode(notice))
        with self._lock:
            holds = self._mailbox.holds
        if holds is not None and self._round is None and not self.pending:
            self._reporter.say("ack", id=holds.id, epoch=holds.epoch, step=self._position()[0])
            self._ranks.board.put(f"round/{self._rounds + 1}", holds.encode())

    def _join_round(self) -> None:
        if self._round is None:
            text = self._ranks.board.get(f"round/{self._rounds + 1}")
            if text is None:
                return
            self._rounds += 1
            self._round = Round(self._rounds, decode(text))
            self.pending = True  # before the position is read: see the module
            self._unsent_position = json.dumps(self._position())
        if self._unsent_position is not None:  # read once, however often it takes to write it: others may have seen it
            self._ranks.board.put(f"round/{self._rounds}/{self._ranks.rank}", self._unsent_position)
            self._unsent_position = None

    def _tell(self) -> None:
        """Rank 0: where the loop is, when that is news."""
        now, at, saving, began = clock.steady_now(), self._position(), self.saving, self.began
        first = began is not None and at[0] > began
        if not self._ranks.leads or (now < self._next_beat and not first):
            return
        self._next_beat = now + HEARTBEAT
        if first:
            self.began = None
        if saving is not None:
            self._reporter.say("progress", step=at[0], bytes=saving())
        elif at != self._told:
            self._told = at
            self._reporter.say("step", step=at[0])
