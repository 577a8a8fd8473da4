"""What a declaration may say on one machine and not on Kubernetes: refused, since it would do nothing. Pure."""

from __future__ import annotations

from deploy.spec.model import Model
from deploy.spec.problem import SpecProblem, SpecRefused


def check_here(model: Model) -> Model:
    """The model itself. Raises SpecRefused when a field of it does nothing on Kubernetes."""
    sleep = model.spec.cold_start.sleep
    if sleep is None:
        return model
    rule = "on Kubernetes no replica sleeps: a pod that is not wanted any more ends"
    written = sleep.model_dump(mode="json", by_alias=True)
    raise SpecRefused([SpecProblem("spec.coldStart.sleep", written, rule, "leave coldStart.sleep out")])
