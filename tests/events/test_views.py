"""Views: what stands, folded from records."""

from __future__ import annotations

import pytest

from events.clock import SimulatedClock
from events.envelope import AnyEnvelope
from events.log import Position, Record
from events.names import Topic
from events.types.decisions import OwnershipTaken, WishDecided
from events.types.gateways import GatewayBeat
from events.types.grants import GrantDecided, LeadershipTaken
from events.types.models import ModelDeclared
from events.types.replicas import CardsObserved, ReplicasObserved
from events.units import Instant
from events.views import CardsView, Fence, GatewaysView, GrantsView, ModelsView, ReplicasView, WishesView
from events.writer import EventWriter


class Tape:
    """Records at growing offsets, as a log would give them."""

    def __init__(self) -> None:
        self.clock = SimulatedClock(100.0)
        self.writer = EventWriter("relume/test", self.clock)
        self.offset = -1

    def record(self, data: object, epoch: int | None = None) -> Record:
        self.offset += 1
        envelope: AnyEnvelope = self.writer.envelope(data, epoch=epoch)
        return Record(Position(str(Topic.MODELS), 0, self.offset), self.clock.now(), envelope)


@pytest.fixture
def tape() -> Tape:
    return Tape()


def model(name: str = "m", uid: str = "u", *, aliases: tuple[str, ...] = (), deleted: bool = False) -> ModelDeclared:
    return ModelDeclared(
        model=name, uid=uid, revision=1, generation=1, spec={"aliases": list(aliases)}, deleted=deleted
    )


def wish(replicas: int = 1, uid: str = "u") -> WishDecided:
    return WishDecided(
        model="m", uid=uid, revision=1, replicas=replicas, priority=0, reasons=(), snapshot={}, policy={}, memory={}
    )


def grant(wished: int = 1) -> GrantDecided:
    return GrantDecided(model="m", uid="u", revision=1, wished=wished, replicas=())


def test_models(tape: Tape) -> None:
    """The newest declaration stands; a deleted model is told apart from one that never was."""
    view = ModelsView()
    assert view.apply(tape.record(model("b"))) == "model/b"
    assert view.apply(tape.record(model("a"))) == "model/a"
    assert view.apply(tape.record(model("a"))) is None, "declared the same again"
    assert [declared.model for declared in view.all()] == ["a", "b"]
    assert view.apply(tape.record(model("a", deleted=True))) == "model/a"
    assert view.get("a") is None
    assert view.declared("a") == model("a", deleted=True)
    assert view.declared("c") is None
    assert [declared.model for declared in view.all()] == ["b"]


def test_other_types_and_repeated_records_change_nothing(tape: Tape) -> None:
    """A view takes its own type only, and a record that is delivered again is known by its offset."""
    view = ModelsView()
    assert view.apply(tape.record(GatewayBeat(gateway="g", boot="b"))) is None
    old, new = tape.record(model(uid="old")), tape.record(model(uid="new"))
    assert view.apply(new) == "model/m"
    assert view.apply(old) is None
    assert view.apply(new) is None
    assert view.is_current("m", "new")
    assert not view.is_current("m", "old")
    assert not view.is_current("x", "new")


def test_aliases(tape: Tape) -> None:
    """A name goes before an alias; aliases follow the newest declaration; two holders are told apart by name."""
    view = ModelsView()
    view.apply(tape.record(model("b", aliases=("gpt", "gpt", "a"))))
    assert view.resolve("gpt") == view.get("b") == view.resolve("a")
    view.apply(tape.record(model("a", aliases=("gpt",))))
    assert view.resolve("a") == view.get("a") == view.resolve("gpt")
    view.apply(tape.record(model("a", deleted=True)))
    assert view.resolve("gpt") == view.resolve("a") == view.get("b")
    view.apply(tape.record(model("b", aliases=("other",))))
    assert view.resolve("gpt") is None
    assert view.resolve("other") == view.get("b")


