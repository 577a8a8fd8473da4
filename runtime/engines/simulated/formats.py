"""How an answer is written: OpenAI's chat, completions and responses, whole and as server-sent events. Pure."""

from __future__ import annotations

from typing import Protocol

import orjson

from runtime.engines.simulated.answers import Answer

JSON = "application/json"
EVENTS = "text/event-stream"
_DONE = b"data: [DONE]\n\n"


class Format(Protocol):
    """How one request's answer is written: at once, or as events."""

    def whole(self, answer: Answer) -> bytes:
        """The answer at once, as JSON."""

    def opening(self, answer: Answer) -> bytes:
        """Events before the first piece."""

    def piece(self, answer: Answer, index: int) -> bytes:
        """The event of one piece."""

    def closing(self, answer: Answer) -> bytes:
        """Events after the last piece."""


def usage(answer: Answer) -> dict[str, object]:
    """OpenAI's usage object."""
    out = len(answer.pieces)
    return {"prompt_tokens": answer.prompt_tokens, "completion_tokens": out, "total_tokens": answer.prompt_tokens + out}


class Completion:
    """/v1/completions."""

    kind = "text_completion"
    chunk_kind = "text_completion"

    def __init__(self, identity: str, created: int, model: str, *, include_usage: bool) -> None:
        self.identity = identity
        self.created = created
        self.model = model
        self._include_usage = include_usage
        self._prefix = b""
        self._suffix = b""

    def whole(self, answer: Answer) -> bytes:
        return orjson.dumps(self._object(self.kind, [self._choice(answer)]) | {"usage": usage(answer)})

    def opening(self, answer: Answer) -> bytes:
        # Written once, so that a piece costs one small JSON string only.
        mark = "\u0000piece"
        event = orjson.dumps(self._object(self.chunk_kind, [self._delta(mark, answer)]))
        before, after = event.split(orjson.dumps(mark))
        self._prefix, self._suffix = b"data: " + before, after + b"\n\n"
        return self._first(answer)

    def piece(self, answer: Answer, index: int) -> bytes:
        return self._prefix + orjson.dumps(answer.pieces[index]) + self._suffix

    def closing(self, answer: Answer) -> bytes:
        last = _data(self._object(self.chunk_kind, [self._last(answer)]))
        if self._include_usage:
            last += _data(self._object(self.chunk_kind, []) | {"usage": usage(answer)})
        return last + _DONE

    def _object(self, kind: str, choices: list[dict[str, object]]) -> dict[str, object]:
        return {"id": self.identity, "object": kind, "created": self.created, "model": self.model, "choices": choices}

    def _choice(self, answer: Answer) -> dict[str, object]:
        return {"index": 0, "text": answer.text, "logprobs": None, "finish_reason": answer.finish.value}

    def _delta(self, text: str, answer: Answer) -> dict[str, object]:  # noqa: ARG002 - chat needs the answer
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": None}

    def _first(self, answer: Answer) -> bytes:  # noqa: ARG002 - chat needs the answer
        return b""

    def _last(self, answer: Answer) -> dict[str, object]:
        return {"index": 0, "text": "", "logprobs": None, "finish_reason": answer.finish.value}


