"""Requests that carry one input, made into one that carries many, and its answer taken apart again.

Three forms take many: OpenAI's embeddings (`input`), OpenAI's completions (`prompt`), and the inference protocol of
KServe v2, whose tensors have the batch as their first dimension. Requests go together only if everything else in them
is the same. What cannot be told apart afterwards goes alone: streams, several choices a prompt, binary tensors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, TypeAlias, cast

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
Document: TypeAlias = "dict[str, Json]"

EMBEDDINGS: Final = "/v1/embeddings"
COMPLETIONS: Final = "/v1/completions"
INFER: Final = re.compile(r"/v2/models/[^/]+(/versions/[^/]+)?/infer")

STATUS_PATH: Final = "/.relume/batching"
"""Where a front says how many requests it has, and how it batches."""

USAGE: Final = ("prompt_tokens", "completion_tokens", "total_tokens")


class NotApart(ValueError):
    """The answer does not have a part for each request."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that may go with others of the same `key`. `size`: its own inputs; `weight`: their length, by which
    what is counted for all of them together is shared out."""

    path: str
    body: Document
    key: str
    size: int
    weight: int


def read(path: str, body: Json) -> Asked | None:
    """The request, if it may share a batch."""
    if not isinstance(body, dict):
        return None
    if path == EMBEDDINGS:
        return _listed(path, body, "input")
    if path == COMPLETIONS:
        alone = body.get("stream") or body.get("n", 1) not in (None, 1) or body.get("best_of", 1) not in (None, 1)
        return None if alone else _listed(path, body, "prompt")
    return _tensors(path, body) if INFER.fullmatch(path) else None


def together(asked: Sequence[Asked]) -> Document:
    """One request for all of them, which have one key."""
    first = asked[0]
    if first.path not in (EMBEDDINGS, COMPLETIONS):
        return _stacked(asked)
    field = "input" if first.path == EMBEDDINGS else "prompt"
    return {**first.body, field: [one for each in asked for one in _inputs(each.body[field])]}


def apart(asked: Sequence[Asked], answer: Json) -> list[Document]:
    """The answer of each. Raises NotApart."""
    if not isinstance(answer, dict):
        raise NotApart("the answer is no mapping")
    path = asked[0].path
    if path not in (EMBEDDINGS, COMPLETIONS):
        return _sliced(asked, answer)
    field = "data" if path == EMBEDDINGS else "choices"
    parts = answer.get(field)
    if not isinstance(parts, list) or len(parts) != sum(one.size for one in asked):
        raise NotApart(f"{field} does not have one entry for each input")
    by_index = {index: one for one in parts if isinstance(one, dict) and isinstance(index := one.get("index"), int)}
    answers, begin = list[Document](), 0
    for one, usage in zip(asked, _shares(asked, answer.get("usage")), strict=True):
        mine = list[Json]()
        for index in range(one.size):
            part = by_index.get(begin + index)
            if part is None:
                raise NotApart(f"{field} has no index {begin + index}")
            mine.append({**part, "index": index})
        begin += one.size
        answers.append({**answer, field: mine, **({} if usage is None else {"usage": usage})})
    return answers


def _inputs(given: Json) -> list[Json]:
    """The inputs of one request: a text, texts, the tokens of one, or the tokens of several."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list):
        return []
    return [given] if given and all(isinstance(one, int) for one in given) else given


def _listed(path: str, body: Document, field: str) -> Asked | None:
    inputs = _inputs(body.get(field))
    texts = all(isinstance(one, str) for one in inputs)
    if not inputs or not (texts or all(isinstance(one, list) for one in inputs)):
        return None
    weight = sum(len(one) for one in inputs if isinstance(one, str | list))
    rest = {key: value for key, value in body.items() if key != field}
    return Asked(path, body, _key(path, texts, rest), len(inputs), max(1, weight))


def _key(*parts: object) -> str:
    return json.dumps(parts, sort_keys=True)


