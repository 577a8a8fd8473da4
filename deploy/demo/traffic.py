"""The demo's clients: chat completions over the gateway, streamed, each timed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import aiohttp

from events.clock import Clock

ANSWER_DEADLINE = 180.0
"""Seconds a request of the demo may take, the hold included."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One request, from the client's side. Seconds; `first_token` None: nothing came; `held` None: not told."""

    started_at: float
    status: int
    held: float | None
    first_token: float | None
    total: float
    tokens: int
    cold: bool
    replica: str
    error: str = ""

    @property
    def ok(self) -> bool:
        """A whole answer with at least one token."""
        return self.status == 200 and not self.error and self.tokens > 0


class ChatClient:
    """Asks the gateway as any OpenAI client would."""

    def __init__(self, session: aiohttp.ClientSession, base_url: str, model: str, clock: Clock) -> None:
        self._session = session
        self._url = f"{base_url}/v1/chat/completions"
        self._model = model
        self._clock = clock

    async def ask(self, question: str, max_tokens: int, on_text: Callable[[str], None] | None = None) -> Answer:
        """Ask and read the streamed answer to its end; never raises for what the server or network did."""
        started = self._clock.now()
        first: float | None = None
        tokens, status, error = 0, 0, ""
        headers: dict[str, str] = {}
        body = {
            "model": self._model, "stream": True, "max_tokens": max_tokens, "temperature": 0.7,
            "messages": [{"role": "user", "content": question}],
        }  # fmt: skip
        try:
            async with self._session.post(
                self._url, json=body, timeout=aiohttp.ClientTimeout(total=ANSWER_DEADLINE)
            ) as response:
                status, headers = response.status, dict(response.headers)
                if status != 200:
                    error = _said(await response.text())
                else:
                    async for text in _texts(response):
                        first = first if first is not None else self._clock.now() - started
                        tokens += 1
                        if on_text is not None:
                            on_text(text)
        except (aiohttp.ClientError, TimeoutError, _StreamError) as problem:
            error = f"{type(problem).__name__}: {problem}"
        lowered = {name.lower(): value for name, value in headers.items()}
        return Answer(
            started_at=started, status=status, held=_seconds(lowered.get("x-relume-held-ms")),
            first_token=first, total=self._clock.now() - started, tokens=tokens,
            cold=lowered.get("x-relume-cold-start") == "true", replica=lowered.get("x-relume-replica", ""), error=error,
        )  # fmt: skip


def _seconds(milliseconds: str | None) -> float | None:
    return None if milliseconds is None else float(milliseconds) / 1000


def _said(body: str) -> str:
    """The message of an OpenAI error object; any other body as it is, shortened."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body[:300]


class _StreamError(Exception):
    """The stream ended with an error object, or without its end."""


async def _texts(response: aiohttp.ClientResponse) -> AsyncIterator[str]:
    """The pieces of text in a streamed chat completion; raises _StreamError when it does not end well."""
    async for line in response.content:
        if not line.startswith(b"data: "):
            continue
        data = line[6:].strip()
        if data == b"[DONE]":
            return
        event = json.loads(data)
        if "error" in event:
            raise _StreamError(str(event["error"].get("message", event["error"])))
        for choice in event.get("choices", ()):
            text = choice.get("delta", {}).get("content")
            if text:
                yield text
    raise _StreamError("the stream ended without [DONE]")
