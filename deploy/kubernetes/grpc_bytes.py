"""One question over gRPC at a Unix socket, whose messages are bytes as they stand."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError, StreamTerminatedError

MOST_BYTES: Final = 16 << 20
"""Of one answer. Chosen: 110 pods with 8 devices each are 60 KB."""


class NoAnswer(Exception):
    """Nobody answers, or the answer is no; why."""


class _Bytes(CodecBase):
    """Leaves messages as they are."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:  # noqa: ARG002 - grpclib's shape
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> bytes:  # noqa: ARG002 - as above
        return data


async def ask(socket: Path, method: str, within: float) -> bytes:
    """The answer to an empty message, within so many seconds. Raises NoAnswer.

    Each question has a connection of its own, so that a server that begins anew, with a new socket, is asked like any.
    """
    channel = Channel(path=str(socket), codec=_Bytes())
    try:
        call: UnaryUnaryMethod[bytes, bytes] = UnaryUnaryMethod(channel, method, bytes, bytes)
        async with asyncio.timeout(within):
            answer = await call(b"")
    except GRPCError as error:
        raise NoAnswer(f"{error.status.name}: {error.message}") from error
    except (OSError, StreamTerminatedError) as error:
        raise NoAnswer(str(error) or type(error).__name__) from error
    finally:
        channel.close()
    if len(answer) > MOST_BYTES:
        raise NoAnswer(f"its answer has {len(answer)} bytes, and at most {MOST_BYTES} are read")
    return answer
