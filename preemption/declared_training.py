"""A training job's declaration in plain numbers: read from the spec as it travels in the event."""

from __future__ import annotations

import json
from typing import Final

from pydantic import ValidationError

from events.types.training import TrainingDeclared
from preemption.core.training import TrainingPolicy
from preemption.training_spec import TrainingSpec

ANOTHERS: Final = frozenset({"pod"})
"""Parts of the spec that are another package's: how members look on Kubernetes, which changes nothing that is here."""


def read_training(event: TrainingDeclared) -> TrainingPolicy:
    """What the declaration comes to. ValueError names the field that cannot be read: another release wrote it.

    A field that this release does not know is such a field. It may forbid what we would do, such as to interrupt the
    job, so the job is left as it is until somebody can read it.
    """
    try:
        ours = {name: value for name, value in event.spec.items() if name not in ANOTHERS}
        spec = TrainingSpec.model_validate_json(json.dumps(ours))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in ("spec", *first["loc"]))
        raise ValueError(f"training job {event.job}: {where} cannot be read: {first['msg']}") from None
    return spec.resolve(event.job)
