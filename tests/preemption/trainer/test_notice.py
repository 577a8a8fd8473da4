"""The notice: its wire form, and what hearing it means in every order."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preemption.trainer.notice import MOST_BYTES, UNFENCED, BadNotice, Heard, Mailbox, Mode, Notice, decode


def test_a_notice_survives_the_wire() -> None:
    """What is encoded decodes to the same."""
    notice = Notice("a1", 7, "llama needs the card", 1767225600.0, Mode.SAVE_AND_CONTINUE)
    assert decode(notice.encode()) == notice


def test_only_the_id_must_be_said() -> None:
    """All else has a default; what a newer release adds is ignored."""
    assert decode('{"id": "a1", "of a newer release": 1}') == Notice("a1")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("[1]", "not list"),
        ('{"epoch": 1}', "id:"),
        ('{"id": ""}', "id:"),
        ('{"id": "a", "epoch": true}', "epoch:"),
        ('{"id": "a", "epoch": "7"}', "epoch:"),
        ('{"id": "a", "deadline_unix": "soon"}', "deadline_unix:"),
        ('{"id": "a", "mode": "kill"}', "save_and_exit, save_and_continue, withdrawn"),
        ("[" * 50_000, "JSON"),
        ('{"id": "' + "a" * MOST_BYTES + '"}', "at most"),
    ],
)
def test_what_is_no_notice_is_refused_with_the_field(text: str, says: str) -> None:
    """The message names the field and the rule, and no text breaks the reader."""
    with pytest.raises(BadNotice, match=says):
        decode(text)


def test_told_twice_it_means_nothing_the_second_time() -> None:
    """A notice is idempotent by its id."""
    box = Mailbox()
    assert [box.hear(Notice("a", 1)), box.hear(Notice("a", 1))] == [Heard.NEW, Heard.SAME]
    box.done(Notice("a", 1))
    assert box.hear(Notice("a", 1)) is Heard.SAME
    assert box.holds is None


def test_a_dead_controllers_notice_is_stale() -> None:
    """A smaller epoch than one heard before is refused, whatever it says."""
    box = Mailbox()
    box.hear(Notice("b", 2))
    assert box.hear(Notice("a", 1)) is Heard.STALE
    assert box.hear(Notice("b", 1, mode=Mode.WITHDRAWN)) is Heard.STALE
    assert box.holds == Notice("b", 2)


def test_a_signal_is_never_stale_and_moves_no_fence() -> None:
    """Signals carry no epoch."""
    box = Mailbox()
    box.hear(Notice("b", 2))
    assert box.hear(Notice("signal", UNFENCED)) is Heard.NEW
    assert box.hear(Notice("a", 1)) is Heard.STALE


def test_withdrawn_it_no_longer_holds_whichever_came_first() -> None:
    """The withdrawal may overtake the notice."""
    box = Mailbox()
    box.hear(Notice("a", 1))
    assert box.hear(Notice("a", 1, mode=Mode.WITHDRAWN)) is Heard.WITHDRAWN
    assert box.holds is None
    box.hear(Notice("b", 1, mode=Mode.WITHDRAWN))
    box.hear(Notice("b", 1))
    assert box.holds is None


def test_withdrawing_another_one_changes_nothing() -> None:
    """Only the named notice is withdrawn."""
    box = Mailbox()
    box.hear(Notice("a", 1))
    box.hear(Notice("b", 1, mode=Mode.WITHDRAWN))
    assert box.holds == Notice("a", 1)


heard = st.builds(Notice, st.sampled_from("abc"), st.integers(-1, 3), mode=st.sampled_from(list(Mode)))


@given(st.lists(heard, max_size=30))
def test_what_holds_was_said_was_not_withdrawn_and_is_of_no_older_epoch(notices: list[Notice]) -> None:
    """In every order of hearing."""
    box = Mailbox()
    fence, withdrawn = UNFENCED, set()
    for notice in notices:
        told = box.hear(notice)
        assert (told is Heard.STALE) == (UNFENCED < notice.epoch < fence)
        if told is not Heard.STALE:
            fence = max(fence, notice.epoch)
            if notice.mode is Mode.WITHDRAWN:
                withdrawn.add(notice.id)
        if box.holds is not None:
            assert box.holds in notices
            assert box.holds.id not in withdrawn
            assert box.holds.mode is not Mode.WITHDRAWN


@given(st.text(max_size=200) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_text_is_a_notice_or_refused(text: str) -> None:
    """Nothing but BadNotice comes out of garbage."""
    try:
        assert decode(text).id
    except BadNotice:
        return
