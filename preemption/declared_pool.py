"""A pool's declaration in plain numbers: read from the spec as it travels in the event."""

from __future__ import annotations

import json

from pydantic import ValidationError

from events.types.pools import PoolDeclared
from preemption.core.reclaim.pool_policy import DEFAULT, PoolPolicy
from preemption.pool_spec import PoolSpec


def read_pool(event: PoolDeclared) -> PoolPolicy:
    """What the declaration comes to; of one that is deleted the defaults. ValueError names the field that cannot be
    read: another release wrote it, and it may forbid what we would do, so the pool goes on by what it had."""
    if event.deleted:
        return DEFAULT
    try:
        return PoolSpec.model_validate_json(json.dumps(event.spec)).resolve()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in ("spec", *first["loc"]))
        raise ValueError(f"pool {event.pool}: {where} cannot be read: {first['msg']}") from None