def test_another_uid_is_void(tape: Tape) -> None:
    """A value of an earlier life of a name is not given to who asks for this one."""
    wishes, replicas = WishesView(), ReplicasView()
    wishes.apply(tape.record(wish(uid="old")))
    replicas.apply(tape.record(ReplicasObserved(model="m", uid="old", replicas=())))
    for view in (wishes, replicas):
        assert view.get("m", "new") is None
        assert view.get("m", "old") == view.get("m")
        assert view.get("x") is None
        assert len(view.all()) == 1


def test_wishes_are_fenced(tape: Tape) -> None:
    """From the offset at which another took the partition, its older owner's wishes are refused and counted."""
    view = WishesView()
    assert view.apply(tape.record(wish(1))) == "model/m", "nobody has taken the partition yet"
    first = tape.record(OwnershipTaken(partition=0, owner="a"))
    assert view.apply(first) is None
    assert view.apply(tape.record(wish(2), epoch=first.position.offset)) == "model/m"
    second = tape.record(OwnershipTaken(partition=0, owner="b"))
    view.apply(second)
    assert view.apply(tape.record(wish(9), epoch=first.position.offset)) is None
    assert view.apply(tape.record(wish(9))) is None
    assert view.refused == 2
    assert view.apply(tape.record(wish(3), epoch=second.position.offset)) == "model/m"
    standing = view.standing("m")
    assert standing is not None
    assert (standing.data.replicas, standing.epoch) == (3, second.position.offset)
    view.apply(tape.record(OwnershipTaken(partition=5, owner="c")))
    assert view.fence.newest(0) == second.position.offset, "another partition's owner fences that one only"


def test_grants_are_fenced(tape: Tape) -> None:
    """Grants of a leader that was replaced are refused and counted."""
    view = GrantsView()
    old, new = (tape.record(LeadershipTaken(pool="default", leader=name)) for name in "ab")
    view.apply(old)
    view.apply(new)
    assert view.apply(tape.record(grant(5), epoch=old.position.offset)) is None
    assert view.refused == 1
    assert view.apply(tape.record(grant(1), epoch=new.position.offset)) == "model/m"
    found = view.get("m")
    assert found is not None
    assert found.wished == 1


def test_fence_never_goes_back() -> None:
    """A record of an older taking that arrives late does not let the old writer in again."""
    fence = Fence()
    assert fence.allows("p", None)
    fence.take("p", 7)
    fence.take("p", 3)
    assert [fence.allows("p", epoch) for epoch in (None, 3, 6, 7, 8)] == [False, False, False, True, True]
    assert fence.newest("q") is None


def test_cards(tape: Tape) -> None:
    """The newest word about each node."""
    view = CardsView()
    assert view.apply(tape.record(CardsObserved(node="n", cpu=1, memory_bytes=1))) == "node/n"
    assert view.apply(tape.record(CardsObserved(node="n", cpu=2, memory_bytes=1))) == "node/n"
    found = view.get("n")
    assert found is not None
    assert found.cpu == 2
    assert view.get("x") is None
    assert len(view.all()) == 1


def test_gateways(tape: Tape) -> None:
    """Silence of more than five seconds is death; leaving is told at once; an equal beat changes nothing."""
    view = GatewaysView()
    assert view.apply(tape.record(GatewayBeat(gateway="a", boot="1"))) == "gateway/a"
    assert view.apply(tape.record(GatewayBeat(gateway="b", boot="1"))) == "gateway/b"
    tape.clock.set(104.0)
    assert view.apply(tape.record(GatewayBeat(gateway="a", boot="1"))) is None
    assert view.heard_at("a") == 104.0
    assert [beat.gateway for beat in view.living(Instant(105.0))] == ["a", "b"]
    assert [beat.gateway for beat in view.living(Instant(105.1))] == ["a"]
    assert view.apply(tape.record(GatewayBeat(gateway="a", boot="1", leaving=True))) == "gateway/a"
    assert view.living(Instant(104.0)) == (view.get("b"),)
    assert view.apply(tape.record(GatewayBeat(gateway="a", boot="2"))) == "gateway/a"
    assert (view.get("x"), view.heard_at("x")) == (None, None)
