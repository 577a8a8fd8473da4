"""A plain server of one model, as many write it: a transformer in numpy, ``POST /v1/embeddings``, one after the other.

The shape is that of MiniLM-L6 (six layers of 384, 10.6 million weights beside the words); the weights are drawn, since
what they say does not change how long they take. ``GET /cpu`` tells the CPU seconds of the process, ``GET /health``
that it is there. On one core: relume sets the number of threads by what the model is declared to take.
"""

from __future__ import annotations

import argparse
import asyncio
import time
import zlib
from typing import Final

import numpy as np
import uvloop
from aiohttp import web
from numpy.typing import NDArray

LAYERS: Final = 6
WIDTH: Final = 384
HEADS: Final = 12
INNER: Final = 1536
WORDS: Final = 8192
TEXTS_MOST: Final = 64
TOKENS_MOST: Final = 128

Floats = NDArray[np.float32]


class Encoder:
    """Texts in, a vector each out."""

    def __init__(self, seed: int = 0) -> None:
        draws = np.random.default_rng(seed)

        def drawn(*shape: int) -> Floats:
            return draws.standard_normal(shape, dtype=np.float32) * np.float32(0.02)

        self._words = drawn(WORDS, WIDTH)
        self._places = drawn(TOKENS_MOST, WIDTH)
        self._layers = [
            (drawn(WIDTH, 3 * WIDTH), drawn(WIDTH, WIDTH), drawn(WIDTH, INNER), drawn(INNER, WIDTH))
            for _ in range(LAYERS)
        ]

    def encode(self, texts: list[str]) -> tuple[Floats, list[int]]:
        """All at once, padded to the longest; and how many tokens each has."""
        tokens = [_tokens(text) for text in texts]
        counts = [len(one) for one in tokens]
        longest = max(counts)
        ids = np.zeros((len(texts), longest), dtype=np.int64)
        for row, one in enumerate(tokens):
            ids[row, : len(one)] = one
        real = np.arange(longest)[None, :] < np.array(counts)[:, None]
        state = _normal(self._words[ids] + self._places[:longest])
        hidden = np.where(real, np.float32(0), np.float32(-1e9))[:, None, None, :]
        for layer in self._layers:
            state = _layer(state, layer, hidden)
        return (state * real[:, :, None]).sum(axis=1) / np.array(counts, dtype=np.float32)[:, None], counts


def _tokens(text: str) -> list[int]:
    words = text.split()[: TOKENS_MOST - 2]
    return [1, *(zlib.crc32(word.encode()) % WORDS for word in words), 2]


def _layer(state: Floats, weights: tuple[Floats, Floats, Floats, Floats], hidden: Floats) -> Floats:
    """Attention and a feed-forward layer, each with what came in added and normalised (BERT's order)."""
    wide, out, inner, outer = weights
    texts, length, _ = state.shape
    asks, keys, values = (
        one.reshape(texts, length, HEADS, -1).transpose(0, 2, 1, 3) for one in np.split(state @ wide, 3, axis=-1)
    )
    scores = asks @ keys.transpose(0, 1, 3, 2) / np.float32((WIDTH / HEADS) ** 0.5) + hidden
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    mixed = (scores / scores.sum(axis=-1, keepdims=True)) @ values
    state = _normal(state + mixed.transpose(0, 2, 1, 3).reshape(texts, length, WIDTH) @ out)
    return _normal(state + np.maximum(state @ inner, np.float32(0)) @ outer)


def _normal(state: Floats) -> Floats:
    away = state - state.mean(axis=-1, keepdims=True)
    scaled: Floats = away / np.sqrt((away * away).mean(axis=-1, keepdims=True) + np.float32(1e-6))
    return scaled


def app(encoder: Encoder) -> web.Application:
    """The server. Requests wait for each other: one is worked on at a time, whatever it holds."""
    turn = asyncio.Lock()

    async def embeddings(request: web.Request) -> web.Response:
        asked = await request.json()
        given = asked["input"]
        texts = [given] if isinstance(given, str) else list(given)
        if not 0 < len(texts) <= TEXTS_MOST:
            return web.json_response({"error": {"message": f"1 to {TEXTS_MOST} texts"}}, status=400)
        async with turn:
            vectors, counts = await asyncio.to_thread(encoder.encode, texts)
        data = [
            {"object": "embedding", "index": index, "embedding": [round(float(x), 6) for x in vector]}
            for index, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": sum(counts), "total_tokens": sum(counts)}
        return web.json_response({"object": "list", "model": asked["model"], "data": data, "usage": usage})

    async def cpu(_: web.Request) -> web.Response:
        return web.json_response({"seconds": time.process_time()})

    async def health(_: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    made = web.Application()
    made.add_routes([web.post("/v1/embeddings", embeddings), web.get("/cpu", cpu), web.get("/health", health)])
    return made


def main() -> None:
    """Serve until killed."""
    flags = argparse.ArgumentParser(prog="python -m bench.encoder")
    flags.add_argument("--port", type=int, required=True)
    flags.add_argument("--host", default="127.0.0.1")
    given = flags.parse_args()
    web.run_app(app(Encoder()), host=given.host, port=given.port, print=None, loop=uvloop.new_event_loop())


if __name__ == "__main__":
    main()
