"""What a member is started with: its command, its environment, its shim's orders."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.local.addresses import Ports
from deploy.local.cores import Cores
from deploy.local.environment import Marks, child_environment
from deploy.local.folder import DataFolder
from deploy.local.gpu_limits import GpuLimits
from deploy.local.logs import RUN_MARK, log_path
from deploy.local.process import Door, Order
from deploy.local.settings import LocalSettings
from deploy.local.training.checking import Checker
from deploy.local.training.emptying import Left
from deploy.local.training.folders import RunFolder, logs_of, mark_of, run_folder
from deploy.local.training.notifying import Address, Poster
from events.clock import Clock
from events.types.training import MemberGrant, TrainingGranted
from events.units import Instant, format_instant
from preemption.core.training import Channel, TrainingPolicy

LISTEN: Final = "RELUME_NOTICE_LISTEN"
TOKEN: Final = "RELUME_NOTICE_TOKEN"  # noqa: S105 - the name of the variable, not what is in it


@dataclass(slots=True)
class Counts:
    """What was heard of all runs since the start."""

    checkpoints: int = 0
    bad_checkpoints: int = 0
    unreadable: int = 0
    """Lines of report files that were no reports."""


@dataclass(frozen=True, slots=True)
class TrainingTools:
    """What all runs share. `record` returns once a job's state of now stands in the log; `news` may be lost."""

    clock: Clock
    settings: LocalSettings
    folder: DataFolder
    ports: Ports
    cores: Cores
    real_cards: frozenset[str]
    limits: GpuLimits | None
    """What keeps parts of cards to their memory; None: nothing does."""
    checker: Checker
    poster: Poster
    record: Callable[[str], Awaitable[None]]
    news: Callable[[object], None]
    counts: Counts


@dataclass(frozen=True, slots=True)
class Shape:
    """A run, as it was granted, and the declaration that it is of."""

    policy: TrainingPolicy
    uid: str
    revision: int
    run: int
    members: tuple[MemberGrant, ...]

    def folder(self, data: DataFolder) -> RunFolder:
        """Its files."""
        return run_folder(data, self.policy.job, self.uid, self.run)

    def start_folder(self, data: DataFolder) -> Path:
        """Where its processes start."""
        return Path(self.policy.folder) if self.policy.folder else self.folder(data).work

    def mark(self, member: str) -> str:
        """What names a member's processes."""
        return mark_of(self.uid, self.run, member)

    def left(self, tools: TrainingTools, since: Instant) -> Left:
        """What must not be there any more before its cards are free."""
        cards = {card for one in self.members for card in one.placement.gpus}
        names = frozenset(self.mark(one.member) for one in self.members)
        return Left(tools.folder.mark, names, frozenset(cards & tools.real_cards), since)


def shape_of(grant: TrainingGranted, policy: TrainingPolicy) -> Shape:
    """The run that a grant is about."""
    return Shape(policy, grant.uid, grant.revision, grant.run, grant.members)


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where a run's ranks meet, and where its notices come in."""

    host: str
    port: int
    notices: Address | None


def order_for(tools: TrainingTools, shape: Shape, rank: int, meeting: Meeting) -> Order:
    """How a member is started."""
    policy, member, settings = shape.policy, shape.members[rank], tools.settings
    folder = shape.folder(tools.folder)
    grace = policy.checkpoint.grace
    now = format_instant(tools.clock.now())
    return Order(
        argv=policy.command,
        env=environment_of(tools, shape, rank, meeting),
        log_path=log_path(logs_of(tools.folder), member.member),
        header=f"{RUN_MARK}{member.member} starts in run {shape.run} at {now}: {policy.command[0]}",
        log_bytes=settings.log_bytes,
        grace=grace,
        orphan_grace=grace,
        niceness=settings.training_niceness,
        cores=tools.cores.of(shape.mark(member.member)),
        door=Door(folder.door(rank), settings.training_adopt_within),
        folder=shape.start_folder(tools.folder),
        word=folder.word(rank),
    )


def environment_of(tools: TrainingTools, shape: Shape, rank: int, meeting: Meeting) -> dict[str, str]:
    """A member's environment. The job's own variables win, except over marks, cards, ranks and relume's own.

    Each member sees its own cards only, as on a machine of its own. So its LOCAL_RANK is 0: ``cuda:LOCAL_RANK`` is the
    first card that it has.
    """
    policy, member, folder = shape.policy, shape.members[rank], shape.folder(tools.folder)
    cards = tuple(member.placement.gpus)
    devices = tuple(card for card in cards if card in tools.real_cards)
    marks = Marks(
        replica=shape.mark(member.member), data_dir=tools.folder.mark, port=None, cpu=member.resources.cpu, cards=cards,
        devices=devices,
    )  # fmt: skip
    own = policy.environment
    limits = {} if tools.limits is None else tools.limits.environment(marks.replica, member.resources, devices, own)
    made = child_environment(os.environ, marks, {**own, **limits})
    # `python` is the trainer's own where there is one, else the one that runs relume, which has the SDK
    made["PATH"] = os.pathsep.join(filter(None, (made.get("PATH", os.defpath), str(Path(sys.executable).parent))))
    made |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(shape.members)),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": meeting.host,
        "MASTER_PORT": str(meeting.port),
        "RELUME_JOB": policy.job,
        "RELUME_RUN": str(shape.run),
        "RELUME_BOARD": str(folder.board),
        "RELUME_PREEMPT_SIGNAL": policy.checkpoint.signal,
    }
    if rank == 0:  # it commits and speaks for all
        made["RELUME_REPORT_FILE"] = str(folder.reports)
    if Channel.FILE in policy.checkpoint.channels:
        made["RELUME_NOTICE_FILE"] = str(folder.notice)
    if meeting.notices is not None and rank == 0:
        made[LISTEN] = f"{meeting.notices.host}:{meeting.notices.port}"
        made[TOKEN] = meeting.notices.token
    return made


def address_in(environment: dict[str, str]) -> Address | None:
    """Where a process that was started with this environment takes notices over HTTP."""
    host, _, port = environment.get(LISTEN, "").rpartition(":")
    return Address(host, int(port), environment.get(TOKEN, "")) if port.isdigit() else None
