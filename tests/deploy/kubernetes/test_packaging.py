"""What ships for an installation, without a cluster: manifests of the chart, that relume takes, and tight."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
from ruamel.yaml import YAML

from deploy.kubernetes import packaging, packaging_render
from deploy.kubernetes.crd import definitions
from deploy.kubernetes.packaging import FOLDER, PARTS, Wanted, definition_objects, documents, objects, rights
from deploy.kubernetes.packaging_apply import same_definition
from deploy.settings.settings import Settings, load_settings

FIRST: Final = Path(__file__).parent / "first"
CHART: Final = packaging_render.CHART
VARIANTS: Final = [pytest.param(FOLDER, id="one process"), pytest.param(PARTS, id="parts")]


def loaded(path: Path) -> Any:
    """A YAML document."""
    return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))


def deployments(folder: Path) -> list[dict[str, Any]]:
    """The Deployments of a folder of manifests."""
    return [one for one in documents(folder / "relume.yaml") if one["kind"] == "Deployment"]


def container(deployment: dict[str, Any]) -> dict[str, Any]:
    """Its one container."""
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_generated_files_are_up_to_date() -> None:
    """The manifests are of this chart, and the chart's definitions those of the code."""
    assert packaging_render.main(["--check"]) == 0


def test_an_edited_manifest_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a check that needs no Helm: another line, another chart, no file."""
    text = (FOLDER / "rbac.yaml").read_text(encoding="utf-8")
    files = ("relume.yaml", "agent.yaml", "monitor.yaml")
    for name, content in (*((name, text) for name in files), ("rbac.yaml", text.replace("patch", "deletecollection"))):
        (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.setattr(packaging_render, "VARIANTS", {tmp_path: ()})
    assert packaging_render.stale() == [tmp_path / "rbac.yaml"]
    monkeypatch.setattr(packaging_render, "chart_digest", lambda: "another")
    assert len(packaging_render.stale()) == 4
    (tmp_path / "relume.yaml").unlink()
    assert len(packaging_render.stale()) == 4


@pytest.mark.parametrize("folder", VARIANTS)
def test_relume_starts_with_the_environment_of_its_manifests(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every variable is a setting, every file is mounted, and together they break no rule; of agents too."""
    agents = [one for one in documents(folder / "agent.yaml") if one["kind"] == "DaemonSet"]
    for deployment in (*deployments(folder), *agents):
        told = container(deployment)
        volumes = {one["name"]: one for one in deployment["spec"]["template"]["spec"]["volumes"]}
        mounted = {
            item["path"] for source in volumes["secrets"]["projected"]["sources"] for item in source["secret"]["items"]
        }
        for name in list(_environment()):
            monkeypatch.delenv(name)
        for one in told["env"]:
            if not one["name"].startswith("RELUME_"):
                continue
            assert one["name"].removeprefix("RELUME_").lower() in Settings.model_fields, one["name"]
            value = str(one.get("value", "models"))
            value = value.replace("$(POD_IP)", "10.0.0.7").replace("$(POD_NAME)", deployment["metadata"]["name"])
            if value.startswith("/etc/relume/"):
                assert value.removeprefix("/etc/relume/") in mounted
                value = str(tmp_path / Path(value).name)
                Path(value).write_text("0123456789abcdef", encoding="utf-8")
            monkeypatch.setenv(one["name"], value)
        settings = load_settings({})
        assert settings.kube_namespace == ("models" if told["command"][1] in ("up", "cluster") else "default")


def _environment() -> Iterator[str]:
    import os  # noqa: PLC0415 - only this test looks at it

    yield from (name for name in os.environ if name.startswith("RELUME_"))


