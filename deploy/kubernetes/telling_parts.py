"""What a status's condition and an Event are made of. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

from deploy.kubernetes.resources import EVENTS, Json, Resource
from deploy.kubernetes.times import micro_time, time
from events.units import Instant

NOTE_MOST: Final = 1024
"""Characters of an Event's note (the API's own bound)."""
CONTROLLER: Final = "relume.dev/cluster"


@dataclass(frozen=True, slots=True)
class Turn:
    """Something that turned: a word for programs, a sentence for people, and what is done about it in a word."""

    reason: str
    note: str
    warns: bool
    action: str = "Scale"


def event_body(found: Json, resource: Resource, turn: Turn, identity: str, now: Instant) -> dict[str, Any]:
    """An Event about an object."""
    metadata = found["metadata"]
    word = hashlib.sha256(f"{metadata['uid']}{turn.reason}{now}".encode()).hexdigest()[:16]
    return {
        "apiVersion": EVENTS.api_version, "kind": EVENTS.kind,
        "metadata": {"name": f"{metadata['name']}.{word}", "namespace": metadata["namespace"]},
        "eventTime": micro_time(now), "type": "Warning" if turn.warns else "Normal", "reason": turn.reason or "Told",
        "action": turn.action, "note": turn.note[:NOTE_MOST], "reportingController": CONTROLLER,
        "reportingInstance": identity[:128],
        "regarding": {"apiVersion": resource.api_version, "kind": resource.kind, "name": metadata["name"],
                      "namespace": metadata["namespace"], "uid": metadata["uid"]},
    }  # fmt: skip


def condition(before: Json, wanted: tuple[str, str, str, str, int], now: Instant) -> dict[str, Any]:
    """A condition: type, status, reason, message, generation. `before` is the one that stood: its time stays as long as
    its status does."""
    kind, truth, reason, message, generation = wanted
    since = before.get("lastTransitionTime") if before.get("status") == truth else None
    return {"type": kind, "status": truth, "reason": reason, "message": message, "observedGeneration": generation,
            "lastTransitionTime": since or time(now)}  # fmt: skip
