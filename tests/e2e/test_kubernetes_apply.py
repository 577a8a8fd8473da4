"""relume apply, scale and delete on Kubernetes: the object on the API server is written, and says what is declared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deploy.kubernetes.api import ApiError
from deploy.kubernetes.resources import GPU_POOLS
from tests.support.kube_plane import ControlPlane
from tests.support.kube_world import World, pod_model, world
from tests.support.specs import put, smallest, smallest_pool

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]


async def ask(here: World, verb: str, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
    """The admin API's answer."""
    url = f"{here.relume.endpoints['admin']}/v1alpha1/{path}"
    async with here.session.request(verb, url, **body) as answer:
        return answer.status, await answer.json()


async def apply(here: World, text: str, **query: str) -> tuple[int, dict[str, Any]]:
    """What `relume apply` asks."""
    headers = {"Content-Type": "application/yaml"}
    return await ask(here, "POST", "apply", data=text.encode(), headers=headers, params=query)


async def test_what_is_applied_scaled_and_deleted_is_an_object(plane: ControlPlane, tmp_path: Path) -> None:
    """A dry run writes nothing; a model is created once, then unchanged; a number is `spec.replicas` with its end, goes
    when it is taken away; another field manager's field is not taken over; deleted is gone."""
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        await here.known_ready()
        assert (await apply(here, pod_model(), dryRun="true"))[1]["items"][0]["action"] == "created"
        with pytest.raises(ApiError):
            await here.model()
        status, said = await apply(here, pod_model(maxReplicas=3))
        assert (status, said["items"][0]["action"]) == (200, "created"), said
        found = await here.model()
        assert found["spec"]["scaling"]["maxReplicas"] == 3
        assert {one["manager"] for one in found["metadata"]["managedFields"] if "subresource" not in one} == {"relume"}
        await here.state("Zero")  # whoever follows objects has it, and tells of it
        status, said = await apply(here, pod_model(maxReplicas=3))
        assert (status, said["items"][0]["action"]) == (200, "unchanged"), said

        status, said = await ask(here, "PUT", "models/echo/scale", json={"replicas": 1, "for": "1h"})
        assert (status, said["status"]["override"]["replicas"]) == (200, 1), said
        found = await here.model()
        assert found["spec"]["replicas"] == 1
        assert "relume.dev/replicas-until" in found["metadata"]["annotations"]
        await here.state("Ready")
        status, said = await ask(here, "DELETE", "models/echo/scale")
        assert (status, said["status"]["override"]) == (200, None)
        assert "replicas" not in (await here.model())["spec"]

        await here.apply(pod_model("theirs", maxReplicas=2))
        await here.state("Zero", "theirs")
        status, said = await apply(here, pod_model("theirs", maxReplicas=4))
        assert (status, said["type"]) == (409, "urn:relume:problem:managed-elsewhere"), said
        assert "tests" in said["detail"], said
        assert "maxReplicas" in said["detail"], said

        assert (await ask(here, "DELETE", "models/echo"))[0] == 200
        with pytest.raises(ApiError):
            await here.model()
        assert (await ask(here, "DELETE", "models/echo"))[0] == 404


async def test_a_number_runs_out_and_leaves_the_object(plane: ControlPlane, tmp_path: Path) -> None:
    """So that the next one that a person writes there counts."""
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        await here.apply(pod_model())
        await here.state("Zero")
        assert (await ask(here, "PUT", "models/echo/scale", json={"replicas": 1, "for": "2s"}))[0] == 200

        async def gone() -> bool:
            found = await here.model()
            return "replicas" not in found["spec"] and "relume.dev/replicas-until" not in found["metadata"].get(
                "annotations", {}
            )

        await here.until("the number is gone", gone)
        assert (await here.status())["override"] is None


async def test_settings_of_the_pool_are_an_object(plane: ControlPlane, tmp_path: Path) -> None:
    """Applied with kubectl they are in force, in the admin port's words too, and the object says so; changed by
    `relume apply` it is the object that changes; what is wrong is told on it and changes nothing; gone, the defaults
    hold."""
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        await here.known_ready()
        path = GPU_POOLS.path(here.namespace, "default")

        async def said(state: str, revision: int) -> bool:
            status = (await here.api.get(path)).get("status", {})
            return (status.get("state"), status.get("revision")) == (state, revision)

        async def budget() -> int | None:
            status, told = await ask(here, "GET", "pools/default")
            return told["spec"]["reclaim"]["budgetPerHour"] if status == 200 else None

        hand = {"fieldManager": "kubectl"}
        await here.api.apply(path, put(smallest_pool(), "spec.reclaim.budgetPerHour", 7), hand)
        await here.until("it is in force", lambda: said("InForce", 1))
        assert await budget() == 7
        text = json.dumps(put(smallest_pool(), "spec.settling.first", "9s"))
        status, told = await apply(here, text)
        assert (status, told["items"][0]["action"]) == (200, "configured"), told
        await here.until("it is in force", lambda: said("InForce", 2))
        assert (await here.api.get(path))["spec"]["settling"]["first"] == "9s"
        assert await budget() == 7  # the other manager's field
        await here.api.apply(path, put(smallest_pool(), "spec.cardUnits", {" ": 1.0}), hand)
        await here.until("it is refused", lambda: said("Refused", 2))
        assert await budget() == 7
        assert (await ask(here, "DELETE", "pools/default"))[0] == 200
        with pytest.raises(ApiError):
            await here.api.get(path)
        assert await budget() is None


async def test_what_does_nothing_on_kubernetes_is_refused(plane: ControlPlane, tmp_path: Path) -> None:
    """A replica that should sleep: `relume apply` is refused and writes nothing, and an object's condition says why."""
    sleeper = put(put(smallest(), "spec.coldStart", {"sleep": {"level": 1}}), "spec.pod", {"image": "a"})
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        await here.known_ready()
        for query in ({"dryRun": "true"}, {}):
            status, said = await apply(here, json.dumps(sleeper), **query)
            assert (status, said["problems"][0]["path"]) == (422, "spec.coldStart.sleep"), said
        with pytest.raises(ApiError):
            await here.model()
        await here.apply(json.dumps(sleeper))
        status = await here.state("Failed")
        (accepted,) = [one for one in status["conditions"] if one["type"] == "Accepted"]
        assert accepted["status"] == "False"
        for part in ("spec.coldStart.sleep", "level", "no replica sleeps", "leave coldStart.sleep out"):
            assert part in accepted["message"]
