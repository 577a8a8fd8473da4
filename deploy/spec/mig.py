"""The rule about MIG profiles that models and training jobs share: the name is one that some card has."""

from __future__ import annotations

from pydantic_core import InitErrorDetails

from deploy.spec.document import broken_rule
from preemption.core.gpus.mig_names import families_with, known_profiles, nearest_profile
from preemption.spec import ResourcesSpec


def mig_rules(resources: ResourcesSpec) -> list[InitErrorDetails]:
    """No known card has a profile of this name: nothing could ever be placed."""
    said = resources.mig_profile
    if said is None or said in known_profiles():
        return []
    near = nearest_profile(said)
    cards = ", ".join(families_with(near))
    remedy = f"did you mean {near}{f' ({cards})' if cards else ''}? nvidia-smi mig -lgip lists a card's own"
    return [broken_rule(("spec", "resources", "migProfile"), said, "no known card has such a MIG profile", remedy)]
