"""The one-token answer of a replica, kept to be compared: an engine that slept must say again what it said before.

Weights that were lost or mixed up while it slept show in the first token (vllm#29341: gibberish after a wake), long
before anybody reads an answer.
"""

from __future__ import annotations

import json
import math
from typing import Final

Said = tuple[str | float, ...]
"""The texts and numbers of an answer, without its name and times."""

NUMBERS: Final = 64
"""Of a vector, so many of its first numbers are kept."""
CLOSE: Final = 0.02
"""How far numbers may be apart, relative to the larger: sums in another order, not another model. Chosen."""


def is_steady(request: bytes) -> bool:
    """Whether the same request has the same answer each time: at temperature 0, or where nothing is drawn at all."""
    try:
        body = json.loads(request)
    except ValueError:
        return False
    if not isinstance(body, dict):
        return False
    draws = "prompt" in body or "messages" in body or "temperature" in body
    return not draws or body.get("temperature") == 0


def said(answer: bytes) -> Said | None:
    """What an answer of completions, chat, embeddings or reranking says; None: it cannot be told.

    A first token that is no text (the end, say) tells nothing: an engine that lost its weights says such a one too.
    """
    try:
        body = json.loads(answer)
    except ValueError:
        return None
    if not isinstance(body, dict):
        return None
    found: list[str | float] = []
    for choice in _objects(body.get("choices")):
        message = choice.get("message")
        text = message.get("content") if isinstance(message, dict) else choice.get("text")
        found += [text] if isinstance(text, str) else []
    for item in _objects(body.get("data")):
        vector = item.get("embedding")
        found += [float(one) for one in vector[:NUMBERS]] if isinstance(vector, list) else []
    for item in _objects(body.get("results")):
        score = item.get("relevance_score")
        found += [float(score)] if isinstance(score, (int, float)) else []
    return tuple(found) if any(one != "" for one in found) else None


def _objects(value: object) -> list[dict[str, object]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def is_same(before: Said, now: Said | None) -> bool:
    """Whether both say the same: texts letter by letter, numbers closely."""
    return now is not None and len(before) == len(now) and all(map(_alike, before, now))


def _alike(one: str | float, other: str | float) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE)
