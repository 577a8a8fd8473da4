"""The rule about MIG profiles that models and training jobs share: the name is one that some card has.

Names come with cards and drivers, so the table may lack a newer one. Then a card that is there decides: whoever takes
declarations in (`deploy.api.declaring`) knows which profiles the nodes report (`relume.cards`), and a document on its
own is checked against the table alone. What was declared once is read again whatever cards are there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from pydantic import ValidationInfo
from pydantic_core import InitErrorDetails

from deploy.spec.document import broken_rule
from events.types.replicas import CardsObserved
from preemption.core.gpus.mig_names import families_with, known_profiles, nearest_profile
from preemption.spec import ResourcesSpec

REPORTED: Final = "reported MIG profiles"
"""In the context of a validation: the profiles that cards report. Without it names that could be one are taken."""

_FORM: Final = re.compile(r"[1-9]g\.[1-9][0-9]{0,3}gb([+-][a-z.]{1,16})?")


def mig_rules(resources: ResourcesSpec, info: ValidationInfo) -> list[InitErrorDetails]:
    """No known card has a profile of this name: nothing could ever be placed."""
    said = resources.mig_profile
    reported: Collection[str] | None = (info.context or {}).get(REPORTED)
    if said is None or said in known_profiles() or (_FORM.fullmatch(said) and (reported is None or said in reported)):
        return []
    near = nearest_profile(said)
    cards = ", ".join(families_with(near))
    remedy = (f"did you mean {near}{f' ({cards})' if cards else ''}? nvidia-smi mig -lgip lists a card's own; "
              "one that relume does not know yet is taken where a node's card has it (relume gpus)")  # fmt: skip
    return [broken_rule(("spec", "resources", "migProfile"), said, "no known card has such a MIG profile", remedy)]


def reported_profiles(nodes: Iterable[CardsObserved]) -> frozenset[str]:
    """The profiles of the MIG instances that nodes have."""
    return frozenset(card.profile for node in nodes for card in node.cards if card.profile)
