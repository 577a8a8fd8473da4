"""What would become of more work in a pool, one question after the other: each sees what those before it would take.
Answers without doing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import numpy as np

from events.types.shared import Resources
from events.units import Instant, Seconds
from preemption.core.gpus.cards import node_spec
from preemption.core.gpus.choosing import Chooser, Policy
from preemption.core.gpus.gang import place_gang
from preemption.core.gpus.mix import Fragmentation
from preemption.core.gpus.reserve import Reserve, for_training
from preemption.core.gpus.shapes import MILLI, Spot, Task
from preemption.core.gpus.space import Ints, Space
from preemption.core.reclaim.leaving import NOBODY, SHOWN, Expected, Leaver, coming_of, expected
from preemption.core.reclaim.planning import Scene, after, plan_one
from preemption.core.reclaim.pool_policy import PoolPolicy
from preemption.core.reclaim.prechecking import Pool, task_of
from preemption.core.reclaim.usually import Usually
from preemption.core.reclaim.values import Held, Job, Outcome, ReclaimPlan, Shortage


@dataclass(frozen=True, slots=True)
class Asked:
    """So many replicas more of a model."""

    model: str
    resources: Resources
    replicas: int
    priority: int


@dataclass(frozen=True, slots=True)
class Answered:
    """What would become of them: the plan, how many more fit in all, F of the pool before and after (shares of all
    cards), and, where they do not fit, what is lacking, in words, and when there is room."""

    plan: ReclaimPlan
    room: int
    before: float
    after: float | None
    lacks: str
    expects: Expected


@dataclass(frozen=True, slots=True)
class AskedGang:
    """A training job. With `least` members it can go on; it is started with as many as there is room for. `min_run`,
    `protected`: when it would have to yield to what is asked for after it."""

    job: str
    resources: Resources
    members: int
    least: int
    priority: int
    min_run: Seconds = Seconds(0.0)
    protected: bool = False


@dataclass(frozen=True, slots=True)
class Short:
    """A model that lacks replicas now: training of lower priority leaves the nodes to it that could hold one."""

    model: str
    resources: Resources
    priority: int


@dataclass(frozen=True, slots=True)
class Around:
    """What else goes on. `short`: models that lack replicas; `leavers`: all that hold something, and when they leave;
    `waiting`: training jobs that wait, with their priorities. `models`, `jobs`: what a replica of each declared model
    takes, and a member of each job that waits."""

    short: Sequence[Short] = ()
    leavers: Sequence[Leaver] = ()
    waiting: Sequence[tuple[str, int]] = ()
    models: Mapping[str, Resources] = field(default_factory=dict)
    jobs: Mapping[str, Resources] = field(default_factory=dict)


class Starts(StrEnum):
    """When a training job would be started."""

    NOW = "now"
    YIELDING = "when_others_have_yielded"
    """Jobs of lower priority are made to yield for it."""
    COMING = "when_others_have_gone"
    """Those who were told to yield, or are going, free enough."""
    BEHIND = "when_models_have_theirs"
    """There is room, but a model of higher priority lacks the same."""
    LATER = "when_there_is_room"
    """Training never takes cards from models: it waits until there is room."""
    NEVER = "never"
    """Not even an empty pool would hold it, beside what training cannot take."""


@dataclass(frozen=True, slots=True)
class AnsweredGang:
    """What would become of a training job. `members`: with how many it would be started; 0 while it is not.
    `behind`: jobs that wait already, and come before it."""

    plan: ReclaimPlan
    starts: Starts
    members: int
    room: int
    before: float
    after: float | None
    lacks: str
    expects: Expected
    behind: tuple[str, ...] = ()


NOTHING: Final = Around()


class Questions:
    """Questions about one pool. `jobs`: training that runs, as possible victims."""

    def __init__(
        self, pool: Pool, jobs: tuple[Job, ...], policy: PoolPolicy, now: Instant, around: Around = NOTHING
    ) -> None:
        self.pool = pool
        self._policy = policy
        self._now = now
        self._around = around
        self._usually = Usually(around.models, around.jobs)
        self._scene = Scene(space=pool.space, jobs=jobs, coming=coming_of(around.leavers))
        self._training = pool.by_training()
        self._partial = pool.partial()

    def rooms(self, resources: Resources) -> dict[str, int]:
        """How many of these fit on each node now, by node; nodes without room are left out."""
        room = self._scene.space.room(task_of(resources))
        return {node.name: int(fits) for node, fits in zip(self.pool.space.nodes, room, strict=True) if fits > 0}

    def ask(self, asked: Asked) -> Answered:
        """What would become of replicas of a model; they count as placed in what is asked after it."""
        mix = self._usually.with_model(asked.model, asked.resources)
        task, scene = task_of(asked.resources), replace(self._scene, mix=mix)
        shortage = Shortage(
            name=asked.model, task=task, count=asked.replicas, priority=asked.priority, since=self._now,
            worth=self._policy.best(self.pool.cards, task),
        )  # fmt: skip
        plan = plan_one(scene, shortage, self._policy.lending.reclaim, self._now)
        room = int(scene.space.room(task).sum())
        fits = plan.outcome in (Outcome.FITS, Outcome.RECLAIMS)
        lacks = "" if fits else f"{asked.replicas} replicas are asked for; fewer have room"
        if not fits and not room:
            lacks = self.pool.lacks(asked.resources) or "what is asked for before it takes the room"
        before, later = self._fragmented(scene, task, plan, self._scene.space)
        expects = (
            NOBODY if fits else self._expected(task, lambda space, _: int(space.room(task).sum()) >= asked.replicas)
        )
        self._scene = after(scene, shortage, plan, self._policy.lending.reclaim, self._now)
        self._mark_partial(task, plan.spots)
        return Answered(
            plan=plan, room=room, before=before, after=later if fits else None, lacks=lacks, expects=expects
        )

    def ask_gang(self, asked: AskedGang) -> AnsweredGang:
        """What would become of a training job; it counts as placed in what is asked after it. Of one that runs it is
        told what would become of its next run: what it holds is its own."""
        as_it_is = self._scene, self._training
        self._leave(asked.job)
        mix = self._usually.with_job(asked.job, asked.resources)
        task, scene = task_of(asked.resources), replace(self._scene, mix=mix)
        view = self._for_training(scene.space)
        left = self._left_to_models(view, asked, task)
        room = int(left.room(task).sum())
        spots = self._gang(scene, left, task, (min(room, asked.members), asked.least))
        if spots:
            plan = ReclaimPlan(shortage=asked.job, outcome=Outcome.FITS, spots=spots)
            starts = Starts.NOW
        else:
            shortage = Shortage(
                name=asked.job, task=task, count=asked.least, priority=asked.priority, since=self._now,
                worth=self._policy.best(self.pool.cards, task),
            )  # fmt: skip
            plan = plan_one(replace(scene, space=left), shortage, self._policy.lending.reclaim, self._now)
            starts = self._starts(plan, view, task, asked)
        if starts not in (Starts.NOW, Starts.YIELDING):
            plan = replace(plan, spots=(), victims=())
        before, later = self._fragmented(scene, task, plan, scene.space)
        expects = self._expects(starts, asked, task)
        self._take(scene, task, plan, asked)
        placed = len(plan.spots)
        if not placed:
            self._scene, self._training = as_it_is
        return AnsweredGang(
            plan=plan, starts=starts, members=placed, room=room, before=before, after=later if placed else None,
            lacks="" if placed else self._why(starts, asked, room), expects=expects,
            behind=() if placed or starts is Starts.NEVER else self._behind(asked),
        )  # fmt: skip

    def _leave(self, job: str) -> None:
        """A run that goes on makes way for the next one of its job."""
        mine = next((one for one in self._scene.jobs if one.name == job and not one.yielding), None)
        if mine is None:
            return
        space, self._training = self._scene.space.copy(), self._training.copy()
        for held in mine.members:
            space.give(held.task, held.spot)
            for column in held.spot.cards:
                self._training[held.spot.node, column] -= space.takes(held.task, held.spot, column)
        others = tuple(one for one in self._scene.jobs if one is not mine)
        self._scene = replace(self._scene, space=space, jobs=others)

    def _expects(self, starts: Starts, asked: AskedGang, task: Task) -> Expected:
        """When training has room for it, if it must wait for somebody to leave."""

        def enough(space: Space, held: Ints) -> bool:
            view = for_training(space, held, self._partial, self._reserve)
            return int(self._left_to_models(view, asked, task).room(task).sum()) >= asked.least

        return self._expected(task, enough) if starts in (Starts.COMING, Starts.LATER) else NOBODY

    def _expected(self, task: Task, enough: Callable[[Space, Ints], bool]) -> Expected:
        return expected(self._around.leavers, task, (self._scene.space, self._training), enough)

    def _behind(self, asked: AskedGang) -> tuple[str, ...]:
        """Jobs that have waited already come before one of their priority."""
        waiting = sorted(self._around.waiting, key=lambda one: (-one[1], one[0]))
        return tuple(name for name, priority in waiting if priority >= asked.priority and name != asked.job)[:SHOWN]

    def _starts(self, plan: ReclaimPlan, view: Space, task: Task, asked: AskedGang) -> Starts:
        if plan.outcome is Outcome.RECLAIMS:
            return Starts.YIELDING
        if int(view.room(task).sum()) >= asked.least:
            return Starts.BEHIND
        if plan.outcome in (Outcome.PENDING, Outcome.COMING):
            return Starts.COMING
        empty = Space([node_spec(node) for node in self.pool.nodes])
        whole = for_training(empty, np.zeros_like(self._training), np.zeros_like(self._partial), self._reserve)
        return Starts.LATER if int(whole.room(task).sum()) >= asked.least else Starts.NEVER

    def _why(self, starts: Starts, asked: AskedGang, room: int) -> str:
        if starts is Starts.BEHIND:
            first = sorted(one.model for one in self._around.short if one.priority > asked.priority)
            return f"there is room, but {', '.join(first)} lacks the same and comes first"
        if starts is Starts.NEVER:
            return "not even an empty pool would hold it, beside what is kept free of training"
        members = "1 member has" if room == 1 else f"{room} members have"
        return f"{members} room, {asked.least} are needed; training takes nothing from models"

    @property
    def _reserve(self) -> Reserve:
        return Reserve(self._policy.lending.reserve_shared, self._policy.lending.reserve_whole)

    def _for_training(self, space: Space) -> Space:
        return for_training(space, self._training, self._partial, self._reserve)

    def _left_to_models(self, view: Space, asked: AskedGang, task: Task) -> Space:
        """What training may take, without the nodes that are left to models which lack the same and come first."""
        left = view.copy()
        empty = Space([node_spec(node) for node in self.pool.nodes])
        for one in self._around.short:
            other = task_of(one.resources)
            if one.priority <= asked.priority or (bool(other.gpus), other.profile) != (bool(task.gpus), task.profile):
                continue
            rows = np.flatnonzero(empty.room(other) > 0)
            left.free[rows] = np.minimum(left.free[rows], 0)
            left.cpu[rows] = np.minimum(left.cpu[rows], -1)
            left.version[rows] += 1
        return left

    def _gang(self, scene: Scene, view: Space, task: Task, sizes: tuple[int, int]) -> tuple[Spot, ...]:
        """Places for as many members as have room, and `sizes[1]` at least; none taken."""
        assert scene.mix is not None  # the caller has set it
        for members in range(sizes[0], sizes[1] - 1, -1):
            spots = place_gang(Chooser(view.copy(), Policy.RELUME, scene.mix), [task] * members)
            if spots is not None:
                return spots
        return ()

    def _fragmented(self, scene: Scene, task: Task, plan: ReclaimPlan, space: Space) -> tuple[float, float]:
        """F before and after the plan."""
        assert scene.mix is not None  # the caller has set it
        later = space.copy()
        for victim in plan.victims:
            members = next(job.members for job in scene.jobs if job.name == victim.job)
            for index in victim.members:
                later.give(members[index].task, members[index].spot)
        for spot in plan.spots:
            later.take(task, spot)
        return Fragmentation(space, scene.mix).ratio(), Fragmentation(later, scene.mix).ratio()

    def _take(self, scene: Scene, task: Task, plan: ReclaimPlan, asked: AskedGang) -> None:
        if not plan.spots:
            return
        shortage = Shortage(name=asked.job, task=task, count=len(plan.spots), priority=asked.priority, since=self._now)
        later = after(scene, shortage, plan, self._policy.lending.reclaim, self._now)
        lending = self._policy.lending
        placed = Job(
            name=asked.job, members=tuple(Held(task, spot) for spot in plan.spots), started_at=self._now,
            priority=asked.priority, worth=self._worth(plan.spots), save=lending.save, restore=lending.restore,
            min_members=min(asked.least, len(plan.spots)), min_run=asked.min_run, protected=asked.protected,
        )  # fmt: skip
        self._scene = replace(later, jobs=(*later.jobs, placed))
        for spot in plan.spots:
            for column in spot.cards:
                self._training[spot.node, column] += self._scene.space.takes(task, spot, column)
        self._mark_partial(task, plan.spots)

    def _worth(self, spots: Sequence[Spot]) -> float:
        """What these cards are worth together, in A100s."""
        nodes = self.pool.nodes
        return sum(
            self._policy.worth(nodes[spot.node].cards[column]) * (spot.milli or MILLI) / MILLI
            for spot in spots
            for column in spot.cards
        )

    def _mark_partial(self, task: Task, spots: Sequence[Spot]) -> None:
        for spot in spots:
            if spot.cards and not task.profile and spot.milli < MILLI:
                self._partial[spot.node, list(spot.cards)] = 1
