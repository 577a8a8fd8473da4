"""Settings of asynchronous inference in one process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from events.codec import MAX_EVENT_BYTES
from events.units import Bytes, Seconds
from runtime.core.inference.policy import InferencePolicy

GROUP: Final = "relume.inference"
"""The consumer group in which all gateways share the work; also the start of their transactional ids."""

SOURCE: Final = "relume/inference"
"""The source of all that is told of asynchronous requests, whichever gateway tells it: an outcome has one id."""

REQUEST_BYTES: Final = Bytes(MAX_EVENT_BYTES - 64 * 1024)
"""Largest body of a request: what is parked carries it, and some more, in one event."""

LETTER_BYTES: Final = Bytes(512 * 1024)
"""A dead letter repeats the request up to this size; of a larger one it says where it stands."""

ANSWER_BYTES: Final = Bytes(MAX_EVENT_BYTES - 64 * 1024)
"""Largest answer."""


@dataclass(frozen=True, slots=True)
class InferenceSettings:
    """Who this gateway is, and what it may."""

    gateway: str
    reply_topics: frozenset[str] = frozenset()
    """Topics that producers may name for a copy of their answer."""
    policy: InferencePolicy = field(default_factory=InferencePolicy)
    connect_timeout: Seconds = Seconds(5.0)
