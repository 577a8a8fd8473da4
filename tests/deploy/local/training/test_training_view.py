"""What the cluster knows of jobs: the newest declaration, its revisions, and the grant that holds."""

from __future__ import annotations

from dataclasses import replace

from deploy.local.training.view import KEPT_REVISIONS, TrainingView
from events.clock import SimulatedClock
from events.log import Position, Record
from events.names import Topic
from events.types.grants import LeadershipTaken, Placement
from events.types.training import TrainingDeclared
from events.units import Instant
from events.writer import EventWriter
from preemption.core.training import TrainingPolicy
from tests.support.training_stage import granted, spec_of

WRITER = EventWriter("relume/test", SimulatedClock())


def declared(revision: int = 1, *, uid: str = "u1", **rest: object) -> TrainingDeclared:
    fields = {"job": "tune", "uid": uid, "revision": revision, "generation": revision, "spec": spec_of("python3")}
    return TrainingDeclared(**fields | rest)  # type: ignore[arg-type]  # tests pass what fits


class World:
    """A view that is told records with offsets that count up."""

    def __init__(self) -> None:
        self.view = TrainingView("local")
        self.offset = 0

    def say(self, data: object, epoch: int | None = None) -> str | None:
        self.offset += 1
        envelope = WRITER.envelope(data, epoch=epoch)
        return self.view.fold(Record(Position(Topic.GRANTS, 0, self.offset), Instant(1.0), envelope))


def test_a_grant_holds_until_the_next() -> None:
    """Also while the name is declared anew, so that what runs is told; but on this node only."""
    world = World()
    assert world.say(granted()) == "tune"
    world.say(declared())
    assert world.view.granted("tune") == granted()
    world.say(declared(uid="u2"))
    assert world.view.granted("tune") == granted()
    elsewhere = replace(granted(uid="u2").members[0], placement=Placement(node="other"))
    world.say(replace(granted(uid="u2", members=2), members=(granted(uid="u2").members[0], elsewhere)))
    assert world.view.granted("tune") is None


def test_fences() -> None:
    """Smaller epochs than that of the grant, and, once the log was read, of the newest leadership, are refused."""
    world = World()
    world.say(declared())
    world.say(LeadershipTaken(pool="default", leader="a"))
    world.say(granted(1), epoch=0)  # while the log is read all count
    world.view.begin_live()
    assert world.say(granted(2), epoch=1) is None
    assert world.say(granted(3), epoch=5) == "tune"
    assert world.say(granted(4), epoch=4) is None
    grant = world.view.granted("tune")
    assert grant is not None
    assert (grant.run, world.view.refused_grants) == (3, 2)


def test_revisions() -> None:
    """The last few are known, since a run that goes on may be of one; what cannot be read says why."""
    world = World()
    for revision in range(1, KEPT_REVISIONS + 2):
        world.say(declared(revision))
    assert sorted(world.view.jobs["tune"].revisions) == list(range(2, KEPT_REVISIONS + 2))
    assert world.say(declared(2)) is None  # read again from the history
    world.say(declared(9, spec={"command": [], "odd": 1}))
    job = world.view.jobs["tune"]
    assert isinstance(job.revisions[9], str)
    assert isinstance(job.revisions[5], TrainingPolicy)


def test_a_name_that_is_a_path() -> None:
    """A foreign declaration cannot lead out of the data folder."""
    world = World()
    world.say(declared(job="../../etc"))
    assert "is no name of a job" in str(world.view.jobs["../../etc"].revisions[1])


def test_a_deleted_job_keeps_what_it_was_made_of() -> None:
    """Until nothing of it is left, its runs are ended by their own contract."""
    world = World()
    world.say(declared())
    world.say(declared(1, generation=2, deleted=True, spec={}))
    assert world.view.jobs["tune"].deleted
    assert isinstance(world.view.jobs["tune"].revisions[1], TrainingPolicy)
    world.view.forget("tune")
    assert world.view.granted("tune") is None
