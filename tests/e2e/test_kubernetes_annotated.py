"""A Deployment and a StatefulSet that one annotation enrols, without any Model object."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.kubernetes.resources import DEPLOYMENTS, EVENTS, MODELS, PODS, STATEFUL_SETS
from tests.support.kube_plane import ControlPlane
from tests.support.kube_stories import annotated, burst
from tests.support.kube_world import World, pod_model, world

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]


async def told(here: World, kind: str) -> list[tuple[str, str]]:
    """Reasons and notes of the Events on the object."""
    found = (await here.api.get(EVENTS.path(here.namespace)))["items"]
    return [(one["reason"], one["note"]) for one in found if one["regarding"]["kind"] == kind and "relume" in str(
        one.get("reportingController"))]  # fmt: skip


async def serving(here: World, count: int) -> dict[str, str] | None:
    """The uids of the pods, by name, once so many replicas serve and no other pod is there."""
    pods = {one["metadata"]["name"]: str(one["metadata"]["uid"]) for one in await here.pods()}
    status = await here.status("mistral")
    return pods if len(pods) == count == status.get("readyReplicas") else None


async def test_an_annotation_enrols(plane: ControlPlane, tmp_path: Path) -> None:
    """A StatefulSet's pod that somebody deletes is made good, and no other one goes. A burst grows it, without a floor
    it goes back to zero; without the annotation it is let go."""
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        await annotated(here, STATEFUL_SETS, **{"relume.dev/min-replicas": "2"})
        path = STATEFUL_SETS.path(here.namespace, "mistral-7b")
        before = await here.until("two serve", lambda: serving(here, 2))
        await here.api.delete(PODS.path(here.namespace, "mistral-7b-0"))

        async def made_good() -> dict[str, str] | None:
            pods = await serving(here, 2)
            return pods if pods and pods["mistral-7b-0"] != before["mistral-7b-0"] else None

        after = await here.until("the pod is made good", made_good, 50.0)  # less than a start may take that hangs
        assert after["mistral-7b-1"] == before["mistral-7b-1"]
        await here.api.merge(path, {"metadata": {"annotations": {"relume.dev/min-replicas": None}}})
        assert await burst(here, "mistral") >= 2

        async def zero() -> bool:
            return bool((await here.api.get(path))["spec"].get("replicas") == 0 and not await here.pods())

        await here.until("it is at zero", zero)
        assert ("Enrolled", "relume scales it as model mistral") in await told(here, "StatefulSet")
        await annotated(here, STATEFUL_SETS, "mistral", **{"relume.dev/model": None})

        async def let_go() -> bool:
            return await here.status("mistral") == {}

        await here.until("it is declared no more", let_go)
        assert (await here.api.get(path))["spec"]["replicas"] == 0


async def test_what_is_wrong_is_told_on_the_object(plane: ControlPlane, tmp_path: Path) -> None:
    """A value that cannot be, and a Model object of the name, which goes first; when that is gone it is enrolled."""
    async with world(plane, tmp_path) as here:
        await here.relume.start()
        await annotated(here, DEPLOYMENTS, **{"relume.dev/slots": "none"})

        async def refused() -> bool:
            return any(reason == "NotEnrolled" and "whole number" in note
                       for reason, note in await told(here, "Deployment"))  # fmt: skip

        await here.until("the wrong number is told", refused)
        await here.apply(pod_model("mistral"))
        await here.state("Zero", "mistral")
        await annotated(here, DEPLOYMENTS)

        async def second() -> bool:
            return any(reason == "NotEnrolled" and "Model object named mistral" in note
                       for reason, note in await told(here, "Deployment"))  # fmt: skip

        await here.until("the Model object is told", second)
        await here.api.delete(MODELS.path(here.namespace, "mistral"))

        async def enrolled() -> bool:
            return any(reason == "Enrolled" for reason, _ in await told(here, "Deployment"))

        await here.until("it is enrolled", enrolled)
        await here.known("mistral")
        assert (await here.chat("mistral")).status == 200