def _shares(asked: Sequence[Asked], usage: Json) -> list[Document | None]:
    """What is counted for all, shared out by length: engines do not say whose tokens they were. Sums stay exact."""
    if not isinstance(usage, dict) or len(asked) == 1:
        return [usage if isinstance(usage, dict) else None] * len(asked)
    shared: list[Document] = [dict(usage) for _ in asked]
    whole = sum(one.weight for one in asked)
    for field in USAGE[:2]:
        count = usage.get(field)
        if not isinstance(count, int):
            continue
        passed = given = 0
        for one, mine in zip(asked, shared, strict=True):
            passed += one.weight
            mine[field] = count * passed // whole - given
            given = count * passed // whole
    for mine in shared:
        mine["total_tokens"] = sum(value for field in USAGE[:2] if isinstance(value := mine.get(field), int))
    return list(shared)


# KServe v2


def _tensors(path: str, body: Document) -> Asked | None:
    inputs = body.get("inputs")
    if not isinstance(inputs, list) or not inputs:
        return None
    kinds, sizes = list[tuple[object, ...]](), set[int]()
    for one in inputs:
        shape = _shape(one)
        if shape is None or not isinstance(one, dict) or "binary_data_size" in _parameters(one):
            return None
        if len(_flat(one.get("data"))) != prod(shape):
            return None
        sizes.add(shape[0])
        kinds.append((one.get("name"), one.get("datatype"), shape[1:], _parameters(one)))
    outputs = body.get("outputs")
    asked = outputs if isinstance(outputs, list) else []
    binary = any("binary_data" in _parameters(one) for one in (*asked, body))
    if binary or len(sizes) != 1 or not min(sizes):
        return None
    rest = {key: value for key, value in body.items() if key not in ("inputs", "id")}
    size = sizes.pop()
    return Asked(path, body, _key(path, kinds, rest), size, size)


def _stacked(asked: Sequence[Asked]) -> Document:
    first = cast("list[Document]", asked[0].body["inputs"])
    inputs = list[Json]()
    for index, tensor in enumerate(first):
        mine = [cast("list[Document]", one.body["inputs"])[index] for one in asked]
        shape: Json = [sum(one.size for one in asked), *cast("list[Json]", tensor["shape"])[1:]]
        data = [one for each in mine for one in _flat(each["data"])]
        inputs.append({**tensor, "shape": shape, "data": data})
    return {**{key: value for key, value in asked[0].body.items() if key != "id"}, "inputs": inputs}


def _sliced(asked: Sequence[Asked], answer: Document) -> list[Document]:
    whole = sum(one.size for one in asked)
    outputs = answer.get("outputs")
    if not isinstance(outputs, list):
        raise NotApart("outputs is no list")
    cut = list[tuple[Document, list[Json], int]]()
    for one in outputs:
        shape, data = _shape(one), _flat(one.get("data")) if isinstance(one, dict) else []
        if not isinstance(one, dict) or shape is None or shape[0] != whole or len(data) != prod(shape):
            raise NotApart("an output does not have the batch as its first dimension")
        cut.append((one, data, prod(shape[1:])))
    answers, begin = list[Document](), 0
    for each in asked:
        mine = list[Json]()
        for one, data, width in cut:
            cropped: Json = [each.size, *cast("list[Json]", one["shape"])[1:]]
            mine.append({**one, "shape": cropped, "data": data[begin * width : (begin + each.size) * width]})
        begin += each.size
        named = {"id": each.body["id"]} if "id" in each.body else {}
        answers.append({**answer, **named, "outputs": mine})
    return answers


def _shape(tensor: Json) -> list[int] | None:
    shape = tensor.get("shape") if isinstance(tensor, dict) else None
    if not isinstance(shape, list) or not shape:
        return None
    sides = [side for side in shape if isinstance(side, int) and not isinstance(side, bool) and side >= 0]
    return sides if len(sides) == len(shape) else None


def _parameters(of: Json) -> Document:
    found = of.get("parameters") if isinstance(of, dict) else None
    return found if isinstance(found, dict) else {}


def _flat(data: Json) -> list[Json]:
    """Row by row, however it was nested."""
    if not isinstance(data, list):
        return []
    if any(isinstance(one, list) for one in data):
        return [one for each in data for one in _flat(each)]
    return data
