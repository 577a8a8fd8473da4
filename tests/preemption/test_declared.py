"""What of a model's declaration concerns the allocator."""

from __future__ import annotations

import pytest

from events.types.models import ModelDeclared
from preemption.core.terms import ANYWHERE, Terms, Toleration
from preemption.declared import read_declaration


def read(**spec: object) -> Terms:
    return read_declaration(ModelDeclared(model="m", uid="u", revision=1, generation=1, spec=spec)).terms  # type: ignore[arg-type]  # tests name real fields


def test_nodes_that_a_pod_may_have_are_read() -> None:
    """Labels sorted, so that equal declarations are equal; what else a pod is made of is the business of others."""
    pod = {
        "image": "engine", "port": 9000, "nodeSelector": {"zone": "1", "pool": "a"},
        "tolerations": [{"key": "spot", "operator": "Exists"}, {"key": "x", "value": "y", "effect": "NoExecute"}],
    }  # fmt: skip
    assert read(pod=pod) == Terms(
        (("pool", "a"), ("zone", "1")),
        (Toleration(key="spot", operator="Exists"), Toleration(key="x", value="y", effect="NoExecute")),
    )


@pytest.mark.parametrize("spec", [{}, {"pod": None}, {"pod": {"image": "engine"}}])
def test_who_says_nothing_goes_anywhere(spec: dict[str, object]) -> None:
    """Every node without a taint."""
    assert read(**spec) == ANYWHERE


def test_what_cannot_be_read_is_named() -> None:
    """By its path."""
    with pytest.raises(ValueError, match=r"spec\.pod\.nodeSelector cannot be read"):
        read(pod={"nodeSelector": "a"})


@pytest.mark.parametrize(
    ("promised", "seconds"),
    [({}, None), ({"p50": "1s", "p99": "30s"}, 30.0), ({"p50": "2s"}, 2.0), ({"p50": "1s", "p95": "4s"}, 4.0)],
)
def test_the_promise_for_most_requests_counts(promised: dict[str, object], seconds: float | None) -> None:
    """Of the first token: of the highest share that anything is promised for. Other promises are not read here."""
    spec: dict[str, object] = {"slo": {"timeToFirstToken": promised, "latency": {"p99": "90s"}, "availability": 99}}
    event = ModelDeclared(model="m", uid="u", revision=1, generation=1, spec=spec)  # type: ignore[arg-type]  # JSON, all of it
    assert read_declaration(event).promise == seconds
