"""What a declaration says for Kubernetes alone: kept on every machine, wrong words refused on every machine."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.spec.check import check_as
from deploy.spec.declare import declare
from deploy.spec.model import Model
from deploy.spec.problem import SpecRefused
from tests.support.specs import put, smallest


def test_it_is_kept_and_makes_a_revision() -> None:
    """The declaration has it as it was written, defaults filled in; another image is another revision."""
    first = declare(None, put(smallest(), "spec.pod", {"image": "a:1"}), "u")
    assert isinstance(first.spec["pod"], dict)
    assert (first.spec["pod"]["image"], first.spec["pod"]["port"]) == ("a:1", 8000)
    second = declare(first, put(smallest(), "spec.pod", {"image": "a:2"}), "u")
    assert (first.revision, second.revision) == (1, 2)
    assert "pod" not in declare(None, smallest(), "u").spec


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no image": ({"spec.pod": {"port": 1}}, "spec.pod.image"),
    "no source": ({"spec.pod": {"image": "a", "mounts": [{"path": "/w"}]}}, "a mount has one source"),
    "two sources": (
        {"spec.pod": {"image": "a", "mounts": [{"path": "/w", "claim": "c", "memory": "1Gi"}]}}, "has one source",
    ),
    "relative": ({"spec.pod": {"image": "a", "mounts": [{"path": "w", "claim": "c"}]}}, "spec.pod.mounts[0].path"),
    "port": ({"spec.pod": {"image": "a", "port": 70000}}, "spec.pod.port"),
    "name": ({"spec.scaleTargetRef": {"name": "A_b"}}, "spec.scaleTargetRef.name"),
    "both": ({"spec.pod": {"image": "a"}, "spec.scaleTargetRef": {"name": "b"}}, "keep one"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "told"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told(changes: dict[str, Any], told: str) -> None:
    """With its path, or the rule that it breaks."""
    document = smallest()
    for path, value in changes.items():
        document = put(document, path, value)
    with pytest.raises(SpecRefused) as caught:
        check_as(Model, document)
    assert told in str(caught.value)
