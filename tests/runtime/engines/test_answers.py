"""What the simulated engine answers."""

from __future__ import annotations

import json

import jsonschema
import pytest

from runtime.engines.simulated.answers import (
    BadRequest,
    Finish,
    Wanted,
    chat_wanted,
    completion_wanted,
    compose,
    count_tokens,
    responses_wanted,
)
from runtime.engines.simulated.json_values import value_for

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"properties": {"city": {"type": "string"}}}}}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def chat(**more: object) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": "hello there"}]} | more


def test_the_same_prompt_and_seed_give_the_same_words() -> None:
    """Another seed, or another prompt, gives others."""
    wanted = Wanted("a prompt", "a prompt", 32)
    first, again = (compose(wanted, echo=False, length=16, seed="1") for _ in range(2))
    assert first == again
    assert compose(wanted, echo=False, length=16, seed="2").text != first.text
    assert compose(Wanted("b prompt", "", 32), echo=False, length=16, seed="1").text != first.text


@pytest.mark.parametrize(
    ("max_tokens", "length", "finish"),
    [(None, 16, Finish.STOP), (3, 3, Finish.LENGTH), (40, 40, Finish.LENGTH)],
    ids=["default", "fewer", "more"],
)
def test_length_follows_the_request(max_tokens: int | None, length: int, finish: Finish) -> None:
    """One piece a token; a request that names a length gets that many and finishes by length."""
    answer = compose(Wanted("p", "p", max_tokens), echo=False, length=16, seed="0")
    assert (len(answer.pieces), answer.finish) == (length, finish)
    assert count_tokens(answer.text) == length


def test_echo_repeats_what_the_user_said_last_byte_for_byte() -> None:
    """White space inside is kept; a shorter limit cuts it."""
    body = chat(messages=[{"role": "system", "content": "be brief"}, {"role": "user", "content": "say  it\nagain"}])
    assert compose(chat_wanted(body), echo=True, length=16, seed="0").text == "say  it\nagain"
    cut = compose(chat_wanted(body | {"max_tokens": 2}), echo=True, length=16, seed="0")
    assert (cut.text, cut.finish) == ("say  it", Finish.LENGTH)


def test_prompt_tokens_count_all_messages() -> None:
    """System and user messages, also in parts."""
    parts = [{"type": "text", "text": "two words"}, {"type": "image_url", "image_url": {"url": "x"}}]
    body = chat(messages=[{"role": "system", "content": "one"}, {"role": "user", "content": parts}])
    assert compose(chat_wanted(body), echo=False, length=1, seed="0").prompt_tokens == 3


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"tools": [TOOL]}, "weather"),
        ({"tools": [TOOL], "tool_choice": "required"}, "weather"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "weather"}}}, "weather"),
        ({"tools": [TOOL], "tool_choice": "none"}, ""),
        ({"tool_choice": "auto"}, ""),
    ],
    ids=["auto", "required", "named", "none", "no tools"],
)
def test_a_tool_is_called_when_there_is_one_and_the_choice_allows_it(more: dict[str, object], name: str) -> None:
    """The arguments are JSON that the function's schema allows."""
    answer = compose(chat_wanted(chat(**more)), echo=False, length=4, seed="0")
    assert answer.tool == name
    if name:
        assert json.loads(answer.text) == {"city": "text"}
        assert answer.finish is Finish.TOOL_CALLS


def test_a_tool_result_is_answered_with_text() -> None:
    """Else a conversation with tools would never end."""
    messages = [{"role": "user", "content": "weather?"}, {"role": "tool", "tool_call_id": "1", "content": "rain"}]
    assert compose(chat_wanted(chat(messages=messages, tools=[TOOL])), echo=False, length=4, seed="0").tool == ""


@pytest.mark.parametrize(
    "format_",
    [
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
    ],
    ids=["object", "schema"],
)
def test_json_mode_gives_json(format_: dict[str, object]) -> None:
    """Also longer than the default length, since cut JSON is none."""
    answer = compose(chat_wanted(chat(response_format=format_)), echo=False, length=1, seed="0")
    assert isinstance(json.loads(answer.text), dict)
    assert answer.finish is Finish.STOP


@pytest.mark.parametrize(
    ("read", "body", "param"),
    [
        (chat_wanted, {}, "messages"),
        (chat_wanted, {"messages": []}, "messages"),
        (chat_wanted, {"messages": ["hi"]}, "messages"),
        (chat_wanted, chat(max_tokens=0), "max_tokens"),
        (chat_wanted, chat(max_completion_tokens="3"), "max_completion_tokens"),
        (chat_wanted, chat(response_format={"type": "json_schema"}), "response_format"),
        (chat_wanted, chat(tools=[TOOL], tool_choice={"function": {"name": "wether"}}), "tool_choice"),
        (chat_wanted, chat(tools=["x"]), "tools"),
        (completion_wanted, {"prompt": 3}, "prompt"),
        (responses_wanted, {}, "input"),
        (responses_wanted, {"input": "x", "max_output_tokens": True}, "max_output_tokens"),
    ],
)
def test_wrong_requests_name_their_field(read: object, body: dict[str, object], param: str) -> None:
    """As OpenAI's `param`."""
    assert callable(read)
    with pytest.raises(BadRequest) as caught:
        read(body)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "enum": ["b", "a"]},
        {"const": 3},
        {"type": ["null", "string"]},
        {"anyOf": [{"type": "integer", "minimum": 5}, {"type": "null"}]},
        {"type": "array", "items": {"type": "boolean"}, "minItems": 3},
        {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5},
        {"type": "integer", "maximum": -2},
        {"type": "string", "minLength": 9, "maxLength": 12},
        {"type": "string", "format": "date-time"},
        {"$defs": {"n": {"type": "integer"}}, "type": "object", "properties": {"x": {"$ref": "#/$defs/n"}}},
        {
            "allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "integer"}}}],
            "required": ["a", "b"],
            "type": "object",
        },
        {"type": "object", "properties": {"in": {"type": "object", "properties": {"a": SCHEMA}, "required": ["a"]}}},
    ],
)
def test_values_are_valid_by_their_schema(schema: dict[str, object]) -> None:
    """Checked by a validator that knows nothing of ours."""
    jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(value_for(schema))


def test_a_schema_that_contains_itself_ends() -> None:
    """Deep parts become null."""
    schema = {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}}}}
    assert len(json.dumps(value_for(schema))) < 1000
