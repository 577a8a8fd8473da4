"""The accounts of all training jobs of a pool, and which of them must be recorded."""

from __future__ import annotations

from typing import Final

from events.types.accounts import TrainingAccounted
from events.types.training import TrainingObserved
from events.units import Instant, Seconds
from preemption.core.reclaim.goodput import Account, read_account, see

RECORD_EVERY: Final = Seconds(60.0)
"""Between two records of a job of which only checkpoints are new. Chosen: a trainer may commit each second, and what is
not recorded is seen anew from its newest state. All else is recorded at once."""


class Accounts:
    """By job. Bounded by the jobs that are declared or still end."""

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self._seen: dict[str, tuple[TrainingObserved, Instant]] = {}
        self._recorded: dict[str, tuple[Account, Instant]] = {}
        self._changed: set[str] = set()
        self._leaving: set[str] = set()

    def see(self, seen: TrainingObserved, at: Instant) -> None:
        """What the adapter says of a job's newest run; `at`: when it was said."""
        name = seen.job
        before = self._accounts.get(name) or Account(job=name, uid=seen.uid)
        after = see(before, seen, at)
        self._seen[name] = (seen, at)
        self._accounts[name] = after
        if after != self._recorded.get(name, (None, at))[0]:
            self._changed.add(name)
        self._drop(name)

    def stands(self, event: TrainingAccounted, at: Instant) -> None:
        """An account that stands in the log; what was seen since is added to it."""
        name = event.job
        account = read_account(event)
        self._accounts[name], self._recorded[name] = account, (account, at)
        self._changed.discard(name)
        seen = self._seen.get(name)
        if seen is not None and seen[0].uid == event.uid:
            self.see(*seen)

    def again(self, job: str) -> None:
        """What another wrote hides ours: it is recorded anew."""
        if job in self._accounts:
            self._recorded.pop(job, None)
            self._changed.add(job)

    def leave(self, job: str) -> None:
        """A job is deleted: once nothing of it holds a card, it is forgotten."""
        self._leaving.add(job)
        self._drop(job)

    def come(self, job: str) -> None:
        """A job is declared."""
        self._leaving.discard(job)

    def due(self, now: Instant) -> list[TrainingAccounted]:
        """What must be recorded now."""
        found = []
        for name in sorted(self._changed):
            account = self._accounts[name]
            before, at = self._recorded.get(name, (None, now))
            if before is None or _stage(account) != _stage(before) or now - at >= RECORD_EVERY:
                self._recorded[name] = (account, now)
                self._changed.discard(name)
                found.append(account.event())
                self._drop(name)
        return found

    def __len__(self) -> int:
        return len(self._accounts)

    def _drop(self, job: str) -> None:
        account = self._accounts.get(job)
        over = account is None or (account.open is None and job not in self._changed)
        if job in self._leaving and over:
            self._leaving.discard(job)
            for known in (self._accounts, self._seen, self._recorded):
                known.pop(job, None)


def _stage(account: Account) -> object:
    """What of an account is recorded at once: all but what a checkpoint of a run that goes on changes."""
    run = account.open
    of_run = None if run is None else (run.milli, run.trained is None, run.reports, run.saved, run.ended)
    return account.uid, account.run, of_run, bool(account.commits)
