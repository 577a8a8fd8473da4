"""What a declaration may say on one machine and not on Kubernetes: refused, since it would do nothing. Pure."""

from __future__ import annotations

from deploy.spec.model import Model
from deploy.spec.problem import SpecProblem, SpecRefused


def check_here(model: Model) -> Model:
    """The model itself. Raises SpecRefused when fields of it do nothing on Kubernetes."""
    problems: list[SpecProblem] = []
    sleep, batching = model.spec.cold_start.sleep, model.spec.batching
    if sleep is not None:
        rule = "on Kubernetes no replica sleeps: a pod that is not wanted any more ends"
        written = sleep.model_dump(mode="json", by_alias=True)
        problems.append(SpecProblem("spec.coldStart.sleep", written, rule, "leave coldStart.sleep out"))
    if batching is not None:
        rule = (
            "on Kubernetes no front gathers requests: a pod runs the engine's image, which need not have relume in it"
        )
        remedy = "leave batching out; in an image that has relume the command may be python -m runtime.batching.front"
        written = batching.model_dump(mode="json", by_alias=True, exclude_none=True)
        problems.append(SpecProblem("spec.batching", written, rule, remedy))
    if problems:
        raise SpecRefused(problems)
    return model