class Chat(Completion):
    """/v1/chat/completions."""

    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def _choice(self, answer: Answer) -> dict[str, object]:
        message: dict[str, object] = {"role": "assistant", "content": answer.text}
        if answer.tool:
            function = {"name": answer.tool, "arguments": answer.text}
            call = {"id": self._call_id(), "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish.value}

    def _delta(self, text: str, answer: Answer) -> dict[str, object]:
        delta: dict[str, object] = {"content": text}
        if answer.tool:
            delta = {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}
        return {"index": 0, "delta": delta, "finish_reason": None}

    def _first(self, answer: Answer) -> bytes:
        delta: dict[str, object] = {"role": "assistant", "content": ""}
        if answer.tool:
            function = {"name": answer.tool, "arguments": ""}
            call = {"index": 0, "id": self._call_id(), "type": "function", "function": function}
            delta = {"role": "assistant", "content": None, "tool_calls": [call]}
        return _data(self._object(self.chunk_kind, [{"index": 0, "delta": delta, "finish_reason": None}]))

    def _last(self, answer: Answer) -> dict[str, object]:
        return {"index": 0, "delta": {}, "finish_reason": answer.finish.value}

    def _call_id(self) -> str:
        return f"call_{self.identity}"


class Responses:
    """/v1/responses: typed events with a sequence number each."""

    def __init__(self, identity: str, created: int, model: str) -> None:
        self._identity = identity
        self._created = created
        self._model = model
        self._sequence = 0

    def whole(self, answer: Answer) -> bytes:
        return orjson.dumps(self._response(answer, "completed", [self._item(answer, "completed", answer.text)]))

    def opening(self, answer: Answer) -> bytes:
        started = self._response(answer, "in_progress", [])
        events = self._event("response.created", response=started)
        events += self._event("response.in_progress", response=started)
        item = self._item(answer, "in_progress", "")
        if not answer.tool:
            item["content"] = []
        events += self._event("response.output_item.added", output_index=0, item=item)
        if not answer.tool:
            events += self._event("response.content_part.added", **self._place(answer), part=_text_part(""))
        return events

    def piece(self, answer: Answer, index: int) -> bytes:
        name = "response.function_call_arguments.delta" if answer.tool else "response.output_text.delta"
        more: dict[str, object] = {} if answer.tool else {"logprobs": []}
        return self._event(name, **self._place(answer), delta=answer.pieces[index], **more)

    def closing(self, answer: Answer) -> bytes:
        place, item = self._place(answer), self._item(answer, "completed", answer.text)
        if answer.tool:
            events = self._event(
                "response.function_call_arguments.done", **place, arguments=answer.text, name=answer.tool
            )
        else:
            events = self._event("response.output_text.done", **place, text=answer.text, logprobs=[])
            events += self._event("response.content_part.done", **place, part=_text_part(answer.text))
        events += self._event("response.output_item.done", output_index=0, item=item)
        return events + self._event("response.completed", response=self._response(answer, "completed", [item]))

    def _event(self, kind: str, **fields: object) -> bytes:
        data = orjson.dumps({"type": kind, "sequence_number": self._sequence, **fields})
        self._sequence += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)

    def _place(self, answer: Answer) -> dict[str, object]:
        place: dict[str, object] = {"item_id": self._item_id(answer), "output_index": 0}
        return place if answer.tool else place | {"content_index": 0}

    def _item_id(self, answer: Answer) -> str:
        return f"{'fc' if answer.tool else 'msg'}_{self._identity}"

    def _item(self, answer: Answer, status: str, text: str) -> dict[str, object]:
        item: dict[str, object] = {"id": self._item_id(answer), "status": status}
        if answer.tool:
            call = {"type": "function_call", "call_id": f"call_{self._identity}", "name": answer.tool}
            return item | call | {"arguments": text}
        return item | {"type": "message", "role": "assistant", "content": [_text_part(text)]}

    def _response(self, answer: Answer, status: str, output: list[dict[str, object]]) -> dict[str, object]:
        counts = {
            "input_tokens": answer.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": len(answer.pieces),
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.prompt_tokens + len(answer.pieces),
        }
        return {
            "id": f"resp_{self._identity}", "object": "response", "created_at": self._created, "status": status,
            "model": self._model, "output": output, "error": None, "incomplete_details": None, "instructions": None,
            "metadata": {}, "parallel_tool_calls": False, "temperature": 1.0, "top_p": 1.0, "tool_choice": "auto",
            "tools": [], "usage": counts if status == "completed" else None,
        }  # fmt: skip


def _text_part(text: str) -> dict[str, object]:
    return {"type": "output_text", "text": text, "annotations": []}


def _data(event: dict[str, object]) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(event)
