"""CheckpointGuard: any training loop, made safe to interrupt.

    guard = CheckpointGuard("checkpoints", save=save, load=load)
    for step in range(guard.resume(), total):
        train(step)
        guard.step(step + 1)
    guard.finish()

`save(folder)` writes files into an empty folder; `load(folder)` reads them. When relume needs the GPU, all ranks stop
at the same step, save, commit, and the process ends with code 75; started again, it goes on at exactly that step.

A `save` that only stages the state (a copy in memory) and returns a future lets training go on while the copy is
written; it is waited for before the next save, and before leaving. For frameworks see `preemption.trainer.adapters`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

from preemption.trainer import clock
from preemption.trainer.board import RankLost, Ranks
from preemption.trainer.channels.file import AnnotationsChannel, FileChannel
from preemption.trainer.channels.http import HttpChannel
from preemption.trainer.channels.signals import SignalChannel
from preemption.trainer.notice import UNFENCED, Notice
from preemption.trainer.report import Reporter
from preemption.trainer.saving import RestoreFailed, SaveFailed, Saver, Upload
from preemption.trainer.sealing import Sealing
from preemption.trainer.settings import TERM_GRACE, Channels, GuardSettings, from_environment
from preemption.trainer.store import Checkpoint, Store
from preemption.trainer.watcher import Position, Watcher

Callback = Callable[[Path], object]


class Preempted(SystemExit):
    """The checkpoint is committed and the process should end: code 75. Let it through."""


class CheckpointGuard:
    """See the module. Make it in the main thread, after forking and before loading data; one a process.

    `settings`: how often to save, what to keep. `ranks`: which of how many this process is; None means what the
    environment says (`Ranks.from_environment`). Raises ValueError for settings that cannot be meant.
    """

    def __init__(
        self,
        folder: str | Path,
        save: Callback,
        load: Callback,
        *,
        settings: GuardSettings | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self._settings = settings or GuardSettings()
        self._ranks = ranks or Ranks.from_environment()
        self._channels = from_environment()
        self._at: Position = (0, 0)
        speaks = self._ranks.leads
        self._reporter = Reporter(
            self._channels.report_file if speaks else None,
            self._channels.termination_log,
            keeps=speaks and self._channels.http is not None,
        )
        self._store = Store(Path(folder), self._settings.keep)
        self._saver = Saver(self._store, self._ranks, self._settings, save)
        self._sealing: Sealing | None = None
        self._load = load
        self._next_save = self._settings.every_steps or _NEVER
        self._watcher = Watcher(self._ranks, self._reporter, _files(self._channels), self._position)
        self._signal_ids = itertools.count(1)
        self._signals = SignalChannel(self._channels.signals, self._on_signal)
        self._http: HttpChannel | None = None
        if self._channels.http is not None and self._ranks.leads:
            http, token = self._channels.http, self._channels.http_token
            self._http = HttpChannel(http, token, self._watcher.hear, self._reporter.since)
        self._reporter.say("started", ranks=self._ranks.world, pid=os.getpid(), folder=str(folder))
        self._watcher.start()

    # the loop's side

    def resume(self) -> int:
        """Load the newest whole checkpoint; returns its completed steps, 0 when there is none.

        One that cannot be loaded is left alone and the one before is tried, on all ranks alike. Raises RestoreFailed
        when there are some and none can be loaded (to begin anew would be worse than to stop), RankLost.
        """
        with self._last_words():
            step = self._saver.restore(self._load, self._reporter)
        self.resumed(step)
        return step

    def step(self, done: int) -> None:
        """`done` steps are completed. Usually a look at a flag; saves when it is time.

        Raises Preempted when told to go, RankLost.
        """
        self._at = (done, 0)
        if self._watcher.pending or done >= self._next_save:
            self._attend()

    def poll(self) -> None:
        """Nothing is completed, but here too the run could stop: in evaluation, warm-up, while data is made ready.

        With several ranks, call it equally often on each of them. Raises Preempted, RankLost.
        """
        done, polls = self._at
        self._at = (done, polls + 1)
        if self._watcher.pending:
            self._attend()

    def steps(self, total: int) -> Iterator[int]:
        """The steps still to do, each counted when the loop's body has ended: ``for step in guard.steps(1000): …``."""
        for step in range(self.resume(), total):
            yield step
            self.step(step + 1)
        self.finish()

    def save(self) -> None:
        """Save now, on all ranks alike; committed on return. Raises SaveFailed, RankLost."""
        self._settle()
        self._save()

    def finish(self) -> None:
        """The training has come to its end: say so, and listen no more. Raises RankLost."""
        self._settle()
        self._reporter.last_word("finished", step=self._at[0])
        self.close()

    # for frameworks that own the loop, and save in their own time

    def resumed(self, done: int) -> None:
        """As `resume`, when the framework has loaded the checkpoint itself."""
        self._at = (done, 0)
        self._watcher.began = done
        self._plan_next(done)
        if done:
            self._reporter.say("resumed", step=done)

    def planned(self, done: int) -> None:
        """Save, by the framework's plan; when that fails it is reported, and training goes on. Raises RankLost."""
        self._at = (done, 0)
        self._save_by_plan(done)

    def told(self, done: int) -> bool:
        """As `step`, without saving: whether all ranks are now to save and `obey`. Raises RankLost."""
        self._at = (done, 0)
        return self._must_obey()

    def obey(self) -> None:
        """Save now, as told. Raises Preempted when told to go, RankLost; returns when training goes on."""
        self._obey(self._watcher.notice)

    @property
    def done(self) -> int:
        """Steps completed, as the guard was last told."""
        return self._at[0]

    @property
    def newest(self) -> Checkpoint | None:
        """The newest whole checkpoint on disk, as this rank sees it; by `verify_content` its content is compared."""
        return self._store.newest(verify_content=self._settings.verify_content)

    def close(self) -> None:
        """Stop listening; signals do again what they did before."""
        self._signals.close()
        if self._http is not None:
            self._http.close()
        self._watcher.close()

    @property
    def port(self) -> int | None:
        """Where notices are taken over HTTP, if they are."""
        return None if self._http is None else self._http.port

    # what is rare

    def _attend(self) -> None:
        """A round is open, or it is time to save."""
        if self._must_obey():
            self._obey(self._watcher.notice)
        elif self._at[0] >= self._next_save:
            self._save_by_plan(self._at[0])

    def _must_obey(self) -> bool:
        """Whether a round is open and this is the first position beyond its barrier. Waits for the other ranks."""
        if not self._watcher.pending:
            return False
        with self._last_words():
            return self._at > self._watcher.barrier(self._settings.patience)

    @contextlib.contextmanager
    def _last_words(self) -> Iterator[None]:
        """A run that ends because a rank is lost, or no checkpoint can be loaded, says so."""
        try:
            yield
        except (RankLost, RestoreFailed) as error:
            self._reporter.last_word("aborted", step=self._at[0], message=str(error))
            raise

    def _save_by_plan(self, done: int) -> None:
        with self._last_words():
            try:
                self._settle()
                self._save(staged=True)
            except SaveFailed as error:
                self._reporter.say("save_failed", step=done, message=str(error))
                self._plan_next(done)

    def _obey(self, notice: Notice) -> None:
        """All ranks are here, at the barrier."""
        done = self._at[0]
        with self._last_words():
            try:
                self._settle()
                self._save(notice)
            except SaveFailed as error:
                self._reporter.say("save_failed", id=notice.id, epoch=notice.epoch, step=done, message=str(error))
                self._plan_next(done)
                self._watcher.end_round()
                return
            verdict = self._ranks.follow("leave" if self._watcher.must_leave else "continue", self._settings.patience)
        if verdict == "leave":  # the round stays open: what is told from here on finds nobody
            self._reporter.last_word("leaving", id=notice.id, epoch=notice.epoch, step=done)
            self.close()
            raise Preempted(self._settings.exit_code)
        self._watcher.end_round()
        self._reporter.say("continued", id=notice.id, epoch=notice.epoch, step=done)

    def _save(self, notice: Notice | None = None, *, staged: bool = False) -> None:
        """Write and seal; `staged`: what is still being written may be sealed while training goes on."""
        done = self._at[0]
        began = clock.steady_now()
        self._watcher.saving = lambda: self._saver.bytes_written(done)
        try:
            upload = self._saver.write(done)
        except BaseException:
            self._watcher.saving = None
            raise
        self._plan_next(done)
        if staged and upload is not None:
            self._sealing = Sealing(lambda: self._seal(done, upload, began, notice))
        else:
            self._seal(done, upload, began, notice)

    def _seal(self, done: int, upload: Upload | None, began: float, notice: Notice | None) -> None:
        try:
            saved = self._saver.seal(done, upload)
        finally:
            self._watcher.saving = None
        self._reporter.say(
            "saved",
            id=None if notice is None else notice.id,
            epoch=None if notice is None else notice.epoch,
            step=done,
            path=str(saved.path),
            manifest=saved.manifest.digest,
            bytes=saved.manifest.size,
            seconds=round(clock.steady_now() - began, 3),
        )

    def _settle(self) -> None:
        """A save that is still being sealed comes to its end. Raises RankLost."""
        sealing, self._sealing = self._sealing, None
        if sealing is not None:
            trouble = sealing.wait()
            if trouble is not None:
                self._reporter.say("save_failed", step=self._at[0], message=str(trouble))

    def _plan_next(self, done: int) -> None:
        if self._settings.every_steps is not None:
            self._next_save = done + self._settings.every_steps

    def _position(self) -> Position:
        return self._at

    def _on_signal(self, number: signal.Signals) -> None:
        """In a handler: nothing but a queue that allows it."""
        deadline = clock.unix_now() + TERM_GRACE if number is signal.SIGTERM else None
        identity = f"signal-{os.getpid()}-{next(self._signal_ids)}"
        self._watcher.ask(Notice(identity, UNFENCED, number.name, deadline))


_NEVER = 1 << 62


def _files(channels: Channels) -> list[FileChannel]:
    found: list[FileChannel] = []
    if channels.notice_file is not None:
        found.append(FileChannel(channels.notice_file))
    if channels.annotations_file is not None:
        found.append(AnnotationsChannel(channels.annotations_file))
    return found
