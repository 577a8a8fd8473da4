"""What failed starts of one model lead to: a back-off by (uid, revision), counted as `deploy.local.backoff` does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from deploy.kubernetes.replica import PodReplica
from deploy.local import backoff
from deploy.local.backoff import Backoff, Failure
from events.units import Instant

Key = tuple[str, int]
"""The uid of a declaration, and a revision of it: another one begins anew."""


def key_of(replica: PodReplica) -> Key:
    """Whose starts it counts for."""
    return replica.declared.uid, replica.grant.revision


@dataclass(slots=True)
class Attempts:
    """The back-offs of one model."""

    _backoffs: dict[Key, Backoff] = field(default_factory=dict)

    def refused(self, key: Key, failure: Failure, now: Instant) -> None:
        """A replica could not even be tried."""
        self._backoffs[key] = backoff.failed(self._backoffs.get(key, Backoff()), failure, now)

    def failed(self, replica: PodReplica, beside: Iterable[PodReplica], now: Instant) -> Failure:
        """A replica failed; `beside` are the model's others. Returns what went wrong."""
        key, failure = key_of(replica), replica.failure()
        before = self._settled(key, beside, now)
        if replica.ready_at is None:
            self._backoffs[key] = backoff.failed(before, failure, now)
        else:
            self._backoffs[key] = backoff.broke(before, failure, replica.ready_at, now)
        return failure

    def succeeded(self, replica: PodReplica) -> None:
        """A replica became ready."""
        key = key_of(replica)
        if key in self._backoffs:
            self._backoffs[key] = backoff.succeeded(self._backoffs[key])

    def ended(self, replica: PodReplica) -> None:
        """A replica is gone. One that was ready and ended because it was told to has lived, however short."""
        key, verdict = key_of(replica), replica.verdict
        if key in self._backoffs and verdict is not None and not verdict.reason and replica.ready_at is not None:
            self._backoffs[key] = backoff.lived(self._backoffs[key])

    def _settled(self, key: Key, beside: Iterable[PodReplica], now: Instant) -> Backoff:
        """The back-off so far; forgiven when some replica has been ready for longer than its probation."""
        before = self._backoffs.get(key, Backoff())
        ready = [one.ready_at for one in beside if key_of(one) == key and one.ready_at is not None]
        return backoff.lived(before) if any(now - at >= backoff.PROBATION for at in ready) else before

    def retries(self, uid: str) -> Mapping[int, Instant]:
        """Until when starts of each revision wait."""
        return {
            revision: known.retry_at
            for (of, revision), known in self._backoffs.items()
            if of == uid and known.retry_at is not None
        }

    def told(self) -> Backoff:
        """What people should hear: the newest revision that fails, else the newest that has something to say."""
        ranked = sorted(self._backoffs.items(), key=lambda one: (one[1].failures > 0, bool(one[1].reason), one[0][1]))
        return ranked[-1][1] if ranked else Backoff()

    def forget_at(self) -> Instant | None:
        """When the failures of a model that is granted nothing are forgotten; None: there are none."""
        failed_at = [known.last_failure_at for known in self._backoffs.values() if known.last_failure_at is not None]
        return Instant(max(failed_at) + backoff.LONGEST_DELAY) if failed_at else None

    def forget(self, keep: Iterable[Key], beside: Iterable[PodReplica], now: Instant) -> None:
        """Drop all but those of `keep` that still have something to say."""
        wanted, others = set(keep), list(beside)
        for key in list(self._backoffs):
            if key not in wanted or self._settled(key, others, now) == Backoff():
                del self._backoffs[key]

    def __bool__(self) -> bool:
        """Whether anything stands against a start, or is to be told."""
        return bool(self._backoffs)
