"""What an annotated object is enrolled as."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.kubernetes.annotated import Wrong, document
from deploy.kubernetes.resources import DEPLOYMENTS, STATEFUL_SETS, Resource
from deploy.spec.check import check_as
from deploy.spec.model import Model


def item(replicas: Any = 3, **annotations: str) -> dict[str, Any]:
    """A Deployment of two containers; annotations by their last part."""
    return {
        "metadata": {"name": "vllm", "uid": "u1", "annotations": {
            "relume.dev/model": "llama", "other": "x",
            **{f"relume.dev/{name.replace('_', '-')}": text for name, text in annotations.items()}}},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [
            {"resources": {"limits": {"nvidia.com/gpu": "2", "memory": "8Gi", "cpu": "4"}, "requests": {"cpu": "1"}}},
            {"resources": {"requests": {"cpu": "500m"}}}]}}},
    }  # fmt: skip


def made(found: dict[str, Any], resource: Resource = DEPLOYMENTS) -> Model:
    """The model, which must be one that can be declared."""
    return check_as(Model, document(resource, found))


def test_the_object_says_what_a_replica_takes() -> None:
    """Its containers' sums; its own number is the most, and it may go to zero."""
    model = made(item(), STATEFUL_SETS)
    spec = model.spec
    assert (model.metadata.name, model.metadata.annotations) == ("llama", {"relume.dev/enrolled": "u1"})
    assert (spec.resources.gpus, spec.resources.cpu, spec.resources.memory) == (2, 1.5, 8 << 30)
    assert (spec.scaling.min_replicas, spec.scaling.max_replicas) == (0, 3)
    target = spec.scale_target_ref
    assert target is not None
    assert (target.api_version, target.kind, target.name) == ("apps/v1", "StatefulSet", "vllm")
    assert made(item(replicas=0)).spec.scaling.max_replicas == 1


def test_annotations_say_the_rest() -> None:
    """Numbers one by one; anything else of a Model's spec as YAML, beside what was said."""
    told = item(
        slots="32", min_replicas="1", max_replicas="8", port="9000", keep_alive="10m",
        spec="aliases: [l]\nscaling: {target: 16}\n"
             "engine: {type: command, options: {command: [x, '{port}'], cancels: always}}",
    )  # fmt: skip
    spec = made(told).spec
    assert (spec.slots, spec.scaling.min_replicas, spec.scaling.max_replicas, spec.scaling.target) == (32, 1, 8, 16)
    assert (spec.aliases, spec.scaling.keep_alive) == (("l",), 600)
    assert spec.scale_target_ref is not None
    assert spec.scale_target_ref.port == 9000
    assert spec.engine.options["cancels"] == "always"


@pytest.mark.parametrize(("name", "text", "words"), [
    ("slots", "many", "whole number"), ("spec", "[1]", "no mapping"), ("spec", "a: [", "no YAML"),
    ("spec", "pod: {image: a}", "leave it out"),
])  # fmt: skip
def test_what_cannot_be_read_is_told(name: str, text: str, words: str) -> None:
    """With what to write instead."""
    with pytest.raises(Wrong, match=words):
        document(DEPLOYMENTS, item(**{name: text}))


def test_a_kind_without_a_pod_template_takes_what_is_said() -> None:
    """A LeaderWorkerSet has two."""
    kind = Resource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet")
    found = item(spec="resources: {gpus: 8}")
    del found["spec"]["template"]
    spec = made(found, kind).spec
    assert spec.resources.gpus == 8
    assert spec.scale_target_ref is not None
    assert spec.scale_target_ref.api_version == "leaderworkerset.x-k8s.io/v1"
