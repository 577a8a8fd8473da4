"""Two releases at once: what an earlier and a later one write is read, of every type of event."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.spec.declare import override
from events.codec import Rejected, decode_structured, encode_structured
from events.envelope import AnyEnvelope, Envelope
from events.examples import EXAMPLES, example_envelope
from events.further import FURTHER, keeps
from events.kinds import KINDS
from events.types.decisions import WishDecided
from events.types.models import ModelDeclared, Override
from events.types.pools import PoolDeclared
from events.types.replicas import ReplicasObserved
from events.types.training import TrainingDeclared, TrainingObserved
from events.units import Instant
from tests.properties.test_codec import of_type
from tests.support.skew import FIRST, LATER, first_of, objects, optional, part, with_later, with_word, without, words

BY_KIND = {type(data): example_envelope(data) for data in EXAMPLES}
KIND = pytest.mark.parametrize("kind", list(KINDS), ids=lambda kind: kind.__name__)


def written(envelope: AnyEnvelope) -> Any:
    """The data of an event as it travels."""
    return orjson.loads(encode_structured(envelope))["data"]


def read(envelope: AnyEnvelope, data: Any) -> AnyEnvelope:
    """The event with other data, read; AssertionError says why it is not taken."""
    raw = {**orjson.loads(encode_structured(envelope)), "data": data}
    found = decode_structured(orjson.dumps(raw))
    assert isinstance(found, Envelope), found
    return found


def test_every_type_has_its_first_record() -> None:
    """A new type of event brings its own, once: ``python -m tests.support.skew`` writes it."""
    assert {path.name for path in FIRST.iterdir()} == {first_of(kind).name for kind in KINDS}


@KIND
def test_records_of_the_first_version_are_read(kind: type[Any]) -> None:
    """As what they were: everything that was said then is said by what is read, and written again."""
    raw = first_of(kind).read_bytes()
    found = decode_structured(raw)
    assert isinstance(found, Envelope), found
    assert isinstance(found.data, kind)
    first, again = orjson.loads(raw), orjson.loads(encode_structured(found))
    assert {name: again[name] for name in first if name != "data"} == {
        name: text for name, text in first.items() if name != "data"
    }
    assert _says(first["data"], again["data"])


def _says(before: Any, after: Any) -> bool:
    """Whether all of `before` stands in `after`; further fields may have joined."""
    if isinstance(before, dict):
        return all(name in after and _says(one, after[name]) for name, one in before.items())
    if isinstance(before, list):
        return len(before) == len(after) and all(map(_says, before, after))
    return bool(before == after)


@KIND
def test_what_an_earlier_release_did_not_say_has_its_default(kind: type[Any]) -> None:
    """Without any one of the fields that have a default, and without all of them: the rest is read as it was."""
    envelope = BY_KIND[kind]
    data = written(envelope)
    places = optional(kind, data)
    for some in [*([one] for one in places), places]:
        older = without(data, some)
        again = written(read(envelope, older))
        assert without(again, some) == older
        assert _says(older, again)


@KIND
def test_what_a_later_release_says_more_is_passed_over(kind: type[Any]) -> None:
    """Further fields in all objects, of whatever form: the same event. A declaration, which whoever changes it writes
    again, keeps them, and says them again."""
    envelope = BY_KIND[kind]
    data = written(envelope)
    for more in (None, 7, "word", [{}], {"model": 3}):
        later = with_later(data, objects(kind, data), more)
        found = read(envelope, later)
        assert written(found) == (later if keeps(kind) else data)
        assert (replace(found, data=replace(found.data, further={})) if keeps(kind) else found) == envelope


def test_declarations_keep_what_they_do_not_know() -> None:
    """They are what is written again by others than who wrote it; every other type has one writer, of one release."""
    assert {kind for kind in KINDS if keeps(kind)} == {ModelDeclared, TrainingDeclared, PoolDeclared}


def test_a_field_that_is_ours_alone_is_one_more_on_the_wire() -> None:
    """Whatever stands under its name is kept as what is not known, and is no rule of ours."""
    envelope = BY_KIND[ModelDeclared]
    data = {**written(envelope), FURTHER: 3}
    found = read(envelope, data)
    assert (found.data.further, written(found)) == ({FURTHER: 3}, data)


def test_what_went_with_a_part_does_not_come_back() -> None:
    """Fields of a later release in an override go with it, also when it is followed by another one; those of the
    declaration stay."""
    envelope = BY_KIND[ModelDeclared]
    data = written(envelope)
    assert data["override"] is not None
    found = read(envelope, with_later(data, [(), ("override",)])).data
    for wanted in (None, Override(replicas=9, until=Instant(5.0))):
        again = written(example_envelope(override(found, wanted)))
        assert (again[LATER], LATER in (again["override"] or {})) == (LATER, False)


@KIND
def test_any_value_is_read_by_both_sides(kind: type[Any]) -> None:
    """Any event, some fields with defaults left out and some further ones put in."""

    @settings(max_examples=15, deadline=None)
    @given(of_type(kind), st.randoms(use_true_random=False))
    def check(value: Any, chance: random.Random) -> None:
        envelope = example_envelope(value)
        data = written(envelope)
        places = [place for place in optional(kind, data) if chance.random() < 0.5]
        other = without(data, places)
        made = with_later(other, [at for at in objects(kind, data) if part(other, at) is not None])
        assert without(written(read(envelope, made)), places) == (made if keeps(kind) else other)

    check()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if words(kind, written(BY_KIND[kind]))],
                         ids=lambda kind: kind.__name__)  # fmt: skip
def test_a_word_that_is_not_known_is_refused_with_its_place(kind: type[Any]) -> None:
    """It becomes a dead letter, and what stood before goes on: a reader must not guess what a state means that it does
    not know."""
    envelope = BY_KIND[kind]
    raw = orjson.loads(encode_structured(envelope))
    for at in words(kind, raw["data"]):
        found = decode_structured(orjson.dumps({**raw, "data": with_word(raw["data"], at)}))
        assert isinstance(found, Rejected)
        assert ".".join(map(str, ("data", *at))) in found.reason
        assert found.type == raw["type"]


@pytest.mark.parametrize(("kind", "field", "said", "default"), [
    (WishDecided, "kept", 1, 0), (ReplicasObserved, "grantEpoch", 17, 0), (TrainingObserved, "grantEpoch", 17, 0),
])  # fmt: skip
def test_defaults_that_others_go_by(kind: type[Any], field: str, said: object, default: object) -> None:
    """Nothing is only kept; a state that names no epoch was made of no grant in particular."""
    envelope = BY_KIND[kind]
    data = {**written(envelope), field: said}
    assert written(read(envelope, data))[field] == said
    assert written(read(envelope, without(data, [(field,)])))[field] == default
