"""Reads out of an engine's answers how many requests it can run at the same time."""

from __future__ import annotations

from collections.abc import Mapping


def running_slots(health: Mapping[str, object]) -> int | None:
    """The engine's parallelism in its parsed answers by path, or None when none of them tells.

    llama.cpp lists its slots at ``/slots`` and counts them as ``total_slots`` at ``/props``; the simulated engine and
    servers that imitate it have ``slots`` beside ``running``.
    """
    for answer in health.values():
        if isinstance(answer, list) and answer and all(isinstance(slot, dict) and "id" in slot for slot in answer):
            return len(answer)
        if isinstance(answer, dict):
            for key in ("total_slots", "slots"):
                count = answer.get(key)
                if isinstance(count, int) and not isinstance(count, bool):
                    return count
    return None


def mismatch(health: Mapping[str, object], slots: int, remedy: str) -> str:
    """Why the running engine's parallelism is not `slots`, or empty when it is, or when the engine does not say."""
    found = running_slots(health)
    if found is None or found == slots:
        return ""
    return f"the engine runs {found} requests at a time, the model's slots say {slots}; {remedy}"
