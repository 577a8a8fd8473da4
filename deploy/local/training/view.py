"""What was declared and granted of training jobs, as the cluster knows it: a fold of `relume.models` and
`relume.grants`. Fenced as models are (see `deploy.local.view`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from events.envelope import AnyEnvelope, Envelope
from events.log import Record
from events.names import is_dns_label
from events.types.grants import LeadershipTaken
from events.types.training import TrainingDeclared, TrainingGranted
from preemption.core.training import TrainingPolicy
from preemption.declared_training import read_training

KEPT_REVISIONS: Final = 4
"""Of a job: what runs, what is declared, and two that a slow allocator may still name."""
Read = Callable[[TrainingDeclared], TrainingPolicy]


@dataclass(slots=True)
class JobView:
    """One job. `revisions` of the newest uid only; a text in place of a policy says why it cannot be run. `forgiven`:
    failures of runs up to this one count no more. `purges`: uids that are deleted, and whose folders go too."""

    uid: str = ""
    revision: int = 0
    generation: int = 0
    deleted: bool = False
    forgiven: int = 0
    purges: set[str] = field(default_factory=set)
    revisions: dict[int, TrainingPolicy | str] = field(default_factory=dict)
    grant: Envelope[TrainingGranted] | None = None

    @property
    def epoch(self) -> int:
        """Of the grant."""
        return 0 if self.grant is None else self.grant.epoch or 0


class TrainingView:
    """All jobs. Used on the event loop only. `node`: the one that grants must be for; None: members may be on any.
    `read` turns a declaration into numbers; ValueError: it cannot be run."""

    def __init__(self, node: str | None, read: Read = read_training) -> None:
        self.jobs: dict[str, JobView] = {}
        self.epoch = 0
        self.refused_grants = 0
        self._node = node
        self._read = read
        self._live = False

    def begin_live(self) -> None:
        """The log has been read to its end: from now on grants are fenced."""
        self._live = True

    def fold(self, record: Record) -> str | None:
        """Take a record in; the job about which something changed, if any."""
        match record.envelope.data:
            case LeadershipTaken():
                self.epoch = max(self.epoch, record.position.offset)
            case TrainingDeclared():
                return self._declared(record.envelope.data)
            case TrainingGranted():
                return self._granted(record.envelope)
        return None

    def _declared(self, event: TrainingDeclared) -> str | None:
        job = self.jobs.setdefault(event.job, JobView())
        if event.uid != job.uid:
            job.uid, job.revisions = event.uid, {}
        elif event.generation < job.generation:
            return None  # read again from the history
        job.revision, job.generation, job.deleted = event.revision, event.generation, event.deleted
        job.forgiven = event.forgiven
        if event.deleted and event.purge:
            job.purges.add(event.uid)
        if not event.deleted or event.revision not in job.revisions:
            job.revisions[event.revision] = self._policy(event)
        for old in sorted(job.revisions)[:-KEPT_REVISIONS]:
            del job.revisions[old]
        return event.job

    def _policy(self, event: TrainingDeclared) -> TrainingPolicy | str:
        if not is_dns_label(event.job):  # it becomes a folder's name
            return f"{event.job!r} is no name of a job: lower case letters, digits and hyphens, 63 at most"
        try:
            return self._read(event)
        except ValueError as error:
            return str(error)

    def _granted(self, envelope: AnyEnvelope) -> str | None:
        grant: TrainingGranted = envelope.data
        job = self.jobs.setdefault(grant.job, JobView())
        epoch = envelope.epoch or 0
        if epoch < job.epoch or (self._live and epoch < self.epoch):
            self.refused_grants += 1
            return None
        job.grant = envelope
        return grant.job

    def granted(self, name: str) -> TrainingGranted | None:
        """The newest grant, with all members on this node. (A gang over several machines is more than this adapter can
        start.) It may be of an earlier declaration: what runs of that is told what it says, and nothing else begins."""
        job = self.jobs.get(name)
        if job is None or job.grant is None:
            return None
        grant = job.grant.data
        here = self._node is None or all(one.placement.node == self._node for one in grant.members)
        return grant if here else None

    def forget(self, name: str) -> None:
        """A deleted job of which nothing is left."""
        self.jobs.pop(name, None)
