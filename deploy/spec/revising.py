"""Whether what is declared anew is made of something else than before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pydantic import JsonValue

from deploy.spec.problem import SpecRefused

Spec = Mapping[str, JsonValue]


def revises(parts: Sequence[str], before: Spec, spec: Spec, rewritten: Callable[[], Spec]) -> bool:
    """Whether one of these parts is another one now. What an earlier release wrote lacks the fields that came since:
    they have their defaults (`rewritten`: it as this release writes it), and nothing is made anew for them."""
    if all(before.get(part) == spec.get(part) for part in parts):
        return False
    try:
        before = rewritten()
    except SpecRefused:  # of a later release: as it stands
        return True
    return any(before.get(part) != spec.get(part) for part in parts)
