"""Cards that are declared one by one: read, made up, refused with rule and remedy."""

from __future__ import annotations

import pytest

from deploy.compose.cluster import local_settings
from deploy.settings.gpus import made_up_cards, parse_gpus
from deploy.settings.settings import SettingsRefused, load_settings


def test_a_declaration_says_which_cards() -> None:
    """Kinds by the names of MIG's families or by any other, memory, islands and NUMA nodes, instances."""
    text = "2xA100-80GB:nvlink=0:numa=1,1xL40S:memory=48Gi, 1xA100-40GB:mig=3g.20gb/2*1g.5gb,1"
    cards = made_up_cards(parse_gpus(text))
    assert [card.id for card in cards] == [
        "virtual-0", "virtual-1", "virtual-2", "virtual-3-mig-0", "virtual-3-mig-1", "virtual-3-mig-2", "virtual-4",
    ]  # fmt: skip
    assert all(card.virtual for card in cards)
    a100, l40s, half, last = cards[1], cards[2], cards[3], cards[-1]
    assert (a100.product, a100.memory_bytes >> 20, a100.link, a100.numa) == ("NVIDIA A100-SXM4-80GB", 80384, 0, 1)
    assert (l40s.product, l40s.memory_bytes >> 30, l40s.link) == ("L40S", 48, None)
    assert (half.profile, half.memory_bytes >> 20, cards[5].profile) == ("3g.20gb", 19968, "1g.5gb")
    assert (last.product, last.memory_bytes) == ("virtual", 0)


def test_time_sliced_cards_are_declared_by_their_turns() -> None:
    """A turn of each card before the second of any, after all other cards; each knows its whole card's memory."""
    cards = made_up_cards(parse_gpus("2xL4:memory=24Gi:numa=1:turns=2,1"))
    assert [card.id for card in cards] == ["virtual-2", "virtual-0::0", "virtual-1::0", "virtual-0::1", "virtual-1::1"]
    assert {(card.turns, card.memory_bytes >> 30, card.numa) for card in cards[1:]} == {(2, 24, 1)}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("many", "'many' is no card; write such as 4"),
        ("2xA100-80GB:speed=9", "'speed=9' says nothing of a card; write memory=…, mig=…, numa=…, nvlink=…, turns=…"),
        ("1xL4:memory=17Ti", "memory=17Ti is more than any card has; write such as memory=80Gi, at most 16Ti"),
        ("1xL4:turns=1", "turns=1 is none; write turns=2 to turns=64"),
        (
            "1xA100-40GB:mig=1g.5gb:turns=2",
            "mig and turns are given together; a card is split or time-sliced, keep one",
        ),
        ("1xT4:mig=1g.5gb", "T4 cannot be split with MIG; name one that can: A100-40GB"),
        ("1xA100-80GB:mig=1g.11gb", "A100-80GB has no MIG profile 1g.11gb; write 1g.10gb, or another of 1g.10gb"),
        ("1xA100-40GB:mig=4g.20gb/4g.20gb", "4g.20gb, 4g.20gb do not fit on one A100-40GB"),
        ("1xA100-40GB:mig=99*1g.5gb", "do not fit on one A100-40GB (7 compute, 8 memory slices); take fewer"),
        ("1xH100-80GB:mig=1g.10gb+me/1g.10gb+me", "one H100-80GB has one set of media engines; write +me once"),
        ("1xL4:memory=lots", "memory=lots: "),
        ("1xL4:numa=left", "numa=left is no number; write such as numa=0"),
        ("9999", "it must be 0 to 1024; write a number in between"),
        ("600xL4,600xL4", "there are more than 1024 cards"),
    ],
)
def test_what_cannot_be_is_refused(text: str, problem: str) -> None:
    """By the setting's name, what it said, the rule and the remedy."""
    with pytest.raises(SettingsRefused) as refused:
        load_settings({"gpus": text})
    assert str(refused.value).startswith("gpus (--gpus or RELUME_GPUS) is ")
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("said", "gpus", "made_up"), [("3", 3, 0), (0, 0, 0), ("2xL4", None, 2), ("1xA30-24GB:mig=4*1g.6gb", None, 4)]
)
def test_it_reaches_the_local_cluster(said: object, gpus: int | None, made_up: int) -> None:
    """A number as a number, for real cards too; a declaration as cards."""
    local = local_settings(load_settings({"gpus": said}))
    assert (local.gpus, len(local.made_up)) == (gpus, made_up)
