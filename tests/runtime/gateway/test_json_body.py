"""The `model` of a JSON body: what the gateway reads is what a strict parser reads, or the request is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.gateway.errors import Refused
from runtime.gateway.json_body import read_json

_ITEMS = 1_000_000

GOOD = [
    (b'{"model":"a"}', "a", False),
    (b' {"stream":true , "model" : "a" }\n', "a", True),
    (b'{"messages":[{"content":"the \\"model\\" is"}],"model":"a","stream":false}', "a", False),
    (b'{"tools":[{"properties":{"model":{"type":"string"}}}],"model":"a"}', "a", False),
    (b'{"input":"ends with a quoted \\"model","model":"a"}', "a", False),
    (b'{"m\\u006fdel":"a"}', "a", False),
    (b'{"x":"\\u006d\\u00e9\\ud83d\\ude00","model":"a"}', "a", False),
    (b'{"x":{"model":"b","model":"c"},"model":"a"}', "a", False),
    (b'{"model":"a","stream":null}', "a", False),
    (b'{"metadata":{"model":"nested"}}', None, False),
    (b'{"Model":"a"}', None, False),
    ('{"model":"é"}'.encode(), "é", False),
    (b'{"model":5}', 5, False),
]

BAD = [
    (b"", "empty_body"),
    (b"[]", "invalid_json"),
    (b'"model"', "invalid_json"),
    (b'{"model":"a"', "invalid_json"),
    (b'{"model":"a"}x', "invalid_json"),
    (b'{"model":"a",}', "invalid_json"),
    (b'{"model":NaN}', "invalid_json"),
    (b"{'model':'a'}", "invalid_json"),
    (b'\xef\xbb\xbf{"model":"a"}', "invalid_json"),
    (b'{"model":"\xff"}', "invalid_json"),
    (b'{"model":"\xc0\xaf"}', "invalid_json"),
    (b'{"model":"\\ud800"}', "invalid_json"),
    (b'{"model":"a\x00"}', "invalid_json"),
    ('{"model":"a"}'.encode("utf-16"), "invalid_json"),
    (b'{"model":"a","model":"b"}', "duplicate_key"),
    (b'{"model":"a","model":"a"}', "duplicate_key"),
    (b'{"model":"a","m\\u006fdel":"b"}', "duplicate_key"),
    (b'{"m\\u006Fdel":"a","mod\\u0065l":"b"}', "duplicate_key"),
    (b'{"stream":true,"model":"a","stream":false}', "duplicate_key"),
    (b'{"stream":true,"model":"a","strea\\u006d":false}', "duplicate_key"),
    (b'{"model":"a","stream":1}', "invalid_stream"),
    (b'{"model":"a","stream":"true"}', "invalid_stream"),
    (b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"model":"a"}', "invalid_json"),
    (b'{"x":' + b'{"a":' * 2_000 + b"1" + b"}" * 2_000 + b',"model":"a"}', "invalid_json"),
    (b'{"model":"a","x":[' + b"1," * 1_100_000 + b"1]}", "json_too_complex"),
]


@pytest.mark.parametrize(("body", "model", "stream"), GOOD)
def test_bodies_that_name_a_model(body: bytes, model: object, stream: bool) -> None:
    """Top-level keys count, wherever else the word occurs and however it is written."""
    assert read_json(body, _ITEMS) == (model, stream)
    assert read_json(bytearray(body), _ITEMS) == (model, stream)


@pytest.mark.parametrize(("body", "code"), BAD)
def test_bodies_that_are_refused(body: bytes, code: str) -> None:
    """Anything that engines could read in two ways, or that costs out of proportion, is a 400."""
    with pytest.raises(Refused) as refused:
        read_json(body, _ITEMS)
    assert (refused.value.failure.status, refused.value.failure.code) == (400, code)


def test_nesting_between_the_two_parsers_limits() -> None:
    """Deep, accepted by the first parser, with a second `model` possible: refused or read right."""
    for depth in (500, 900, 990, 1_000, 1_010, 1_020):
        body = b'{"x":' + b"[" * depth + b'"model"' + b"]" * depth + b',"model":"a"}'
        try:
            found: object = read_json(body, _ITEMS)
        except Refused as refused:
            found = refused.failure.status
        assert found in {400, ("a", False)}


_KEYS = st.sampled_from(["model", "stream", "mod", '"model"', 'x"model', "m\\odel", "x"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.sampled_from(["model", '"model"', "a", '\\"model', "\\u006dodel"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=8,
)


def _written(key: str, escape: int) -> str:
    """A key as JSON, with one of its characters written as an escape."""
    if not key or escape < 0:
        return json.dumps(key)
    at = escape % len(key)
    inner = [json.dumps(character)[1:-1] for character in key]
    inner[at] = f"\\u{ord(key[at]):04x}"
    return '"' + "".join(inner) + '"'


@settings(deadline=None)
@given(st.lists(st.tuples(_KEYS, st.integers(-3, 8), _VALUES), max_size=6))
def test_agrees_with_a_reference(members: list[tuple[str, int, object]]) -> None:
    """Against Python's own parser with every pair kept: the same answer, or refused where there are two."""
    text = "{" + ",".join(f"{_written(key, escape)}: {json.dumps(value)}" for key, escape, value in members) + "}"
    pairs = json.loads(text, object_pairs_hook=lambda found: found)
    keys = [key for key, _ in pairs]
    values = json.loads(text)
    stream = values.get("stream")
    if keys.count("model") > 1 or keys.count("stream") > 1 or (stream is not None and not isinstance(stream, bool)):
        with pytest.raises(Refused):
            read_json(text.encode(), _ITEMS)
    else:
        assert read_json(text.encode(), _ITEMS) == (values.get("model"), stream is True)
