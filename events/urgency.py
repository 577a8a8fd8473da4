"""Which news may not stand behind other news: what wakes a model."""

from __future__ import annotations

from events.types.requests import ActivationRequested, RequestWindow


def is_urgent(data: object) -> bool:
    """Whether somebody waits for what this leads to: an edge, or an activation that was asked for."""
    return data.edge if isinstance(data, RequestWindow) else isinstance(data, ActivationRequested)


def is_window(data: object) -> bool:
    """Whether it may be merged into the next of its kind by whoever tells it."""
    return isinstance(data, RequestWindow)
