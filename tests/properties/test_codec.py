"""Properties of the codec: every value of every event type survives, and nothing makes decoding raise."""

from __future__ import annotations

import dataclasses
import types
from enum import Enum
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import orjson
import pytest
from annotated_types import Ge, Gt, Len, MaxLen
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from events.codec import (
    BinaryEvent,
    Ignored,
    Rejected,
    decode,
    decode_structured,
    encode_structured,
    from_binary,
    to_binary,
)
from events.envelope import AnyEnvelope, Envelope
from events.examples import EXAMPLES, example_envelope
from events.kinds import KINDS
from events.units import Instant, format_instant, parse_instant

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ATTRIBUTE = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 53), 1 << 53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    type(None): st.none(),
    str: TEXT,
    bool: st.booleans(),
    int: st.integers(-(1 << 53), 1 << 53),
    float: st.floats(allow_nan=False, allow_infinity=False),
    JsonValue: JSON,
}


def of_type(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type, within its bounds."""
    if hint in LEAVES:
        return LEAVES[hint]
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint, include_extras=True)
        return st.builds(hint, **{field.name: of_type(hints[field.name]) for field in dataclasses.fields(hint)})
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    return of_composed(get_origin(hint), get_args(hint))


def of_composed(origin: Any, arguments: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    """Values of annotated, union, tuple and dict types."""
    if origin is Annotated:
        return bounded(arguments[0], arguments[1:])
    if origin in (Union, types.UnionType):
        return st.one_of([of_type(argument) for argument in arguments])
    if origin is dict:
        return st.dictionaries(of_type(arguments[0]), of_type(arguments[1]), max_size=4)
    assert origin is tuple
    if arguments[-1] is Ellipsis:
        return st.lists(of_type(arguments[0]), max_size=3).map(tuple)
    return st.tuples(*[of_type(argument) for argument in arguments])


def bounded(base: Any, rules: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    """Numbers that obey ``Ge`` and ``Gt``, texts that obey ``Len`` and ``MaxLen``."""
    if base is str:
        least = max((rule.min_length for rule in rules if isinstance(rule, Len)), default=0)
        most = min(rule.max_length for rule in rules if isinstance(rule, Len | MaxLen))
        return TEXT.filter(lambda text: least <= len(text) <= most)
    low: Any = next(rule.ge if isinstance(rule, Ge) else rule.gt for rule in rules if isinstance(rule, Ge | Gt))
    strict = any(isinstance(rule, Gt) for rule in rules)
    if base is int:
        return st.integers(low, 1 << 53)
    return st.floats(low, 1e300, exclude_min=strict, allow_nan=False, allow_infinity=False)


@st.composite
def envelopes(draw: st.DrawFn, data: st.SearchStrategy[Any]) -> AnyEnvelope:
    """Envelopes with any attributes that the wire can carry; times have microseconds there."""
    moment = draw(st.floats(-6e10, 2e11))  # the years 68 to 8307
    hexes = st.text("0123456789abcdef", min_size=16, max_size=16)
    trace = st.builds("00-{}{}-{}-01".format, hexes, hexes, hexes)
    return Envelope(
        id=draw(ATTRIBUTE),
        source=draw(ATTRIBUTE),
        subject=draw(ATTRIBUTE),
        key=draw(ATTRIBUTE),
        time=parse_instant(format_instant(moment)),
        data=draw(data),
        sequence=draw(st.none() | st.integers(0, 1 << 63)),
        cause=draw(st.none() | ATTRIBUTE),
        epoch=draw(st.none() | st.integers(0, (1 << 63) - 1)),
        traceparent=draw(st.none() | trace),
    )


@pytest.mark.parametrize("kind", list(KINDS), ids=lambda kind: kind.__name__)
def test_every_value_survives_both_modes(kind: type[Any]) -> None:
    """Decoding is the inverse of encoding, for all values of all types and all attributes."""

    @settings(max_examples=25, deadline=None)
    @given(envelopes(of_type(kind)))
    def check(envelope: AnyEnvelope) -> None:
        assert decode_structured(encode_structured(envelope)) == envelope
        assert from_binary(to_binary(envelope)) == envelope

    check()


DECODINGS = (Envelope, Ignored, Rejected)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200) | JSON.map(orjson.dumps))
def test_garbage_never_raises(raw: bytes) -> None:
    """Any bytes give a result; whatever is refused has a reason."""
    found = decode_structured(raw)
    assert isinstance(found, DECODINGS)
    assert isinstance(found, Envelope) or found.reason


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(EXAMPLES),
    st.dictionaries(
        st.sampled_from(["id", "source", "type", "time", "epoch", "sequence", "subject", "partitionkey", "data",
                         "data_base64", "specversion", "datacontenttype", "traceparent", "cause"]),
        JSON,
        min_size=1,
        max_size=3,
    ),
)  # fmt: skip
def test_damaged_events_never_raise(data: object, damage: dict[str, Any]) -> None:
    """Real events with attributes replaced by anything give a result."""
    event = {**orjson.loads(encode_structured(example_envelope(data))), **damage}
    assert isinstance(decode_structured(orjson.dumps(event), Instant(1.0)), DECODINGS)


HEADER = st.tuples(
    TEXT.map("ce_{}".format) | st.sampled_from(["ce_id", "ce_type", "ce_specversion", "ce_source"]),
    st.binary(max_size=20),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(HEADER, max_size=6), st.binary(max_size=20), st.binary(max_size=60))
def test_garbage_headers_never_raise(headers: list[tuple[str, bytes]], key: bytes, data: bytes) -> None:
    """Any headers, key and data give a result."""
    assert isinstance(decode(BinaryEvent(tuple(headers), key, data)), DECODINGS)


def test_deep_json_is_rejected() -> None:
    """Nesting beyond what the parsers follow is refused, not followed."""
    for depth in (150, 240, 260, 900, 100_000):
        nested = b'{"a":' * depth + b"1" + b"}" * depth
        example = example_envelope(EXAMPLES[0])
        raw = encode_structured(example).replace(b'"spec":{', b'"spec":{"deep":' + nested + b",")
        assert isinstance(decode_structured(raw), DECODINGS)
        for place in (b'"id":', b'"data":'):
            assert isinstance(decode_structured(b'{"specversion":"1.0",' + place + nested + b"}"), Rejected)
