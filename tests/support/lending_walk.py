"""A random walk of the lender: people, models, trainers and nodes do anything at any time; what is told comes late,
twice or not at all (the newest word of each key comes in the end); the allocator is killed between any two writes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from events.types.reclaims import ReclaimChanged
from events.types.replicas import CardsObserved
from events.types.training import Stop, TrainingGranted
from events.units import Seconds
from preemption.core.allocator import GrantPlan
from preemption.core.attempts.states import State
from preemption.core.lending.policy import LendingPolicy
from preemption.core.training import CheckpointPolicy
from tests.support.lending import LendingWorld, assert_nothing_twice
from tests.support.pool import GI, needs, node
from tests.support.training import Trainer

CARDS = {"n1": 3, "n2": 2}
MODELS = ("llama", "qwen")
JOBS = ("tune", "deep", "wide")
TRAINERS = (
    Trainer(every=5), Trainer(every=5), Trainer(saves=30.0), Trainer(hears=None), Trainer(hears=None, ends=None),
    Trainer(sdk=False), Trainer(saves=None), Trainer(saves=None, ends=None), Trainer(steps=40), Trainer(empties=20.0),
    Trainer(empties=90.0), Trainer(load=60.0), Trainer(), Trainer(),
)  # fmt: skip
QUICK = CheckpointPolicy(ack=Seconds(3.0), save=Seconds(20.0), grace=Seconds(5.0))


class Crash(Exception):
    """The allocator is killed."""


class Walk(LendingWorld):
    """A world whose words get lost. Deterministic for each seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(*(_node(name) for name in CARDS), lending=LendingPolicy(restore=Seconds(2.0)))
        self.draw = random.Random(seed)
        self.lossy = True
        self.lost_nodes: set[str] = set()
        self.noticed: set[tuple[str, int]] = set()
        self.selected: dict[tuple[str, float], int] = {}
        """How often a job was chosen at one moment."""
        self.excused: set[tuple[str, int]] = set()
        self.crashes = 0
        for index, model in enumerate(MODELS):
            self.declare(model, resources=needs(gpus=1 + index), priority=100 * (1 + index))
        for name in JOBS:
            self._declare_job(name)

    # What happens.

    def step(self) -> None:
        """Something happens, time goes by, some words arrive, the allocator decides or dies."""
        act = self.draw.choice(self._acts())
        act()
        self.now = round(self.now + self.draw.choice((0.05, 0.3, 1.0, 3.0, 11.0)), 6)
        self.deliver()
        try:
            for _ in range(self.draw.randint(0, 3)):
                self.decide()
                self.check()
                self.deliver()
        except Crash:
            self.crashes += 1
            self.restart()
        self.check()

    def calm(self) -> None:
        """Nothing more happens, and every word arrives: all must come to rest."""
        self.lossy = False
        for name in list(self.lost_nodes):
            self._find_node(name)
        for model in MODELS:
            self.wish(model, 0)
        for name in JOBS:
            self.adapter.change(name, empties=0.5, dies=0.2, steps=1, hears=0.2, saves=1.0, load=1.0)
            self.adapter.jobs[name].failures = 0
            self.adapter.jobs[name].retry_at = None
            if self.jobs[name].paused:
                self.change_job(name, paused=False)
        for _ in range(400):
            self.now = round(self.now + 5.0, 6)
            self.obey_all()
            self.settle()
            self.check()

    def _acts(self) -> list[Callable[[], None]]:
        draw = self.draw
        model, name = draw.choice(MODELS), draw.choice(JOBS)
        rare: list[Callable[[], None]] = [
            lambda: self._again(name, cancelled=True), lambda: self._again(name, deleted=True),
            lambda: self._lose_node(draw.choice(("n1", "n2"))), self._find_nodes, self._find_nodes,
            lambda: self.change_job(name, paused=True), lambda: self.change_job(name, paused=False),
            lambda: self.adapter.jobs[name].crash(self.now), self.restart,
            lambda: self.adapter.change(name, **_fields(draw.choice(TRAINERS))),
        ]  # fmt: skip
        often: list[Callable[[], None]] = [
            lambda: self.wish(model, draw.randint(0, 2)), lambda: self.wish(model, 1), lambda: self.wish(model, 0),
            *[lambda: None] * 5, draw.choice(rare),
        ]  # fmt: skip
        return often

    def _declare_job(self, name: str) -> None:
        draw = self.draw
        members = draw.choice((1, 2, 2, 3))
        self.train(
            name, draw.choice(TRAINERS), needs(gpus=1), members=members, min_members=draw.choice((1, members)),
            checkpoint=QUICK,
            priority=draw.choice((0, 0, 10)), budget_per_hour=draw.choice((2, 60)),
            protected=draw.random() < 0.1, max_failures=100,
        )  # fmt: skip

    def _again(self, name: str, **fields: object) -> None:
        """Cancel or delete it; next time declare it anew."""
        job = self.jobs[name]
        if job.cancelled or job.deleted:
            self.change_job(name, uid=job.uid + "x", cancelled=False, deleted=False, paused=False)
        else:
            self.change_job(name, **fields)

    def _lose_node(self, name: str) -> None:
        self.lost_nodes.add(name)
        self.set_node(replace(self.nodes[name], cards=()))
        self._excuse()

    def _excuse(self) -> None:
        """What runs on lost cards may be taken out of the grant before it was told by all means; not without notice."""
        for job in self.adapter.jobs.values():
            for run in range(self.training[job.name].run + 1 if job.name in self.training else 0):
                self.excused.add((job.name, run + 1))

    def _find_nodes(self) -> None:
        for name in list(self.lost_nodes):
            self._find_node(name)

    def _find_node(self, name: str) -> None:
        self.lost_nodes.discard(name)
        self.set_node(_node(name))

    # What is told.

    def deliver(self) -> None:
        """Some words arrive: each is a whole state, and may be told again."""
        for job in self.adapter.jobs.values():
            job.move(self.now)
        for model in self.grants:
            if self._arrives():
                self.obey(model)
        for grant in self.training.values():
            if self._arrives():
                self.adapter.take(grant, self.epoch, self.now)
        for seen in self.adapter.move(self.now):
            if self._arrives():
                self.seen[seen.job] = seen
                self.pool.lender.set_observed(seen)
            elif seen.job in self.seen and self.draw.random() < 0.2:
                self.pool.lender.set_observed(self.seen[seen.job])

    def _arrives(self) -> bool:
        return not self.lossy or self.draw.random() < 0.7

    # What is written.

    def record_reclaims(self, plan: GrantPlan) -> None:
        self._may_crash()
        for one in plan.lent.reclaims:
            if one.id in self.reclaims:
                _assert_goes_on(self.reclaims[one.id][0], one)
            elif one.shortage:
                at = one.job, self.now
                self.selected[at] = self.selected.get(at, 0) + 1
                assert self.selected[at] <= 2, f"{one.job} is asked and let go in turns"  # (once more by a new leader)
        super().record_reclaims(plan)
        self._may_crash()

    def record_grants(self, plan: GrantPlan) -> None:
        for grant in plan.lent.grants:
            if grant.notice is not None and grant.stop is Stop.NOT:
                assert grant.notice.id in self.reclaims, "a notice is sent before its attempt is on record"
                self.noticed.add((grant.job, grant.run))
            if grant.stop is not Stop.NOT:
                assert (grant.job, grant.run) in self.noticed, f"{grant.job} is told to end without a notice"
            self._assert_ends_rightly(grant.job, grant.run, bool(grant.members))
            self._assert_enough(grant)
        super().record_grants(plan)
        self._may_crash()

    def _assert_ends_rightly(self, name: str, run: int, named: bool) -> None:
        """Members that run are not taken out of the grant before they were told by all means."""
        job = self.adapter.jobs[name]
        alive = job.run is not None and job.run.grant.run == run and job.run.ended_at is None
        if not named and alive:
            assert job.run is not None
            told = [signal for at, signal in job.signals if at == run]
            newest = self.training[name]
            assert newest.stop is Stop.KILL or (name, run) in self.excused, (
                f"{name} run {run} is taken away after {told}"
            )
            assert (name, run) in self.noticed, f"{name} run {run} is taken away without a notice"

    def _assert_enough(self, grant: TrainingGranted) -> None:
        """Never fewer members than it needs, nor more than it has."""
        policy = self.jobs[grant.job].policy
        assert not grant.members or policy.min_members <= len(grant.members) <= policy.members
        assert [one.member for one in grant.members] == [f"{grant.job}-{rank}" for rank in range(len(grant.members))]

    def _may_crash(self) -> None:
        if self.lossy and self.draw.random() < 0.03:
            raise Crash

    # What must hold.

    def check(self) -> None:
        if not self.lost_nodes:
            assert_nothing_twice(self)
        lender = self.pool.lender
        claimed = {
            case.id for seat in lender.seats.values() for case in seat.open.values() if case.state is State.CLAIMED
        }
        assert set(lender.claims.all()) <= claimed, "a claim without its attempt"
        for name in self.pool.ledger.holdings:
            assert not name.startswith("claim/") or name.split("/")[1] in claimed, f"{name} is leaked"

    def check_rest(self) -> None:
        """In the end: every attempt has ended, nothing is claimed, and what runs is what is held."""
        open_ones = [one for one, _ in self.reclaims.values() if not one.ended]
        assert not open_ones, [(one.id, one.state) for one in open_ones]
        assert not self.pool.lender.claims.all()
        held = {name for name in self.pool.ledger.holdings if name.startswith("training/")}
        running = {f"training/{m.member}" for grant in self.training.values() for m in grant.members}
        assert held == running


def _node(name: str) -> CardsObserved:
    return node(name, gpus=CARDS[name], cpu=16.0, memory=64 * GI)


def _fields(trainer: Trainer) -> dict[str, object]:
    return {name: getattr(trainer, name) for name in ("hears", "saves", "ends", "empties", "steps")}


def _assert_goes_on(old: ReclaimChanged, new: ReclaimChanged) -> None:
    """A record says what the one before it said, and what happened since."""
    assert not old.ended or old.state == new.state, f"{old.id} was {old.state} and is {new.state}"
    if len(new.history) < 20:
        assert new.history[: len(old.history)] == old.history, f"{old.id} forgot its history"
