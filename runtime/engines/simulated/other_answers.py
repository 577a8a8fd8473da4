"""Answers that are not generated text: vectors, ranks, transcriptions, images, KServe v2. Pure and repeatable."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import struct
from collections.abc import Mapping

from runtime.engines.simulated.answers import BadRequest, count_tokens

# A PNG of one pixel.
_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_NAME = re.compile(rb'(?:^|;)\s*name="([^"]*)"')


def embeddings(body: Mapping[str, object], model: str, dimensions: int) -> tuple[dict[str, object], int]:
    """The answer to /v1/embeddings and its prompt tokens: unit vectors that depend on the text only."""
    given = body.get("input")
    texts = _inputs(given)
    wanted = body.get("dimensions", dimensions)
    if not isinstance(wanted, int) or isinstance(wanted, bool) or not 1 <= wanted <= 65_536:
        raise BadRequest("dimensions must be a whole number from 1 to 65536", "dimensions")
    as_base64 = body.get("encoding_format") == "base64"
    data = []
    for index, text in enumerate(texts):
        vector = unit_vector(text, wanted)
        packed = base64.b64encode(struct.pack(f"<{wanted}f", *vector)).decode() if as_base64 else vector
        data.append({"object": "embedding", "index": index, "embedding": packed})
    tokens = sum(count_tokens(text) for text in texts)
    counts = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": model, "data": data, "usage": counts}, tokens


def _inputs(given: object) -> list[str]:
    if isinstance(given, str):
        return [given]
    if isinstance(given, list) and given:
        if all(isinstance(part, int) for part in given):
            return [" ".join(map(str, given))]
        return [part if isinstance(part, str) else " ".join(map(str, part)) for part in given]
    raise BadRequest("input must be a string, a list of strings or a list of tokens", "input")


def unit_vector(text: str, dimensions: int) -> list[float]:
    """A vector of length 1 drawn from a hash of the text."""
    drawn = hashlib.shake_128(text.encode()).digest(2 * dimensions)
    values = [value / 32768.0 for value in struct.unpack(f"<{dimensions}h", drawn)]
    length = math.sqrt(math.fsum(value * value for value in values)) or 1.0
    return [value / length for value in values]


def rerank(body: Mapping[str, object], model: str) -> tuple[dict[str, object], int]:
    """The answer to /v1/rerank: documents by the share of the query's words that they hold."""
    query, documents = body.get("query"), body.get("documents")
    if not isinstance(query, str) or not isinstance(documents, list) or not documents:
        raise BadRequest("rerank needs a query and a list of documents", "documents")
    words = set(query.lower().split())
    results = []
    for index, document in enumerate(documents):
        text = str(document.get("text", "")) if isinstance(document, Mapping) else str(document)
        score = len(words & set(text.lower().split())) / max(1, len(words))
        results.append({"index": index, "relevance_score": score, "document": {"text": text}})
    results.sort(key=lambda result: (-float(str(result["relevance_score"])), int(str(result["index"]))))
    top = body.get("top_n")
    tokens = count_tokens(query) + sum(count_tokens(str(document)) for document in documents)
    shown = results[:top] if isinstance(top, int) and top > 0 else results
    return {"id": "rerank", "model": model, "results": shown, "usage": {"total_tokens": tokens}}, tokens


def images(body: Mapping[str, object], created: int) -> dict[str, object]:
    """The answer to /v1/images/generations: one pixel, `n` times."""
    if not isinstance(body.get("prompt"), str):
        raise BadRequest("prompt must be a string", "prompt")
    count = body.get("n") or 1
    if not isinstance(count, int) or not 1 <= count <= 10:
        raise BadRequest("n must be a whole number from 1 to 10", "n")
    as_url = body.get("response_format") == "url"
    image = {"url": f"data:image/png;base64,{_PIXEL}"} if as_url else {"b64_json": _PIXEL}
    return {"created": created, "data": [image] * count}


def speech(body: Mapping[str, object], words: int) -> bytes:
    """The answer to /v1/audio/speech: a WAV file with a tenth of a second of silence for each word."""
    if not isinstance(body.get("input"), str):
        raise BadRequest("input must be a string", "input")
    rate = 8000  # one byte a sample, one channel
    data = b"\x80" * (words * rate // 10)
    layout = struct.pack("<4sIHHIIHH4sI", b"fmt ", 16, 1, 1, rate, rate, 1, 8, b"data", len(data))
    return struct.pack("<4sI4s", b"RIFF", 4 + len(layout) + len(data), b"WAVE") + layout + data


def infer(body: Mapping[str, object], model: str) -> dict[str, object]:
    """The answer to KServe v2's infer: each input again as an output."""
    inputs = body.get("inputs")
    if not isinstance(inputs, list) or not all(isinstance(item, Mapping) for item in inputs):
        raise BadRequest("inputs must be a list of tensors", "inputs")
    outputs = [
        {key: item.get(key) for key in ("datatype", "shape", "data")} | {"name": f"output_{number}"}
        for number, item in enumerate(inputs)
    ]
    answer: dict[str, object] = {"model_name": model, "model_version": "1", "outputs": outputs}
    return answer | ({"id": body["id"]} if "id" in body else {})


def form_fields(content_type: str, body: bytes) -> dict[str, bytes]:
    """The fields of a multipart form by name (RFC 7578); a file's bytes under its field's name."""
    _, _, boundary = content_type.partition("boundary=")
    boundary = boundary.split(";")[0].strip().strip('"')
    if not boundary:
        raise BadRequest("the multipart form has no boundary", "content-type")
    fields: dict[str, bytes] = {}
    for part in body.split(b"--" + boundary.encode("latin-1")):
        head, separator, value = part.partition(b"\r\n\r\n")
        found = _NAME.search(head)
        if separator and found:
            fields[found[1].decode(errors="replace")] = value.removesuffix(b"\r\n")
    return fields
