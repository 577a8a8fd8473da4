"""The process in which models' own policies run: `python -m autoscaler.own_worker PARENT BYTES`.

Reads questions from its standard input and writes answers to its standard output, each a JSON document after its length
in four bytes. What policies print goes to standard error. It ends with its parent, also while a policy does not return,
and what policies have started ends with it. Of what they fork none hears a question or gives an answer.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import struct
import sys
import threading
import time
from typing import BinaryIO, Final

from autoscaler.codec import decision_json, read_policy, read_snapshot
from autoscaler.own import OwnPolicyFailed, own_policy
from events.units import Instant

LENGTH: Final = struct.Struct(">I")
MESSAGE_MOST: Final = 4 << 20
"""Bytes of a question or an answer."""

LOOK_EVERY: Final = 1.0
"""Seconds between two looks whether the parent is still there."""

OUT_OF_MEMORY: Final = 3
"""The exit status after a policy has met the bound of its memory: nothing is left of what it had gathered."""


def main(parent: int, memory_most: int) -> int:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what policies print must not look like an answer
    os.register_at_fork(after_in_child=lambda: _apart(answers.fileno()))
    _bound_memory(memory_most)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    while (raw := read_message(sys.stdin.buffer)) is not None:
        try:
            answer = _answer(json.loads(raw))
        except MemoryError:
            _write(answers, {"error": f"a policy needs more memory than the {memory_most >> 20} MiB that all may have"})
            return OUT_OF_MEMORY
        _write(answers, answer)
    return 0


def read_message(file: BinaryIO) -> bytes | None:
    """The next message; None at the end. ValueError when it is too long."""
    head = file.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(head)
    if size > MESSAGE_MOST:
        raise ValueError(f"a message of {size} bytes; at most {MESSAGE_MOST} are read")
    body = file.read(size)
    return body if len(body) == size else None


def _answer(question: dict[str, object]) -> dict[str, object]:
    path = str(question["path"])
    try:
        policy = own_policy(path)
        if "snapshot" not in question:
            return {"found": policy is not None}
        if policy is None:
            return {"error": f"{path} is no import path"}
        snapshot, resolved = question["snapshot"], question["policy"]
        assert isinstance(snapshot, dict)
        assert isinstance(resolved, dict)
        now = question["now"]
        assert isinstance(now, float)
        return {"decision": decision_json(policy(read_snapshot(snapshot), read_policy(resolved), Instant(now)))}
    except OwnPolicyFailed as error:
        if isinstance(error.__cause__, MemoryError):
            raise error.__cause__ from error
        return {"error": str(error)}
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - a Decision of a policy's own making may hold anything
        return {"error": f"{path} answered what cannot be told: {type(error).__name__}: {error}"[:1000]}


def _write(file: BinaryIO, answer: dict[str, object]) -> None:
    raw = json.dumps(answer).encode()
    file.write(LENGTH.pack(len(raw)) + raw)
    file.flush()


def _bound_memory(most: int) -> None:
    """What it may gather, beside shared libraries. (macOS takes the call and does not keep to it.)"""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _end_with(parent: int) -> None:
    """A policy that does not return must not outlive the parent: threads go on beside it."""
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY)
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _apart(answers: int) -> None:
    """In a process that a policy forked: the questions and answers of the first are none of its business."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, answers):
        os.dup2(nothing, number)
    os.close(nothing)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
