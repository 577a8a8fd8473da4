"""The simulated engine's sleep: the endpoints of vLLM 0.32.0 and their answers, with times, and without a GPU.

As there, a level 2 sleep forgets the weights: who wakes it without `reload_weights` gets other answers than before; a
wake of tags that do not sleep does nothing, with status 200. Stricter on purpose, so that who errs hears of it: a sleep
while requests run is refused (vLLM aborts them), and so is a request while it sleeps (vLLM holds it until the wake).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from urllib.parse import parse_qs

import orjson

from runtime.engines.simulated.answers import Answer
from runtime.engines.simulated.engine import error_body
from runtime.engines.simulated.formats import JSON
from runtime.engines.simulated.http import Exchange
from runtime.engines.simulated.settings import Settings

TAGS = frozenset({"weights", "kv_cache"})
"""What sleeps, and may be woken one by one."""


class Sleeper:
    """Whether the engine sleeps, and whether it woke as it was. `running` tells how many requests run."""

    def __init__(self, settings: Settings, running: Callable[[], int]) -> None:
        self.wrong = False
        """It lost its weights: what it answers now is not what it answered before."""
        self._settings = settings
        self._running = running
        self._asleep: frozenset[str] = frozenset()
        self._forgot = False
        self.posts: Mapping[str, Callable[[Exchange], None]] = {
            "/sleep": self._sleep,
            "/wake_up": self._wake,
            "/collective_rpc": self._call,
            "/reset_prefix_cache": lambda exchange: exchange.reply(200, b'{"success":true}', JSON),
        }

    @property
    def asleep(self) -> bool:
        """It answers no request."""
        return bool(self._asleep)

    def spoilt(self, answer: Answer) -> Answer:
        """The answer, as an engine without its weights says it."""
        return replace(answer, pieces=("!",) * len(answer.pieces)) if self.wrong else answer

    def tell(self, exchange: Exchange) -> None:
        """GET /is_sleeping."""
        exchange.reply(200, b'{"is_sleeping":%b}' % (b"true" if self.asleep else b"false"), JSON)

    def _sleep(self, exchange: Exchange) -> None:
        level = parse_qs(exchange.query).get("level", ["1"])[0]
        if level not in ("1", "2"):
            self._refuse(exchange, 400, f"there is no level {level}; write 1 or 2")
        elif self._running():
            self._refuse(exchange, 409, "requests run; sleep when they have ended")
        else:
            self._later(self._settings.timing.sleep, lambda: self._fall_asleep(exchange, int(level)))

    def _fall_asleep(self, exchange: Exchange, level: int) -> None:
        self._asleep = TAGS
        self._forgot |= level == 2
        exchange.reply(200, b'{"status":"sleeping","level":%d}' % level, JSON)

    def _wake(self, exchange: Exchange) -> None:
        tags = parse_qs(exchange.query).get("tags")
        seconds = self._settings.timing.wake if tags is None or "weights" in tags else 0.0
        self._later(seconds, lambda: self._awake(exchange, tags))

    def _awake(self, exchange: Exchange, tags: list[str] | None) -> None:
        woken = self._asleep if tags is None else frozenset(tags)
        if woken <= self._asleep:
            self._asleep -= woken
            self.wrong = self._forgot or self._settings.faults.wakes_wrong
        status = "sleeping" if self._asleep else "awake"
        exchange.reply(200, orjson.dumps({"status": status, "tags": tags}), JSON)

    def _call(self, exchange: Exchange) -> None:
        try:
            method = orjson.loads(exchange.body)["method"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            method = ""
        if method != "reload_weights":
            self._refuse(exchange, 500, 'the only method is {"method": "reload_weights"}')
        elif "weights" in self._asleep:
            self._refuse(exchange, 500, "the weights have no room yet; wake up tags=weights first")
        else:
            self._forgot = False
            self.wrong = self._settings.faults.wakes_wrong
            exchange.reply(200, b'{"results":[null]}', JSON)

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, do)

    @staticmethod
    def _refuse(exchange: Exchange, status: int, words: str) -> None:
        exchange.reply(status, error_body(words, "invalid_request_error", "sleep", None), JSON)
