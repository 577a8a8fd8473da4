"""Weights at a remote address on Kubernetes: the node's agent, a DaemonSet, brings them before the pod is made."""

from __future__ import annotations

import asyncio
import fcntl
from pathlib import Path
from typing import Final

import pytest

from tests.support.flaky_origin import Origin, served
from tests.support.kafka_broker import Broker
from tests.support.kafka_logs import LEAKS
from tests.support.kube_agent import install_agent, model, uninstall_agent
from tests.support.kube_plane import ControlPlane
from tests.support.kube_world import arguments, world
from tests.support.parts import parts_on

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.needs("kubernetes")]

KAFKA: Final = [pytest.mark.needs("kafka"), *LEAKS]
SIZE = 48 << 20


async def test_a_pod_starts_on_weights_that_its_nodes_agent_brought(plane: ControlPlane, tmp_path: Path) -> None:
    """A request to a model at zero: its weights are fetched onto the node, seen as they come, before there is a pod;
    the pod has them read-only, they are held while it is there, and the next start finds them."""
    origin = Origin(bytes(SIZE))
    origin.rate = 5e6
    with served(origin):
        async with world(plane, tmp_path) as here:
            try:
                cache = await install_agent(here, tmp_path / "node")
                here.relume.reach((*arguments(plane, here.namespace), "--kube-weights-claim", "relume-weights"))
                await here.relume.start()
                await here.apply(model(origin.url))
                await here.known()
                asking = asyncio.create_task(here.chat())

                async def fetching() -> bool:
                    told = [one for state in await here.told("relume.replicas") for one in state["replicas"]]
                    half = [one for one in told if one["phase"] == "fetch" and one.get("weights")]
                    return any(0 < one["weights"]["done"] < SIZE for one in half)

                await here.until("the fetch is seen", fetching)
                assert [one for one in await here.pods() if "relume.dev/model" in one["metadata"]["labels"]] == []
                origin.rate = None
                assert (await asking).status == 200
                (pod,) = [one for one in await here.pods() if "relume.dev/model" in one["metadata"]["labels"]]
                mounts = pod["spec"]["containers"][0]["volumeMounts"]
                assert [one["mountPath"] for one in mounts] == ["/relume/weights", "/relume/adapters/de"]
                for mount in mounts:
                    assert mount["readOnly"]
                    assert (cache / mount["subPath"]).is_dir()
                assert len(list((cache / "holders").iterdir())) == 2
                await here.state("Zero")

                async def let_go() -> bool:
                    return not list((cache / "holders").iterdir())

                await here.until("nobody holds them", let_go)
                asked = origin.asked
                assert (await here.chat()).status == 200
                assert origin.asked == asked  # a hit asks nobody
            finally:
                await uninstall_agent(here)


class TestParts:
    """With relume's parts apart on a real Kafka."""

    pytestmark = KAFKA

    async def test_an_agent_on_kafka_tells_what_its_node_has_and_holds_it_through_its_own_end(
        self, plane: ControlPlane, broker: Broker, tmp_path: Path
    ) -> None:
        """The cluster process has the pod started on fetched weights; the agent's state names its node and the model;
        an agent that is killed and comes back holds the same, so that they cannot be evicted."""
        events = ("--events", f"kafka://{broker.address}", "--kafka-partitions", "2")
        origin = Origin(bytes(1 << 20))
        with served(origin):
            async with world(plane, tmp_path) as here, parts_on(tmp_path / "parts", events) as parts:
                try:
                    claim = ("--kube-weights-claim", "relume-weights")
                    gateway, autoscaler = parts.part("gateway"), parts.part("autoscaler")
                    cluster = parts.part("cluster", *arguments(plane, here.namespace), *claim)
                    await gateway.start()  # makes the topics
                    await asyncio.gather(autoscaler.start(), cluster.start())
                    cache = await install_agent(here, tmp_path / "node", broker.address)
                    await here.apply(model(origin.url, minReplicas=1))
                    await parts.until(gateway, lambda status: status["readyReplicas"] == 1, within=90)
                    (node,) = here.kubelet.nodes

                    async def told(in_use: bool = True) -> bool:
                        items = (await parts.ask(cluster, "/v1alpha1/caches"))["items"]
                        contents = [one for item in items if item["metadata"]["name"] == node
                                    for one in item["status"]["contents"]]  # fmt: skip
                        return any(one["models"] == ["echo"] and one["inUse"] is in_use for one in contents)

                    await here.until("the node's weights are told", told)
                    (agent,) = [one for one in here.kubelet.pods if one.startswith("relume-agent")]
                    here.kubelet.pod(agent).kill()

                    async def back() -> bool:
                        return here.kubelet.pod(agent).pid is not None

                    await here.until("the agent is back", back)
                    uses = list((cache / "uses").iterdir())

                    async def held() -> bool:
                        return all(held_by_another(use) for use in uses)

                    await here.until("it holds what it held", held)
                finally:
                    await uninstall_agent(here)


def held_by_another(use: Path) -> bool:
    """Whether some process has the lock of a use."""
    with use.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
