"""Models' own policies in a process of their own: one that does not return, leaks or crashes takes nobody with it.

Python cannot end a thread, so a bound of time needs a process. There is one for all policies of an autoscaler; it is
asked one question at a time, and ended and started anew when it does not answer in time, has met its bound of memory or
has gone. Questions that stand behind a slow one wait for it; five failures in a row, and a policy is asked no more
(`autoscaler.deciding`), so the wait has an end too.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from pydantic import JsonValue

from autoscaler.asking import Question
from autoscaler.codec import policy_json, read_decision, snapshot_json
from autoscaler.core.model import Decision
from autoscaler.own import OwnPolicyFailed
from autoscaler.own_worker import LENGTH, MESSAGE_MOST
from events.types.replicas import MAX_REPLICAS
from events.units import Seconds

ANSWER_MOST: Final = Seconds(2.0)
"""A policy that is asked answers within so long; the work of a decision is a thousandth of it. Chosen."""

IMPORT_MOST: Final = Seconds(30.0)
"""The process, with the policy's module and what that imports, is there within so long. Chosen for large libraries."""

MEMORY_MOST: Final = 1 << 30
"""Bytes of data that all policies of a process may gather together. Chosen: ten times what pandas takes."""

GOES_WITHIN: Final = Seconds(5.0)
"""A process whose pipe has closed is on its way out; after so long it is killed."""

Answered = Callable[[Decision | OwnPolicyFailed], None]


class OwnProcess:
    """See the module. `ask` any time on the loop; `close` at the end."""

    def __init__(
        self, answer_most: Seconds = ANSWER_MOST, import_most: Seconds = IMPORT_MOST, memory_most: int = MEMORY_MOST
    ) -> None:
        self._answer_most, self._import_most, self._memory_most = answer_most, import_most, memory_most
        self._questions: asyncio.Queue[tuple[Question, Answered]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._imported: set[str] = set()
        self.started = 0
        """Processes that were started."""

    def ask(self, question: Question, answered: Answered) -> None:
        """Have it asked; `answered` is called on the loop, once. (Each model asks one at a time: that bounds them.)"""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="own-policies")
        self._questions.put_nowait((question, answered))

    async def close(self) -> None:
        """End the process; questions that stand get no answer."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._end()

    async def _run(self) -> None:
        while True:
            question, answered = await self._questions.get()
            try:
                answer: Decision | OwnPolicyFailed = await self._ask(question)
            except OwnPolicyFailed as error:
                answer = error
            answered(answer)

    async def _ask(self, question: Question) -> Decision:
        """The answer. Raises OwnPolicyFailed; a process that is not fit for the next question is ended.

        One that goes when it is asked may have been broken by the policy before: so another one is asked.
        """
        used = self._process is not None
        try:
            return await self._ask_once(question)
        except _Gone:
            if not used:
                raise
            return await self._ask_once(question)

    async def _ask_once(self, question: Question) -> Decision:
        path = question.path
        try:
            if self._process is None or path not in self._imported:
                async with asyncio.timeout(self._import_most):
                    await self._import(path)
            async with asyncio.timeout(self._answer_most):
                told = await self._exchange({
                    "path": path, "snapshot": snapshot_json(question.snapshot),
                    "policy": policy_json(question.policy), "now": float(question.now),
                })  # fmt: skip
        except TimeoutError as error:
            most = self._answer_most if path in self._imported else self._import_most
            await self._end()
            raise OwnPolicyFailed(f"{path} did not answer within {most:g} s; its process was ended") from error
        except (OSError, EOFError, ValueError) as error:
            status = await self._end(GOES_WITHIN)
            why = f"its process has ended with status {status}" if isinstance(error, EOFError | OSError) else str(error)
            raise _Gone(f"{path} did not answer: {why}") from error
        except asyncio.CancelledError:
            await self._end()
            raise
        return _read(path, told)

    async def _import(self, path: str) -> None:
        process = self._process
        if process is None:
            self.started += 1
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "autoscaler.own_worker", str(os.getpid()), str(self._memory_most),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        told = await self._exchange({"path": path})
        if "found" not in told:
            raise OwnPolicyFailed(str(told.get("error", f"{path} was not found")))
        self._imported.add(path)

    async def _exchange(self, question: dict[str, JsonValue]) -> dict[str, JsonValue]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise EOFError
        raw = json.dumps(question).encode()
        process.stdin.write(LENGTH.pack(len(raw)) + raw)
        await process.stdin.drain()
        (size,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
        if size > MESSAGE_MOST:
            raise ValueError(f"an answer of {size} bytes")
        told = json.loads(await process.stdout.readexactly(size))
        if not isinstance(told, dict):
            raise ValueError("an answer that is no mapping")  # noqa: TRY004 - not a caller's mistake
        return told

    async def _end(self, within: Seconds = Seconds(0.0)) -> int | None:
        """End the process unless it ends by itself within so long, and return its status."""
        process, self._process = self._process, None
        self._imported.clear()
        if process is None:
            return None
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                return await process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # it leads a session of its own: with all that policies have started
        with suppress(TimeoutError):  # what has left that session may hold its pipes
            async with asyncio.timeout(GOES_WITHIN):
                return await process.wait()
        return process.returncode


class _Gone(OwnPolicyFailed):
    """The process went, or said what nobody can read."""


def _read(path: str, told: dict[str, JsonValue]) -> Decision:
    """What it said, if it is a decision."""
    raw = told.get("decision")
    if not isinstance(raw, dict):
        raise OwnPolicyFailed(str(told.get("error", f"{path} answered nothing"))[:1000])
    try:
        decision = read_decision(raw)
    except ValueError as error:
        raise OwnPolicyFailed(f"{path} answered what is no decision: {error}"[:1000]) from error
    if not 0 <= decision.replicas <= MAX_REPLICAS:
        raise OwnPolicyFailed(f"{path} answered {decision.replicas}; it must be from 0 to {MAX_REPLICAS}")
    return decision
