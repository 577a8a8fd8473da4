"""Which path does what in the simulated engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from urllib.parse import parse_qs, unquote

import orjson

from events.clock import Clock
from runtime.engines.simulated.answers import (
    Answer,
    BadRequest,
    Wanted,
    chat_wanted,
    completion_wanted,
    compose,
    count_tokens,
    responses_wanted,
)
from runtime.engines.simulated.engine import Engine, Work, error_body
from runtime.engines.simulated.formats import JSON, Chat, Completion, Format, Responses
from runtime.engines.simulated.http import Exchange
from runtime.engines.simulated.other_answers import embeddings, form_fields, images, infer, rerank, speech
from runtime.engines.simulated.settings import PROBE, Mode
from runtime.engines.simulated.sleeping import Sleeper

_KSERVE = re.compile(r"^/v2/models/([^/]+)(?:/versions/[^/]+)?(/infer|/ready|)$")
_METRICS_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_READY_PATHS = ("/health", "/health/ready", "/ready", "/ping", "/v2/health/ready")


class NotFound(Exception):
    """No such path or model; the text says which, `code` is OpenAI's."""

    def __init__(self, message: str, code: str = "not_found") -> None:
        super().__init__(message)
        self.code = code


class Routes:
    """Answers an exchange, or hands it to the engine. `ready` is set when the model is loaded."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.ready = False
        self._engine = engine
        self._settings = engine.settings
        self._clock = clock
        self._created = int(clock.now())
        self._count = 0
        self._sleeper = Sleeper(engine.settings, lambda: engine.admission.running)
        self._posts: Mapping[str, Callable[[Exchange, dict[str, object]], Work]] = {
            "/v1/chat/completions": self._chat,
            "/v1/completions": self._completion,
            "/v1/responses": self._responses,
            "/v1/embeddings": self._embeddings,
            "/v1/rerank": self._rerank,
            "/rerank": self._rerank,
            "/v1/images/generations": self._images,
            "/v1/audio/speech": self._speech,
        }
        self._gets: Mapping[str, Callable[[Exchange], None]] = {
            "/v1/models": self._models,
            "/metrics": self._metrics,
            "/stats": self._stats,
            "/running": self._running,
            "/is_sleeping": self._sleeper.tell,
            "/v2/health/live": self._live,
            "/health/live": self._live,
        } | dict.fromkeys(_READY_PATHS, self._health)

    def handle(self, exchange: Exchange) -> None:
        """Never raises on a client's fault: each gets its error object."""
        try:
            self._route(exchange)
        except NotFound as error:
            self._error(exchange, 404, str(error), error.code, None)
        except BadRequest as error:
            self._error(exchange, 400, str(error), "invalid_request_error", error.param)

    def _route(self, exchange: Exchange) -> None:
        path = exchange.path
        if exchange.method in ("GET", "HEAD"):
            get = self._gets.get(path)
            if get is not None:
                return get(exchange)
            if _KSERVE.match(path):
                return self._health(exchange)
            raise NotFound(f"there is no GET {path}")
        if exchange.method != "POST":
            return self._error(exchange, 405, f"{exchange.method} is not allowed", "method_not_allowed", None)
        if not self.ready:
            return self._error(exchange, 503, "Loading model", "unavailable_error", None)
        order = self._sleeper.posts.get(path, self._ask)
        return order(exchange)

    def _ask(self, exchange: Exchange) -> None:
        if self._sleeper.asleep:
            self._error(exchange, 503, "The engine sleeps", "unavailable_error", None)
        else:
            self._engine.submit(exchange, self._work(exchange))

    def _work(self, exchange: Exchange) -> Work:
        if exchange.path in ("/v1/audio/transcriptions", "/v1/audio/translations"):
            return self._transcription(exchange)
        post = self._posts.get(exchange.path)
        if post is not None:
            return post(exchange, _json(exchange.body))
        kserve = _KSERVE.match(exchange.path)
        if kserve and kserve[2] == "/infer":
            model = self._model(unquote(kserve[1]))
            body = infer(_json(exchange.body), model)
            return self._fixed(exchange, orjson.dumps(body), count_tokens(str(body["outputs"])))
        raise NotFound(f"there is no POST {exchange.path}")

    # Generated text.

    def _chat(self, exchange: Exchange, body: dict[str, object]) -> Work:
        form = Chat(self._identity("chatcmpl"), self._now(), self._named(body), include_usage=_wants_usage(body))
        return self._generated(exchange, body, chat_wanted(body), form)

    def _completion(self, exchange: Exchange, body: dict[str, object]) -> Work:
        form = Completion(self._identity("cmpl"), self._now(), self._named(body), include_usage=_wants_usage(body))
        return self._generated(exchange, body, completion_wanted(body), form)

    def _responses(self, exchange: Exchange, body: dict[str, object]) -> Work:
        form = Responses(self._identity("sim"), self._now(), self._named(body))
        return self._generated(exchange, body, responses_wanted(body), form)

    def _generated(self, exchange: Exchange, body: Mapping[str, object], wanted: Wanted, form: Format) -> Work:
        if body.get("n") not in (None, 1):
            raise BadRequest("n must be 1: one choice a request", "n")
        settings = self._settings
        prompt = count_tokens(wanted.prompt)
        room = settings.limits.context - prompt
        answer = Answer((), prompt)
        if (wanted.max_tokens or 1) <= room:  # else the engine refuses it; no need to write that much text
            length = min(settings.limits.answer_tokens, room)
            echo, seed = settings.mode is Mode.ECHO, settings.seed or "0"
            answer = self._sleeper.spoilt(compose(wanted, echo=echo, length=length, seed=seed))
        work = self._whole(exchange, answer, partial(form.whole, answer), JSON)
        stream = form if body.get("stream") is True else None
        return replace(work, stream=stream, asked_tokens=prompt + (wanted.max_tokens or 1))

    # Answers of other kinds.

    def _embeddings(self, exchange: Exchange, body: dict[str, object]) -> Work:
        answer, tokens = embeddings(body, self._named(body), self._settings.dimensions)
        return self._fixed(exchange, orjson.dumps(answer), tokens)

    def _rerank(self, exchange: Exchange, body: dict[str, object]) -> Work:
        answer, tokens = rerank(body, self._named(body))
        return self._fixed(exchange, orjson.dumps(answer), tokens)

    def _images(self, exchange: Exchange, body: dict[str, object]) -> Work:
        self._named(body)
        return self._fixed(exchange, orjson.dumps(images(body, self._now())), count_tokens(str(body["prompt"])))

    def _speech(self, exchange: Exchange, body: dict[str, object]) -> Work:
        self._named(body)
        tokens = count_tokens(str(body.get("input", "")))
        return self._fixed(exchange, speech(body, tokens), tokens, "audio/wav")

    def _transcription(self, exchange: Exchange) -> Work:
        fields = form_fields(exchange.headers.get("content-type", ""), exchange.body)
        self._named({"model": fields.get("model", b"").decode(errors="replace")})
        if "file" not in fields:
            raise BadRequest("the form has no file", "file")
        length = self._settings.limits.answer_tokens
        heard = Wanted(f"{len(fields['file'])} bytes of sound", "", None)
        text = compose(heard, echo=False, length=length, seed=self._settings.seed or "0").text
        if fields.get("response_format") == b"text":
            return self._fixed(exchange, f"{text}\n".encode(), 1, "text/plain; charset=utf-8")
        answer: dict[str, object] = {"text": text}
        if fields.get("response_format") == b"verbose_json":
            answer |= {"task": "transcribe", "language": "english", "duration": 1.0, "segments": []}
        return self._fixed(exchange, orjson.dumps(answer), 1)

    def _fixed(self, exchange: Exchange, body: bytes, tokens: int, content_type: str = JSON) -> Work:
        return self._whole(exchange, Answer((), tokens), lambda: body, content_type)

    def _whole(self, exchange: Exchange, answer: Answer, whole: Callable[[], bytes], content_type: str) -> Work:
        headers = exchange.headers
        request_id = headers.get("x-relume-request-id") or headers.get("x-request-id") or ""
        probe = exchange.query == PROBE
        return Work(answer, whole, content_type, None, request_id[:128], probe, answer.prompt_tokens)

    # What the engine says of itself.

    def _health(self, exchange: Exchange) -> None:
        status, word = (200, b"ok") if self.ready else (503, b"loading model")
        exchange.reply(status, b'{"status":"%b"}' % word, JSON)

    def _live(self, exchange: Exchange) -> None:
        exchange.reply(200, b'{"status":"ok"}', JSON)

    def _models(self, exchange: Exchange) -> None:
        names, context = self._settings.names, self._settings.limits.context
        data = [{"id": name, "object": "model", "created": self._created, "owned_by": "relume", "root": names[0],
                 "parent": None, "max_model_len": context} for name in names]  # fmt: skip
        exchange.reply(200, orjson.dumps({"object": "list", "data": data}), JSON)

    def _metrics(self, exchange: Exchange) -> None:
        admission = self._engine.admission
        name = self._settings.names[0]
        text = self._engine.measures.text(name, admission.running, admission.waiting, admission.kv_use)
        exchange.reply(200, text.encode(), _METRICS_TEXT)

    def _running(self, exchange: Exchange) -> None:
        admission = self._engine.admission
        counts = {"running": admission.running, "waiting": admission.waiting, "slots": admission.slots}
        exchange.reply(200, orjson.dumps(counts), JSON)

    def _stats(self, exchange: Exchange) -> None:
        engine, admission = self._engine, self._engine.admission
        counts, seen = engine.counts, engine.seen
        shown = parse_qs(exchange.query).get("ids", ["0"])[0]
        stats = {
            "model": self._settings.names[0], "instance": self._settings.instance, "ready": self.ready,
            "slots": admission.slots, "running": admission.running, "waiting": admission.waiting,
            "peak": counts.peak, "oversold": max(0, counts.peak - admission.slots), "total": counts.total,
            "finished": counts.finished, "cancelled": counts.cancelled, "abandoned": counts.abandoned,
            "failed": counts.failed, "refused": counts.refused, "broken": counts.broken,
            "promptTokens": engine.measures.prompt_tokens, "generatedTokens": engine.measures.generated_tokens,
            "requestIds": len(seen), "duplicates": seen.duplicates, "repeated": seen.repeated(),
            "ids": seen.newest(min(int(shown), 100_000) if shown.isdigit() else 0),
        }  # fmt: skip
        exchange.reply(200, orjson.dumps(stats), JSON)

    # Small helpers.

    def _named(self, body: Mapping[str, object]) -> str:
        name = body.get("model")
        if not isinstance(name, str) or not name:
            raise BadRequest("model must be a string", "model")
        return self._model(name)

    def _model(self, name: str) -> str:
        if self._settings.strict_model and name not in self._settings.names:
            raise NotFound(f"the model {name!r} does not exist", "model_not_found")
        return name

    def _identity(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}-{self._settings.instance}-{self._count}"

    def _now(self) -> int:
        return int(self._clock.now())

    def _error(self, exchange: Exchange, status: int, message: str, code: str, param: str | None) -> None:
        kind = "invalid_request_error" if status < 500 else "server_error"
        exchange.reply(status, error_body(message, kind, code, param), JSON)


def _json(body: bytes) -> dict[str, object]:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is not JSON: {error}", "body") from error
    if not isinstance(parsed, dict):
        raise BadRequest("the body must be a JSON object", "body")
    return parsed


def _wants_usage(body: Mapping[str, object]) -> bool:
    options = body.get("stream_options")
    return isinstance(options, Mapping) and options.get("include_usage") is True
