"""What the simulated engine answers, as pieces of text (one a token). Pure: the same request gives the same answer.

A token is a word with the white space before it; of JSON, four characters.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from runtime.engines.simulated.json_values import value_for

_TEXT = (
    "the model reads a prompt and writes one token after another while some other requests wait for their turn "
    "in a queue that is short enough when replicas start early and long when nobody saw the load coming so it "
    "helps to measure how each part of this small machine spends time before you change it again"
)
_WORDS = tuple(_TEXT.split())
_TOKEN = re.compile(r"\s*\S+")
_JSON_TOKEN = re.compile(r".{1,4}", re.DOTALL)


class Finish(StrEnum):
    """Why the text ends (OpenAI's finish_reason)."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"


class BadRequest(Exception):
    """The request cannot be answered; `param` names the field."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class Answer:
    """Text in pieces. `tool` is the function's name when the pieces are a call's arguments."""

    pieces: tuple[str, ...]
    prompt_tokens: int
    finish: Finish = Finish.STOP
    tool: str = ""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request's parts that decide the answer. `prompt` counts as tokens, `said` is what echo repeats."""

    prompt: str
    said: str
    max_tokens: int | None
    tool: str = ""
    schema: object = None
    as_json: bool = False


def count_tokens(text: str) -> int:
    """Words; at least one."""
    return max(1, sum(1 for _ in _TOKEN.finditer(text)))


def text_of(content: object) -> str:
    """The text in a message's content, which is a string or a list of typed parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") if isinstance(part, Mapping) else part for part in content)
    return " ".join(text for text in texts if isinstance(text, str))


def compose(wanted: Wanted, *, echo: bool, length: int, seed: str) -> Answer:
    """The answer; `length` is its tokens when the request does not say."""
    prompt_tokens = count_tokens(wanted.prompt)
    if wanted.tool or wanted.as_json:
        value = value_for(wanted.schema) if wanted.schema is not None else {"answer": "text"}
        text = json.dumps({} if value is None and wanted.tool else value)
        pieces = tuple(_JSON_TOKEN.findall(text))
        whole = Finish.TOOL_CALLS if wanted.tool else Finish.STOP
        return _cut(Answer(pieces, prompt_tokens, whole, wanted.tool), wanted.max_tokens)
    if echo:
        return _cut(Answer(tuple(_TOKEN.findall(wanted.said)) or ("",), prompt_tokens), wanted.max_tokens)
    draw = random.Random(f"{seed}:{wanted.prompt}")  # noqa: S311 - words, not secrets
    count = wanted.max_tokens if wanted.max_tokens is not None else length
    words = [draw.choice(_WORDS) for _ in range(count)]
    pieces = tuple(word if number == 0 else f" {word}" for number, word in enumerate(words))
    return Answer(pieces, prompt_tokens, Finish.STOP if wanted.max_tokens is None else Finish.LENGTH)


def _cut(answer: Answer, max_tokens: int | None) -> Answer:
    if max_tokens is None or len(answer.pieces) <= max_tokens:
        return answer
    return Answer(answer.pieces[:max_tokens], answer.prompt_tokens, Finish.LENGTH, answer.tool)


def chat_wanted(body: Mapping[str, object]) -> Wanted:
    """From a chat completion's body."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(item, Mapping) for item in messages):
        raise BadRequest("messages must be a list of at least one message", "messages")
    texts = [text_of(message.get("content")) for message in messages]
    users = [text for message, text in zip(messages, texts, strict=True) if message.get("role") == "user"]
    format_ = body.get("response_format")
    schema, as_json = _response_format(format_)
    tool, parameters = _tool(body, after_result=messages[-1].get("role") == "tool")
    limit = _max_tokens(body, "max_completion_tokens", "max_tokens")
    return Wanted(
        " ".join(texts), users[-1] if users else texts[-1], limit, tool, parameters if tool else schema, as_json
    )


def completion_wanted(body: Mapping[str, object]) -> Wanted:
    """From a text completion's body; a list of prompts is taken as one."""
    prompt = body.get("prompt", "")
    if isinstance(prompt, list):
        text = " ".join(str(part) for part in prompt)
    elif isinstance(prompt, str):
        text = prompt
    else:
        raise BadRequest("prompt must be a string or a list", "prompt")
    return Wanted(text, text, _max_tokens(body, "max_tokens"))


def responses_wanted(body: Mapping[str, object]) -> Wanted:
    """From a /v1/responses body."""
    given = body.get("input")
    if isinstance(given, str):
        said, after_result = given, False
    elif isinstance(given, list) and given:
        items = [item for item in given if isinstance(item, Mapping)]
        said = " ".join(text_of(item.get("content")) for item in items)
        after_result = any(item.get("type") == "function_call_output" for item in items)
    else:
        raise BadRequest("input must be a string or a list of items", "input")
    text = body.get("text")
    format_ = text.get("format") if isinstance(text, Mapping) else None
    schema, as_json = _response_format(format_)
    tool, parameters = _tool(body, after_result=after_result)
    prompt = f"{text_of(body.get('instructions'))} {said}"
    limit = _max_tokens(body, "max_output_tokens")
    return Wanted(prompt, said, limit, tool, parameters if tool else schema, as_json)


def _response_format(given: object) -> tuple[object, bool]:
    if not isinstance(given, Mapping):
        return None, False
    kind = given.get("type")
    if kind == "json_object":
        return None, True
    if kind == "json_schema":
        named = given.get("json_schema", given)  # chat nests it, responses does not
        schema = named.get("schema") if isinstance(named, Mapping) else None
        if not isinstance(schema, Mapping):
            raise BadRequest("response_format json_schema needs a schema", "response_format")
        return schema, True
    return None, False


def _tool(body: Mapping[str, object], *, after_result: bool) -> tuple[str, object]:
    """The function to call and its parameters' schema: unless the choice is none, or the last word was a result."""
    tools, choice = body.get("tools"), body.get("tool_choice", "auto")
    if not isinstance(tools, list) or not tools or choice == "none" or (after_result and choice == "auto"):
        return "", None
    functions = [tool.get("function", tool) for tool in tools if isinstance(tool, Mapping)]
    known = {str(item["name"]): item for item in functions if isinstance(item, Mapping) and "name" in item}
    if not known:
        raise BadRequest("tools must be functions with a name", "tools")
    name = next(iter(known))
    if isinstance(choice, Mapping):
        inner = choice.get("function", choice)
        name = str(inner.get("name")) if isinstance(inner, Mapping) else ""
        if name not in known:
            raise BadRequest(f"tool_choice names {name!r}, which is not among the tools", "tool_choice")
    return name, known[name].get("parameters") or {"type": "object"}


def _max_tokens(body: Mapping[str, object], *keys: str) -> int | None:
    for key in keys:
        value = body.get(key)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise BadRequest(f"{key} must be a whole number from 1 up", key)
        return value
    return None
