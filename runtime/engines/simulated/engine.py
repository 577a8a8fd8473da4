"""The simulated engine itself: requests begin, tick out their tokens on the event loop's timers, and end.

One timer a running request and no task: thousands of streams cost little. Times are the loop's.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass

import orjson

from runtime.core.policy import Cancels
from runtime.engines.simulated.admission import Admission, NeverFits, QueueFull, SeenIds
from runtime.engines.simulated.answers import Answer
from runtime.engines.simulated.formats import EVENTS, Format
from runtime.engines.simulated.http import Exchange
from runtime.engines.simulated.metrics import Measures
from runtime.engines.simulated.settings import FailStart, Faults, Settings

_BURST = 256  # pieces written before other requests get a turn
_TICK = 0.001  # uvloop's clock and timers go by milliseconds, so a timer may be that much early

_FAILURES = {
    "rate_limit": (429, "rate_limit_error", "rate_limit_exceeded"),
    "invalid_api_key": (401, "authentication_error", "invalid_api_key"),
    "context_length": (400, "invalid_request_error", "context_length_exceeded"),
    "server_error": (503, "server_error", "server_error"),
    "invalid_request": (400, "invalid_request_error", "invalid_request_error"),
    "model_not_found": (404, "invalid_request_error", "model_not_found"),
}


def start_fails(faults: Faults, way: FailStart) -> bool:
    """Whether the start fails in this way, now."""
    if faults.fail_start is not way:
        return False
    return not faults.fail_start_while or os.path.exists(faults.fail_start_while)  # noqa: PTH110 - slow to import


def error_body(message: str, kind: str, code: str, param: str | None = None) -> bytes:
    """OpenAI's error object."""
    return orjson.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}})


@dataclass(frozen=True, slots=True)
class Work:
    """A request that was understood. `probe`: relume's own warm-up, which no fault hits and no count counts."""

    answer: Answer
    whole: Callable[[], bytes]
    """Writes the answer at once."""
    content_type: str
    """Of the whole answer."""
    stream: Format | None
    """Writes it as events instead, when the client asked for a stream."""
    request_id: str
    probe: bool
    asked_tokens: int
    """Tokens that the request may use in all: its prompt and the most it asks for."""


class Engine:
    """Runs requests under the limits, with the faults that the settings ask for."""

    def __init__(self, settings: Settings) -> None:
        limits = settings.limits
        self.settings = settings
        self.admission = Admission(limits.slots, limits.waiting, limits.kv_tokens)
        self.counts = self.admission.counts
        self.seen = SeenIds()
        self.measures = Measures()
        seed = f"{settings.seed}/{settings.instance}" if settings.seed is not None else None
        self.draw = random.Random(seed)  # noqa: S311 - times and faults, not secrets
        self.loop = asyncio.get_running_loop()
        self._begun = 0

    def submit(self, exchange: Exchange, work: Work) -> None:
        """Run it, queue it, or answer with an error."""
        faults, limits = self.settings.faults, self.settings.limits
        if not work.probe:
            self.counts.total += 1
            if work.request_id:
                self.seen.add(work.request_id)
        if start_fails(faults, FailStart.WARMUP):
            self._refuse(exchange, 500, "the engine cannot compute", "server_error")
        elif not work.probe and self._draws(faults.failure_rate):
            self.counts.failed += 1
            kind = self.draw.choice(faults.failure_types)
            status, type_, code = _FAILURES[kind]
            exchange.reply(status, error_body(f"injected failure: {kind}", type_, code), "application/json")
        elif work.asked_tokens > limits.context:
            message = f"this model's context is {limits.context} tokens; the request needs {work.asked_tokens}"
            self._refuse(exchange, 400, message, "context_length_exceeded")
        else:
            self._admit(exchange, work)

    def _admit(self, exchange: Exchange, work: Work) -> None:
        run = Run(self, exchange, work)
        exchange.on_leave = run.client_left
        try:
            self.admission.enter(run)
        except NeverFits as error:
            self._refuse(exchange, 400, str(error), "context_length_exceeded")
        except QueueFull as error:
            self._refuse(exchange, 503, str(error), "queue_full")

    def begun(self, work: Work) -> None:
        """A request got a slot; it may be the one that ends the process."""
        if work.probe:
            return
        self._begun += 1
        limit = self.settings.faults.crash_after
        if limit is not None and self._begun > limit:
            sys.stderr.write("relume-simulated: crashing, as crashAfter asks\n")
            sys.stderr.flush()
            os._exit(self.settings.faults.exit_code)

    def hangs(self, work: Work) -> bool:
        """Draws whether this request never gets an answer."""
        return not work.probe and self._draws(self.settings.faults.hang_rate)

    def breaks(self, work: Work) -> bool:
        """Draws whether this stream is cut."""
        return work.stream is not None and not work.probe and self._draws(self.settings.faults.break_rate)

    def first_delay(self) -> float:
        """Seconds to the first token."""
        return self._delay(self.settings.timing.first_token, self.settings.timing.first_token_std)

    def next_delay(self) -> float:
        """Seconds to each further token."""
        return self._delay(self.settings.timing.next_token, self.settings.timing.next_token_std)

    def start_seconds(self) -> float:
        """Seconds that this start takes."""
        return self.settings.timing.start + self.draw.random() * self.settings.timing.start_jitter

    def _delay(self, mean: float, deviation: float) -> float:
        drawn = self.draw.gauss(mean, deviation) if deviation else mean
        slots, factor = self.settings.limits.slots, self.settings.timing.load_factor
        load = 1.0 + (factor - 1.0) * (self.admission.running - 1) / (slots - 1) if slots > 1 else 1.0
        return min(max(drawn, 0.3 * mean), 1.7 * mean) * max(1.0, load)

    def _draws(self, percent: float) -> bool:
        return percent > 0.0 and self.draw.random() * 100.0 < percent

    def _refuse(self, exchange: Exchange, status: int, message: str, code: str) -> None:
        self.counts.refused += 1
        kind = "invalid_request_error" if status < 500 else "server_error"
        exchange.reply(status, error_body(message, kind, code), "application/json")