@pytest.mark.parametrize("folder", VARIANTS)
def test_pods_end_in_time_and_hear_of_no_service(folder: Path) -> None:
    """The grace has room for preStop and the drain bound; a Service called relume-admin sets no RELUME_ADMIN_PORT."""
    for deployment in deployments(folder):
        pod = deployment["spec"]["template"]["spec"]
        assert pod["enableServiceLinks"] is False
        env = {one["name"]: one.get("value", "") for one in container(deployment)["env"]}
        bound = int(env.get("RELUME_DRAIN_BOUND", "0s").removesuffix("s"))
        waits = int(
            container(deployment)
            .get("lifecycle", {})
            .get("preStop", {"exec": {"command": ["0"]}})["exec"]["command"][-1]
        )
        assert pod["terminationGracePeriodSeconds"] >= bound + waits + 10
        probes = {
            name: container(deployment)[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")
        }
        assert {probe["port"] for probe in probes.values()} == {"admin"}


def test_only_who_acts_on_the_api_server_has_an_account_that_can() -> None:
    """Gateways and autoscalers have no right, and no token; a cluster apart has the rights of the one process."""
    assert rights("gateway", "models") == rights("autoscaler", "models") == []
    assert rights("cluster", "models") == rights("up", "models")
    assert len(rights("up", "models")) > 15
    for folder in (FOLDER, PARTS):
        for deployment in deployments(folder):
            acts = container(deployment)["command"][1] in ("up", "cluster")
            assert deployment["spec"]["template"]["spec"]["automountServiceAccountToken"] is acts


def test_two_namespaces_share_nothing() -> None:
    """Not a name of what belongs to the whole cluster, not an account."""
    made = {name: objects(Wanted(name, "a/relume:1")) for name in ("first", "second")}
    shared = [one["metadata"]["name"] for one in made["first"] if not packaging.KINDS[one["kind"]].namespaced]
    assert shared == ["relume-first", "relume-first"]
    assert "second" not in json.dumps(made["first"])
    assert not re.search(r"\bmodels\b", json.dumps([one for one in made["first"] if "rules" not in one]))


def test_what_is_wanted_stands_in_the_objects() -> None:
    """The image and the brokers in every process, Prometheus where it is asked."""
    made = objects(Wanted("models", "a/relume:1", "b1:9092,b2:9092", "http://p:9090"))
    told = {one["metadata"]["name"]: container(dict(one)) for one in made if one["kind"] == "Deployment"}
    assert set(told) == {"relume-gateway", "relume-autoscaler", "relume-cluster"}
    assert {one["image"] for one in told.values()} == {"a/relume:1"}
    for name, one in told.items():
        env = {pair["name"]: pair.get("value") for pair in one["env"]}
        assert env["RELUME_EVENTS"] == "kafka://b1:9092,b2:9092"
        assert env.get("RELUME_PROMETHEUS") == ("http://p:9090" if name == "relume-autoscaler" else None)


def test_values_fit_their_schema_and_a_wrong_word_does_not() -> None:
    """The chart's own values; an unknown one, and one of a wrong kind, are refused."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = loaded(CHART / "values.yaml")
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(values, schema)
    assert set(schema["properties"]) == {*values, "global"}
    for path, value in (("gatway", {}), ("drainBoundSeconds", "30s"), ("listenHost", "127.0.0.1")):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**values, path: value}, schema)


def test_definitions_only_grow() -> None:
    """Every field of the first version is there, of its type, with its words, and none is demanded that was not."""
    ours = {one["metadata"]["name"]: one for one in definitions()}
    for path in sorted(FIRST.glob("*.yaml")):
        first = loaded(path)
        new = ours[first["metadata"]["name"]]
        for one, other in zip(first["spec"]["versions"], new["spec"]["versions"], strict=True):
            assert one["name"] == other["name"]
            _grows(one["schema"]["openAPIV3Schema"], other["schema"]["openAPIV3Schema"], path.name)


def _grows(first: dict[str, Any], new: dict[str, Any], where: str) -> None:
    assert first.get("type") == new.get("type"), where
    assert set(new.get("required", ())) <= set(first.get("required", ())) | set(_defaulted(new)), where
    assert set(first.get("enum", ())) <= set(new.get("enum", first.get("enum", ()))), where
    assert set(first.get("properties", {})) <= set(new.get("properties", {})), where
    for name, field in first.get("properties", {}).items():
        _grows(field, new["properties"][name], f"{where}.{name}")
    if isinstance(first.get("items"), dict):
        _grows(first["items"], new["items"], f"{where}[]")


def _defaulted(schema: dict[str, Any]) -> Iterator[str]:
    yield from (name for name, field in schema.get("properties", {}).items() if "default" in field)


def test_a_definition_is_told_from_another() -> None:
    """What the server adds makes no difference; a field less does."""
    ours = definition_objects("1")[0]
    there = json.loads(json.dumps(ours))
    there["spec"]["conversion"] = {"strategy": "None"}
    assert same_definition(there, ours)
    spec = there["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec.pop("slots")
    assert not same_definition(there, ours)
