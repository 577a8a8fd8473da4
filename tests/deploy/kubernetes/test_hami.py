"""What HAMi's annotations say: the cards of a node, what of them pods have, and the card that a pod shall get."""

from __future__ import annotations

import json

import pytest

from deploy.kubernetes.hami import REGISTER, cards_in, choice_of, taken_by
from deploy.kubernetes.nodes import observed
from deploy.kubernetes.views import node_of, pod_of
from events.types.replicas import Card

A, B = "GPU-00552014-5c87-89ac-b1a6-7b53aa24b0ec", "GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448"
TYPE = "NVIDIA-Tesla V100-PCIE-32GB"
WORDS = f"{A},10,32768,100,{TYPE},0,true:{B},10,32768,100,{TYPE},1,false:"
"""As docs/develop/protocol.md of HAMi has it, with one that is sick."""
ROWS = [{"id": uuid, "count": 10, "devmem": 32768, "devcore": 100, "type": TYPE, "numa": numa, "health": not numa}
        for numa, uuid in enumerate((A, B))]  # fmt: skip
CARD = Card(id=f"hami-{A}", product=TYPE, memory_bytes=32 << 30, numa=0)


@pytest.mark.parametrize("text", [WORDS, json.dumps(ROWS)], ids=["words", "JSON"])
def test_both_forms_list_the_healthy_cards(text: str) -> None:
    """A sick card is none."""
    assert cards_in({REGISTER: text}) == (CARD,)


@pytest.mark.parametrize("text", [
    "", "[", "[1]", "a,b", '[{"id": "x", "devmem": "much", "health": true}]',
    "[" * 100_000, "x,10,\u00b2,100,t,0,true:",
    '[{"id": "x", "devmem": -5, "health": true}]', '[{"id": "x", "devmem": 1e400, "health": true}]',
    f'[{{"id": "x", "devmem": {"9" * 40}, "health": true}}]', '[{"id": "x", "devmem": 5, "health": "no"}]',
    '[{"id": ["x"], "devmem": 5, "health": true}]', '[{"devmem": 5, "health": true}]',
])  # fmt: skip
def test_what_cannot_be_read_lists_none(text: str) -> None:
    """It is a node of HAMi's all the same, whose count is none of cards."""
    assert cards_in({REGISTER: text}) == ()
    assert cards_in({}) is None


def test_a_numa_node_that_is_no_number_is_not_known() -> None:
    """The card is there all the same."""
    rows = [{"id": A, "devmem": 5, "health": True, "numa": numa} for numa in ("\u00b2", -1, "9" * 9, 3)]
    cards = cards_in({REGISTER: json.dumps(rows)})
    assert cards is not None
    assert [card.numa for card in cards] == [None, None, None, 3]


def test_a_card_of_which_others_have_a_part_is_not_there() -> None:
    """By what HAMi's scheduler wrote on their pods; the plugin's count of parts is not one of cards."""
    node = node_of({
        "metadata": {"name": "n", "annotations": {REGISTER: WORDS.replace("false", "true")}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}],
                   "allocatable": {"nvidia.com/gpu": "20", "cpu": "8", "memory": "1Gi"}},
    })  # fmt: skip
    pod = pod_of({
        "metadata": {"name": "p", "uid": "u", "creationTimestamp": "2026-11-30T00:00:00Z",
                     "annotations": {"hami.io/vgpu-devices-allocated": f"{B},NVIDIA,1000,0:;"}},
        "status": {"phase": "Running"},
    })  # fmt: skip
    assert [one.id for one in observed(node, (), ()).cards] == [f"hami-{A}", f"hami-{B}"]
    assert observed(node, (pod,), ()).cards == (CARD,)
    assert taken_by({}) == set()


def test_a_pod_names_the_cards_that_it_was_granted() -> None:
    """Those of HAMi's only."""
    assert choice_of((f"hami-{A}", f"hami-{B}")) == {"nvidia.com/use-gpuuuid": f"{A},{B}"}
    assert choice_of(("gpu-0",)) == choice_of(()) == {}