class Run:
    """One request inside the engine."""

    def __init__(self, engine: Engine, exchange: Exchange, work: Work) -> None:
        self.kv_tokens = work.answer.prompt_tokens + len(work.answer.pieces)
        self._engine = engine
        self._exchange = exchange
        self._work = work
        self._arrived = engine.loop.time()
        self._began = 0.0
        self._due = 0.0
        self._index = 0
        self._opened = False
        self._break_at = -1
        self._timer: asyncio.Handle | None = None

    def begin(self) -> None:
        """It has a slot: the first token is due after its delay."""
        engine = self._engine
        engine.begun(self._work)
        if engine.hangs(self._work):
            return
        if engine.breaks(self._work):
            self._break_at = max(1, len(self._work.answer.pieces) // 2)
        self._began = engine.loop.time()
        self._due = self._began + engine.first_delay()
        if self._work.stream is None:
            self._due += sum(engine.next_delay() for _ in self._work.answer.pieces[1:])
        self._sleep()

    def client_left(self) -> None:
        """The connection is gone: the request stops, or goes on for nobody, as the engine imitated would do."""
        cancels = self._engine.settings.cancels
        if cancels is Cancels.ALWAYS or (cancels is Cancels.STREAMS and self._work.stream is not None):
            self._engine.counts.cancelled += 1
            self._end()
        else:
            self._engine.counts.abandoned += 1

    def _sleep(self) -> None:
        loop = self._engine.loop
        if self._due <= loop.time():  # without the millisecond that a timer of uvloop takes at least
            self._timer = loop.call_soon(self._tick)
        else:
            self._timer = loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        if self._work.stream is not None:
            self._stream_on(self._work.stream)
            return
        pieces = len(self._work.answer.pieces)
        self._engine.measures.first_token(self._engine.loop.time() - self._arrived)
        self._finish()
        self._exchange.reply(200, self._work.whole(), self._work.content_type, self._ids())
        self._engine.measures.generated_tokens += pieces

    def _stream_on(self, form: Format) -> None:
        engine, answer = self._engine, self._work.answer
        now = engine.loop.time()
        written: list[bytes] = []
        if not self._opened:
            self._opened = True
            engine.measures.first_token(now - self._arrived)
            self._exchange.open_stream(EVENTS, self._ids())
            written.append(form.opening(answer))
        stop = min(len(answer.pieces), self._index + _BURST)
        while self._index < stop and self._due <= now + _TICK and self._index != self._break_at:
            written.append(form.piece(answer, self._index))
            self._index += 1
            engine.measures.generated_tokens += 1
            self._due += engine.next_delay() if self._index < len(answer.pieces) else 0.0
        self._exchange.write(b"".join(written))
        if self._index == self._break_at:
            engine.counts.broken += 1
            self._end()
            self._exchange.abort()
        elif self._index == len(answer.pieces):
            self._finish()
            self._exchange.write(form.closing(answer))
            self._exchange.finish()
        elif self._exchange.stalled:
            self._exchange.on_ready = self._sleep
        else:
            self._sleep()

    def _finish(self) -> None:
        engine = self._engine
        engine.counts.finished += not self._work.probe
        engine.measures.finished(self._work.answer, engine.loop.time() - self._arrived)
        self._end()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._exchange.on_ready = _nothing
        self._engine.admission.leave(self)

    def _ids(self) -> dict[str, str]:
        return {"x-request-id": self._work.request_id} if self._work.request_id else {}


def _nothing() -> None:
    """A finished run has nothing to resume."""
