"""Claims in the ledger: set aside for one shortage, used up by its replicas, never more than what is free."""

from __future__ import annotations

from dataclasses import replace

import pytest

from events.types.grants import Placement
from events.types.reclaims import ReclaimLedger, ReclaimVerdict
from events.types.shared import Resources
from events.types.training import MemberGrant
from events.units import Instant
from preemption.core.attempts.attempt import Attempt, News
from preemption.core.attempts.states import Happened, State
from preemption.core.inventory import Holding, Ledger, need_of
from preemption.core.lending.case import Case, cards_of, gpus_of, read_case, step
from preemption.core.lending.claims import ClaimBook
from preemption.core.lending.policy import LendingPolicy
from preemption.core.placement import place
from tests.support.pool import needs, node

FREED = needs(gpus=2, cpu=4.0)


def case(*members: MemberGrant, shortage: str = "llama", identity: str = "a1") -> Case:
    """An attempt whose victim held what these members do."""
    attempt = Attempt(
        id=identity, job="tune", uid="u", shortage=shortage, cards=cards_of(members), epoch=3, due=Instant(130.0),
        state=State.CLAIMED, since=Instant(100.0), deadline=Instant(160.0),
    )  # fmt: skip
    return Case(
        attempt=attempt, run=1, members=members, shortage_uid="m", shortage_since=Instant(99.0), cost=12.5,
        verdicts=(ReclaimVerdict(job="tune", why="taken", numbers={"cost": 12.5}),),
        ledger=ReclaimLedger(gpus=gpus_of(members)),
    )  # fmt: skip


def member(resources: Resources = FREED, *cards: str) -> MemberGrant:
    return MemberGrant(member="tune-0", placement=Placement(node="n1", gpus=cards), resources=resources)


@pytest.fixture
def ledger() -> Ledger:
    """Two cards, and eight cores."""
    ledger = Ledger()
    ledger.set_node(node("n1", gpus=2, cpu=8.0))
    return ledger


def test_what_is_claimed_is_free_for_its_shortage_only(ledger: Ledger) -> None:
    """Nobody finds it free; the shortage finds it, and what it leaves stays claimed."""
    book, one = ClaimBook(ledger), need_of(needs(gpus=1))
    book.make(case(member(FREED, "n1-gpu-0", "n1-gpu-1")))
    assert place(ledger, one) is None
    assert book.find("qwen", one) is None
    found = book.find("llama", one)
    assert found is not None
    book.take("llama", {"llama-r1-0": Holding(found, one)})
    assert book.used("a1")
    assert not book.spent("a1")
    (left,) = book.parts("a1").values()
    assert (left.placement.gpus, left.need.gpus, left.need.cpu_milli) == (("n1-gpu-1",), 1, 3000)
    assert book.end("a1")
    assert place(ledger, one) is not None


def test_a_claim_is_spent_when_its_cards_are_used(ledger: Ledger) -> None:
    """Cores that are left over are no reason to keep it."""
    book, two = ClaimBook(ledger), need_of(needs(gpus=2))
    book.make(case(member(FREED, "n1-gpu-0", "n1-gpu-1")))
    found = book.find("llama", two)
    assert found is not None
    book.take("llama", {"llama-r1-0": Holding(found, two)})
    assert book.spent("a1")


def test_what_usually_comes_decides_where_among_the_claims() -> None:
    """As everywhere in the pool: whole pairs stay whole where pairs are what comes, though that is not the best fit."""
    for pairs, best in ((0, "b"), (5, "a")):
        ledger, one = Ledger(), need_of(needs(gpus=1))
        for name, gpus, cpu in (("a", 3, 64.0), ("b", 2, 60.0)):
            ledger.set_node(node(name, gpus=gpus, cpu=cpu))
        for at in range(pairs):
            ledger.gradient.declare(f"pair{at}", need_of(needs(gpus=2)))
        book = ClaimBook(ledger)
        for name, gpus in (("a", 3), ("b", 2)):
            cards = tuple(f"{name}-gpu-{at}" for at in range(gpus))
            gave = MemberGrant(
                member=f"t{name}-0", placement=Placement(node=name, gpus=cards), resources=needs(gpus=gpus)
            )
            book.make(case(gave, identity=name))
        found = book.find("llama", one)
        assert found is not None
        assert found.node == best


def test_a_part_of_a_card_leaves_the_rest_of_the_part(ledger: Ledger) -> None:
    """A victim held seven tenths of a card; the replica takes three."""
    book, part = ClaimBook(ledger), need_of(needs(fraction=0.3))
    book.make(case(member(needs(fraction=0.7), "n1-gpu-0")))
    book.take("llama", {"llama-r1-0": Holding(Placement(node="n1", gpus=("n1-gpu-0",)), part)})
    (left,) = book.parts("a1").values()
    assert left.need.gpu_milli == 400
    assert ledger.nodes["n1"].free_cards["n1-gpu-0"] == 300


def test_a_claim_is_never_more_than_what_is_free(ledger: Ledger) -> None:
    """After a restart its cards may be held by the replica that got them: then nothing is set aside."""
    one = need_of(needs(gpus=1))
    ledger.hold("llama-r1-0", Holding(Placement(node="n1", gpus=("n1-gpu-0",)), one))
    book = ClaimBook(ledger)
    book.make(case(member(FREED, "n1-gpu-0", "n1-gpu-1")))
    (held,) = book.parts("a1").values()
    assert held.placement.gpus == ("n1-gpu-1",)
    assert not ledger.overcommitted()


def test_a_node_that_shrinks_takes_its_part_of_the_claim(ledger: Ledger) -> None:
    """What is not there any more is set aside for nobody."""
    book = ClaimBook(ledger)
    book.make(case(member(FREED, "n1-gpu-0", "n1-gpu-1")))
    ledger.set_node(node("n1", gpus=1, cpu=2.0))
    assert ledger.overcommitted()
    book.refresh()
    assert not ledger.overcommitted()


def test_looking_changes_nothing(ledger: Ledger) -> None:
    """Nothing has to be decided anew because somebody looked for a place."""
    book = ClaimBook(ledger)
    book.make(case(member(FREED, "n1-gpu-0", "n1-gpu-1")))
    before = ledger.version
    book.find("llama", need_of(needs(gpus=9)))
    assert ledger.version == before


def test_a_record_says_all_of_a_case() -> None:
    """What is read back is what was written, through every state of the way."""
    one = replace(case(member(FREED, "n1-gpu-0")), message="model llama needs its cards")
    for happened, at in ((Happened.CLAIM_ALIVE, 110.0), (Happened.BOUND, 120.0), (Happened.CAPACITY_BACK, 130.0)):
        one = step(one, News(happened), Instant(at), LendingPolicy().attempts)
        assert read_case(one.record(), 3) == one
    assert one.ledger.stages == {"bind": 20.0}
    assert one.ledger.lost == {"claim": 20.0}


def test_a_record_of_another_release_is_refused() -> None:
    """A state that is not known stops the reader of that record, with a word why."""
    event = replace(case(member()).record(), state="hibernating")
    with pytest.raises(ValueError, match="hibernating"):
        read_case(event, 3)
