"""Imports every module of event types, so that `events.kinds.KINDS` is whole."""

from __future__ import annotations

from events.kinds import KINDS, Kind
from events.types import (
    accounts,
    caches,
    decisions,
    gateways,
    gpus,
    grants,
    inference,
    letters,
    metrics,
    models,
    phases,
    pools,
    reclaims,
    replicas,
    requests,
    training,
)

_MODULES = (
    accounts, caches, decisions, gateways, gpus, grants, inference, letters, metrics, models, phases, pools,
    reclaims, replicas, requests, training,
)  # fmt: skip

BY_NAME: dict[tuple[str, int], Kind] = {(kind.name, kind.version): kind for kind in KINDS.values()}
"""Every kind by (name without version, version)."""

NEWEST: dict[str, int] = {}
"""The newest version of each name."""

for _name, _version in BY_NAME:
    NEWEST[_name] = max(NEWEST.get(_name, 0), _version)
