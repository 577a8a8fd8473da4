"""The view: declarations, grants, fences."""

from __future__ import annotations

from deploy.local.declared import Declared
from deploy.local.view import KEPT_REVISIONS, View
from events.clock import SimulatedClock
from events.log import Position, Record
from events.names import ModelName, Topic
from events.types.grants import GrantDecided, LeadershipTaken, Placement, ReplicaGrant
from events.types.models import ModelDeclared
from events.types.shared import Resources
from events.units import Instant, Seconds
from events.writer import EventWriter

M = ModelName("m")
WRITER = EventWriter("relume/test", SimulatedClock())


def record(data: object, *, offset: int = 0, epoch: int | None = None) -> Record:
    """A record of the log."""
    envelope = WRITER.envelope(data, epoch=epoch)
    return Record(Position(Topic.GRANTS, 0, offset), Instant(1.0), envelope)


def declaration(
    uid: str = "u", revision: int = 1, generation: int = 1, *, deleted: bool = False, total: str = "10m"
) -> Record:
    """A declaration's record."""
    spec = {"engine": {"type": "simulated"}, "timeouts": {"total": total}}
    return record(
        ModelDeclared(model="m", uid=uid, revision=revision, generation=generation, spec=spec, deleted=deleted)
    )


def granted(index: int = 0, *, uid: str = "u", epoch: int | None = None, node: str = "local") -> Record:
    """A grant of one replica."""
    replica = ReplicaGrant(replica=f"m-r1-{index}", revision=1, placement=Placement(node=node), resources=Resources())
    return record(GrantDecided(model="m", uid=uid, revision=1, wished=1, replicas=(replica,)), epoch=epoch)


def view(*records: Record, live: bool = True) -> View:
    """A view of these records, then live."""
    made = View("local", Seconds(300.0))
    for one in records:
        made.fold(one)
    if live:
        made.begin_live()
    return made


def names(seen: View) -> list[str]:
    """The granted replicas."""
    return [one.replica for one in seen.granted(M).replicas]


def test_grant_of_what_is_declared() -> None:
    """A grant for the declared uid counts, whichever came first."""
    assert names(view(declaration(), granted())) == ["m-r1-0"]
    assert names(view(granted(), declaration())) == ["m-r1-0"]


def test_void_uid() -> None:
    """A grant for another uid grants nothing; when its declaration comes it does."""
    seen = view(declaration("u"), granted(uid="v"))
    assert names(seen) == []
    assert names(view()) == []
    seen.fold(declaration("v"))
    assert names(seen) == ["m-r1-0"]


def test_other_nodes() -> None:
    """What is granted on another node is another's to start."""
    assert names(view(declaration(), granted(node="elsewhere"))) == []


def test_grants_are_fenced() -> None:
    """Live, a grant of an older leader is refused and the newest one stands; equal and newer ones are taken."""
    seen = view(declaration(), granted(0, epoch=5))
    seen.fold(record(LeadershipTaken(pool="p", leader="l"), offset=7))
    assert seen.fold(granted(1, epoch=5)) is None
    assert seen.fold(granted(1)) is None
    assert (names(seen), seen.refused_grants) == (["m-r1-0"], 2)
    assert seen.fold(granted(2, epoch=7)) == M
    assert names(seen) == ["m-r1-2"]


def test_grants_that_stood_in_the_log_count() -> None:
    """At the start the newest grants stand although a leader came since: it writes only what it changes."""
    leadership = record(LeadershipTaken(pool="p", leader="l"), offset=7)
    assert names(view(declaration(), leadership, granted(0, epoch=3))) == ["m-r1-0"]
    assert names(view(declaration(), leadership, granted(0, epoch=7), granted(1, epoch=3))) == ["m-r1-0"]


def test_drain_bound() -> None:
    """The longest request bounds a drain, and the cluster's setting bounds it too."""
    assert view(declaration(total="90s")).granted(M).drain_bound == 90.0
    assert view(declaration(total="1h")).granted(M).drain_bound == 300.0


def test_revisions_are_kept() -> None:
    """The last few revisions can be started again; older ones are forgotten; another uid begins anew."""
    seen = view(*(declaration(revision=number, generation=number) for number in range(1, 8)))
    model = seen.models[M]
    assert sorted(model.revisions) == [4, 5, 6, 7]
    assert len(model.revisions) == KEPT_REVISIONS
    assert isinstance(model.revisions[7], Declared)
    seen.fold(declaration("other"))
    assert sorted(seen.models[M].revisions) == [1]


def test_history_read_twice() -> None:
    """An older generation that is read again changes nothing."""
    seen = view(declaration(revision=2, generation=5))
    assert seen.fold(declaration(revision=1, generation=4)) is None
    assert seen.models[M].revision == 2


def test_invalid_declaration_is_kept_as_words() -> None:
    """What cannot be run is remembered with why, so that its start fails with a reason."""
    seen = view(record(ModelDeclared(model="m", uid="u", revision=1, generation=1, spec={"engine": {"type": "x"}})))
    assert isinstance(seen.models[M].revisions[1], str)


def test_deleted() -> None:
    """A deletion keeps what is needed to drain."""
    seen = view(declaration(total="90s"), granted(), declaration(generation=2, deleted=True))
    assert seen.models[M].deleted
    assert seen.granted(M).drain_bound == 90.0
