"""Runs that outlived the relume which started them: found, taken over, or known to have ended.

What a run is stands in the log, as its last relume published it. Each of its members is behind its door, has left word
of how it ended, or is gone without a trace, which ends the gang as any death of a member does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from deploy.local.adopting import knock
from deploy.local.environment import MARK_DATA, MARK_REPLICA
from deploy.local.folder import DataFolder
from deploy.local.logs import log_path
from deploy.local.process import Exit, Order, read_word
from deploy.local.training.ending import End, signals_of
from deploy.local.training.folders import RunFolder, logs_of, mark_of, run_folder
from deploy.local.training.gang import Member
from deploy.local.training.notifying import Address
from deploy.local.training.starting import address_in
from events.log import EventLog, Query
from events.names import Topic
from events.types.grants import Placement
from events.types.training import MemberGrant, MemberStatus, RunState, Stop, TrainingObserved


@dataclass(frozen=True, slots=True)
class Found:
    """A run that the log knows: what was last told of it, its members now, and where it takes notices over HTTP."""

    observed: TrainingObserved
    members: tuple[Member, ...]
    notices: Address | None

    @property
    def marks(self) -> frozenset[str]:
        """The names of its living processes."""
        one = self.observed
        living = (member for member in self.members if member.process is not None)
        return frozenset(mark_of(one.uid, one.run, member.grant.member) for member in living)


async def find_runs(log: EventLog, folder: DataFolder, node: str) -> dict[str, Found]:
    """The newest run of each job of this node, by job. Raises LogUnavailable, LogClosed."""
    told: dict[str, TrainingObserved] = {}
    async for record in log.read(Query(Topic.REPLICAS, newest_per_key=True)):
        observed = record.envelope.data
        if isinstance(observed, TrainingObserved) and all(one.node == node for one in observed.members):
            told[observed.job] = observed
    return {job: await _find(folder, observed) for job, observed in told.items()}


async def _find(folder: DataFolder, observed: TrainingObserved) -> Found:
    if observed.state is RunState.ENDED:
        return Found(observed, (), None)
    files = run_folder(folder, observed.job, observed.uid, observed.run)
    members = await asyncio.gather(
        *(_member(folder, files, observed, rank) for rank in range(len(observed.members)))
    )  # fmt: skip
    return Found(observed, tuple(members), await asyncio.to_thread(_address, members[0]) if members else None)


async def _member(folder: DataFolder, files: RunFolder, observed: TrainingObserved, rank: int) -> Member:
    status = observed.members[rank]
    member = Member(_grant(status))
    door = files.door(rank)
    if await asyncio.to_thread(door.exists):
        env = {MARK_REPLICA: mark_of(observed.uid, observed.run, status.member), MARK_DATA: folder.mark}
        path = log_path(logs_of(folder), status.member)
        order = Order(argv=("adopted",), env=env, log_path=path, header="", word=files.word(rank))
        adopted = await knock(door, order)
        if adopted is not None:
            member.process = adopted.process
            member.sent |= signals_of(Stop.TERMINATE if adopted.stopping else Stop.NOT)
    exit_ = await asyncio.to_thread(read_word, files.word(rank))
    if exit_ is not None or member.process is None:
        member.end = End(exit_ or Exit(), frozenset(member.sent))
    return member


def _grant(status: MemberStatus) -> MemberGrant:
    placement = Placement(node=status.node, gpus=status.gpus)
    return MemberGrant(member=status.member, placement=placement, resources=status.resources)


def _address(first: Member) -> Address | None:
    """As it was told it at its start. Blocking."""
    if first.process is None:
        return None
    try:
        environment: Mapping[str, str] = psutil.Process(first.process.shim_pid).environ()
    except (psutil.Error, OSError):
        return None
    return address_in(dict(environment))
