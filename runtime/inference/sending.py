"""Sending one asynchronous request to the replica that it has a lease of. Bounded in time and in bytes."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import aiohttp
import orjson

from events.clock import Clock
from events.types.inference import FailureReason
from events.units import Seconds
from runtime.core.inference.endings import Answered, Dead
from runtime.core.inference.errand import Arrival
from runtime.core.policy import Timeouts
from runtime.inference.settings import ANSWER_BYTES
from runtime.ports import Ending, Lease, Outcome

_PIECE: Final = 64 * 1024
_TRANSIENT: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which another attempt may fare better; OpenAI's clients try again after the same (and all 5xx)."""

Tell = Callable[[int, list[str]], Awaitable[None]]
"""Told parts of a streamed answer, with the index of the first of them."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of it. `result` Dead with `again`: another attempt may be made, which counts as one if `tried`."""

    result: Answered | Dead
    outcome: Outcome
    again: bool = False
    tried: bool = True


class Sender:
    """A pool of connections to replicas. Used on the event loop."""

    def __init__(self, clock: Clock, connect_timeout: Seconds) -> None:
        self._clock = clock
        self._connect_timeout = connect_timeout
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, arrival: Arrival, lease: Lease, timeouts: Timeouts, tell: Tell | None) -> Reply:
        """Send it and read the answer whole. `tell` gets the parts of an event stream as they come."""
        body = orjson.dumps(arrival.requested.body)
        began = self._clock.now()
        left = min(float(timeouts.total), arrival.deadline - began)
        try:
            async with asyncio.timeout(max(0.0, left)):
                return await self._exchange(arrival, lease, (body, timeouts), tell)
        except (aiohttp.ClientConnectorError, aiohttp.ServerDisconnectedError) as error:
            refused = isinstance(error, aiohttp.ClientConnectorError)
            ending = Ending.UNREACHABLE
            return self._broken(error, Outcome(ending=ending, engine_done=refused), tried=not refused)
        except (TimeoutError, aiohttp.ServerTimeoutError):
            why = Dead(FailureReason.ATTEMPTS, f"the replica did not answer within {left:.0f} s")
            return Reply(why, Outcome(ending=Ending.TIMED_OUT, engine_done=False), again=True)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return self._broken(error, Outcome(ending=Ending.BROKEN), tried=True)

    def _broken(self, error: Exception, outcome: Outcome, *, tried: bool) -> Reply:
        why = Dead(FailureReason.ATTEMPTS, f"the replica broke off: {type(error).__name__}: {error}"[:500])
        return Reply(why, outcome, again=True, tried=tried)

    async def _exchange(
        self, arrival: Arrival, lease: Lease, what: tuple[bytes, Timeouts], tell: Tell | None
    ) -> Reply:  # fmt: skip
        body, timeouts = what
        url = f"http://{lease.host}:{lease.port}{arrival.requested.path}"
        headers = {"Content-Type": "application/json", "X-Request-Id": lease.request}
        limits = aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout, sock_read=timeouts.first_byte)
        async with self._opened().post(url, data=body, headers=headers, timeout=limits) as answer:
            first_at = self._clock.now()
            streamed = tell is not None and answer.content_type == "text/event-stream"
            raw, chunks = await self._read(answer, tell if streamed else None)
        value = _value(raw)
        outcome = Outcome(
            ending=Ending.FINISHED, status=answer.status, first_byte_at=first_at, bytes_in=len(body),
            bytes_out=len(raw), tokens_in=_tokens(value, "prompt_tokens"),
            tokens_out=_tokens(value, "completion_tokens"),
        )  # fmt: skip
        if len(raw) > ANSWER_BYTES:
            why = f"the answer has more than {ANSWER_BYTES} bytes"
            return Reply(Dead(FailureReason.ANSWER_TOO_LARGE, why, answer.status), outcome)
        if answer.status in _TRANSIENT:
            said = raw[:300].decode(errors="replace")
            why = f"the replica answered {answer.status}: {said}"
            return Reply(Dead(FailureReason.ATTEMPTS, why, answer.status), outcome, again=True)
        return Reply(Answered(answer.status, value, len(raw), chunks), outcome)

    async def _read(self, answer: aiohttp.ClientResponse, tell: Tell | None) -> tuple[bytes, int]:
        """The answer up to a little more than the largest, and how many parts were told."""
        raw = bytearray()
        told, rest, decoder = 0, "", codecs.getincrementaldecoder("utf-8")("replace")
        async for piece in answer.content.iter_chunked(_PIECE):
            raw += piece
            if len(raw) > ANSWER_BYTES:
                answer.close()
                break
            if tell is None:
                continue
            *lines, rest = (rest + decoder.decode(piece)).split("\n")
            parts = [line[5:].strip() for line in lines if line.startswith("data:")]
            if parts:
                await tell(told, parts)
                told += len(parts)
        return bytes(raw), told

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=4.0)  # engines close after 5 s
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False, auto_decompress=True)
        return self._session


def _value(raw: bytes) -> object:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return raw.decode(errors="replace")


def _tokens(found: object, name: str) -> int:
    """What the answer says that it cost; 0 where it does not."""
    usage = found.get("usage") if isinstance(found, dict) else None
    count = usage.get(name) if isinstance(usage, dict) else None
    return count if isinstance(count, int) and count >= 0 else 0
