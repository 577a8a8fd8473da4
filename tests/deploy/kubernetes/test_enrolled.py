"""An enrolled object: whose number it is, who gets which pod, and how it is let go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

from deploy.kubernetes.api import ApiUnavailable
from deploy.kubernetes.enrolled import Enrolment
from deploy.kubernetes.enrolling import Enrolments
from deploy.kubernetes.resources import Json
from deploy.kubernetes.settings import KubernetesSettings
from deploy.kubernetes.tools import Tools
from deploy.kubernetes.views import PodView
from deploy.spec.pod import ScaleTargetSpec
from events.clock import SystemClock, settle
from events.names import ModelName, ReplicaName
from events.units import Instant


class Scaled:
    """An API server with one Deployment, whose controller makes a pod for each of its number at once, unless told."""

    def __init__(self, replicas: int = 0) -> None:
        self.replicas = replicas
        self.pods: list[PodView] = []
        self.writes: list[int] = []
        self.annotated: dict[str, dict[str, str]] = {}
        self.loses_answer = False
        self.selector = "app=a"
        self.takes_the_last = False
        """As a StatefulSet does, whatever a pod's end would cost."""
        self.stateful = False
        """Likewise, and its pods say where they stand; it makes again what was deleted."""
        self.enrolment: Enrolment
        self._made = 0

    async def get(self, path: str) -> Json:
        """The kinds of the group, or the scale."""
        if path == "/apis/apps/v1":
            return {"resources": [{"name": "deployments", "kind": "Deployment"},
                                  {"name": "deployments/scale", "kind": "Scale"}]}  # fmt: skip
        return {"spec": {"replicas": self.replicas}, "status": {"selector": self.selector}}

    async def merge(self, path: str, body: Json) -> Json:
        """A new number, or annotations of a pod."""
        if "/pods/" in path:
            self.annotated.setdefault(path.rpartition("/")[2], {}).update(body["metadata"]["annotations"])
            return {}
        self.set(body["spec"]["replicas"])
        self.writes.append(self.replicas)
        if self.loses_answer:
            self.loses_answer = False
            raise ApiUnavailable("the connection broke")
        return {}

    def set(self, replicas: int) -> None:
        """The number is this from now on, whoever wrote it; its controller makes or ends pods."""
        self.replicas = replicas
        while len(self.pods) < replicas:
            self._made += 1
            held = {pod.ordinal for pod in self.pods}
            pod = PodView(name=f"pod-{self._made}", namespace="default", uid=str(self._made), labels={"app": "a"},
                          created_at=Instant(float(self._made)), node="n", phase="Running", running=True, ready=True,
                          ordinal=next(n for n in count() if n not in held) if self.stateful else None)  # fmt: skip
            self.pods.append(pod)
            self.enrolment.heard(pod, True)
        cheapest = sorted(self.pods, key=lambda pod: self.annotated.get(pod.name, {}).get(COST, "0") != "-1000")
        last = [pod for pod in self.pods if (pod.ordinal or 0) >= replicas] if self.stateful else self.pods[replicas:]
        in_order = self.takes_the_last or self.stateful
        for pod in last if in_order else cheapest[: len(self.pods) - replicas]:
            self.pods.remove(pod)
            self.enrolment.heard(pod, False)

    async def told(self, replicas: int) -> None:
        """The watch of the object tells a number, perhaps late."""
        self.enrolment._object_changed("default/a", {"spec": {"replicas": replicas}})
        await _quiet()


COST = "controller.kubernetes.io/pod-deletion-cost"


async def _quiet() -> None:
    await settle(200)


@asynccontextmanager
async def enrolled(server: Scaled, others: list[int]) -> AsyncIterator[Enrolment]:
    """An enrolment that runs; `others`: numbers that another hand wrote."""

    async def hold() -> None:
        """The Lease is ours."""

    tools = SimpleNamespace(
        api=server, pods=server.pods, lease=SimpleNamespace(hold=hold), settings=KubernetesSettings(),
        clock=SystemClock(),
    )  # fmt: skip
    made = server.enrolment = Enrolment(cast("Tools", tools), ScaleTargetSpec(name="a"), others.append)
    running = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def sit(made: Enrolment, *names: str) -> list[PodView]:
    """Replicas that are wanted, at the same moment; their pods."""
    return list(await asyncio.wait_for(asyncio.gather(*(made.sit(ReplicaName(name)) for name in names)), 5))


async def test_its_pods_are_known_before_a_replica_is_wanted() -> None:
    """The number stays, also one that another hand writes; a replica gets the pod on the node that it was granted."""
    server, others = Scaled(), cast("list[int]", [])
    async with enrolled(server, others) as made:
        server.set(3)
        server.pods[:] = [replace(pod, node=f"n{index}") for index, pod in enumerate(server.pods)]
        await server.told(3)
        assert [(pod.node, awaited) for pod, awaited in made.idle] == [("n0", False), ("n1", False), ("n2", False)]
        server.set(2)
        await server.told(2)
        assert (server.writes, others) == ([], [])
        made.reserve(ReplicaName("a"), "n1")
        assert [awaited for _, awaited in made.idle] == [True, False]
        (pod,) = await sit(made, "a")
        assert pod.node == "n1"
        await _quiet()
        assert server.writes == [1]


async def test_replicas_get_a_pod_each_and_give_it_back() -> None:
    """The number follows what is wanted; who leaves is told to be the cheapest, and its pod is the one that goes."""
    server, others = Scaled(), cast("list[int]", [])
    async with enrolled(server, others) as made:
        pods = dict(zip("ab", await sit(made, "a", "b"), strict=True))
        assert len({pod.uid for pod in pods.values()}) == 2
        assert server.annotated[pods["a"].name]["relume.dev/replica"] == "a"
        await asyncio.wait_for(made.leave(ReplicaName("a")), 5)
        assert server.annotated[pods["a"].name][COST] == "-1000"
        assert [pod.name for pod in server.pods] == [pods["b"].name]
        assert (server.replicas, others) == (1, [])


async def test_a_watch_that_is_late_is_no_other_hand() -> None:
    """The object's past numbers, told after our own write, override nothing and are not fought."""
    server, others = Scaled(), cast("list[int]", [])
    async with enrolled(server, others) as made:
        await sit(made, "a", "b", "c")
        writes = list(server.writes)
        for late in (0, 1, 3, 2):
            await server.told(late)
        assert (server.replicas, server.writes, others) == (3, writes, [])


async def test_another_hand_is_told_once_and_not_fought() -> None:
    """A number that somebody else wrote is handed on, and stays until what is wanted changes."""
    server, others = Scaled(), cast("list[int]", [])
    async with enrolled(server, others) as made:
        await sit(made, "a")
        server.set(3)
        await server.told(3)
        assert (server.replicas, others) == (3, [3])
        await sit(made, "b", "c")  # the override comes back as replicas that are wanted
        await server.told(3)
        assert (server.replicas, server.writes, others) == (3, [1], [3])


async def test_a_write_whose_answer_was_lost_is_our_own() -> None:
    """The number that is there afterwards was written by us or by others: nobody is blamed for it."""
    server, others = Scaled(), cast("list[int]", [])
    server.loses_answer = True
    async with enrolled(server, others) as made:
        await sit(made, "a")
        await server.told(1)
        assert (server.replicas, others) == (1, [])


async def test_who_is_let_go_keeps_its_number() -> None:
    """Replicas of an object that is enrolled no longer end at once, and nothing is written."""
    server, others = Scaled(), cast("list[int]", [])
    async with enrolled(server, others) as made:
        await sit(made, "a", "b")
        made.let_go()
        writes = list(server.writes)
        await asyncio.wait_for(asyncio.gather(*(made.leave(ReplicaName(name)) for name in "ab")), 1)
        assert (server.replicas, server.writes) == (2, writes)


async def test_a_pod_that_served_a_replica_is_given_to_it_again() -> None:
    """After a restart a replica goes on with its own pod, and others get theirs."""
    server: Any = Scaled()
    others: list[int] = []
    async with enrolled(server, others) as made:
        first, second = await sit(made, "a", "b")
    again = Scaled(2)  # at its start with both, since both are wanted
    again.pods = [
        PodView(name=pod.name, namespace="default", uid=pod.uid, labels={"app": "a"},
                annotations={"relume.dev/replica": name}) for pod, name in ((first, "b"), (second, "a"))
    ]  # fmt: skip
    async with enrolled(again, others) as made:
        for name in "ab":
            made.reserve(ReplicaName(name))
        given = dict(zip("ab", await sit(made, "a", "b"), strict=True))
        assert (given["a"].name, given["b"].name) == (second.name, first.name)


async def test_a_pod_that_another_hand_ends_has_one_successor() -> None:
    """Its object makes another pod by itself, and the replica that succeeds it gets that: the number stays as it is. It
    rises when one more is wanted; the old one's end changes nothing."""
    server, others = Scaled(), cast("list[int]", [])
    async with enrolled(server, others) as made:
        (pod,) = await sit(made, "a")
        server.pods.remove(pod)
        made.heard(replace(pod, deleting=True), True)
        server.set(1)  # what its controller does
        await _quiet()
        assert server.writes == [1]
        made.reserve(ReplicaName("b"))
        (next_pod,) = await sit(made, "b")
        assert (next_pod.uid != pod.uid, server.writes) == (True, [1])
        await sit(made, "c")
        assert server.writes == [1, 2]
        made.heard(pod, False)
        await asyncio.wait_for(made.leave(ReplicaName("a")), 5)
        await _quiet()
        assert (server.replicas, server.writes, others) == (2, [1, 2], [])


async def test_a_number_does_not_fall_before_the_successor_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replica is gone before anybody asked for another one: its object has made another pod already, which nobody
    takes away. If none is wanted in time, the number falls."""
    monkeypatch.setattr("deploy.kubernetes.enrolled.SUCCESSOR_WITHIN", 0.3)
    server, others = Scaled(), cast("list[int]", [])
    async with enrolled(server, others) as made:
        first, _ = await sit(made, "a", "b")
        server.pods.remove(first)
        made.heard(first, False)
        server.set(2)
        await _quiet()
        await asyncio.wait_for(made.leave(ReplicaName("a")), 5)
        await _quiet()
        assert (server.replicas, len(server.pods)) == (2, 2)
        made.reserve(ReplicaName("c"))
        (pod,) = await sit(made, "c")
        assert (pod.uid in {"1", "2"}, server.writes) == (False, [2])
        server.pods.remove(pod)
        made.heard(pod, False)
        server.set(2)
        await asyncio.wait_for(made.leave(ReplicaName("c")), 5)
        async with asyncio.timeout(10):
            while server.writes != [2, 1]:  # noqa: ASYNC110 - a fake has no event for it
                await asyncio.sleep(0.01)
        assert others == []


async def test_a_pod_that_was_replaced_is_not_given_to_who_ended() -> None:
    """A StatefulSet makes the pod anew as soon as it is gone, perhaps before its replica has ended: the successor gets
    it."""
    server, others = Scaled(), cast("list[int]", [])
    async with enrolled(server, others) as made:
        (pod,) = await sit(made, "a")
        made.heard(replace(pod, deleting=True), True)
        server.pods.remove(pod)
        made.heard(pod, False)
        server.set(1)
        await _quiet()
        made.reserve(ReplicaName("b"))
        await asyncio.wait_for(made.leave(ReplicaName("a")), 5)
        (again,) = await sit(made, "b")
        assert (again.uid, server.writes, others) == ("2", [1], [])


async def test_where_another_pod_goes_than_the_idle_one_that_stays_serves_on() -> None:
    """A StatefulSet ends its last pod, which was not the one that left: that one's pod is the successor's."""
    server, others = Scaled(), cast("list[int]", [])
    server.takes_the_last = True
    async with enrolled(server, others) as made:
        pods = await sit(made, "a", "b", "c")
        await asyncio.wait_for(made.leave(ReplicaName("a")), 5)
        assert [pod.uid for pod in server.pods] == [pods[0].uid, pods[1].uid]
        made.reserve(ReplicaName("d"))  # what comes of the end of c
        await asyncio.wait_for(made.leave(ReplicaName("c")), 5)
        (pod,) = await sit(made, "d")
        assert (pod.uid, server.replicas, others) == (pods[0].uid, 2, [])
        assert server.annotated[pod.name]["relume.dev/replica"] == "d"


async def test_a_smaller_number_of_another_hand_is_not_raised_while_pods_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas whose pods that ended finish their requests; the number stays theirs."""
    monkeypatch.setattr("deploy.kubernetes.enrolled.DECIDED_WITHIN", 0.05)
    server, others = Scaled(), cast("list[int]", [])
    async with enrolled(server, others) as made:
        await sit(made, "a", "b", "c")
        server.set(1)
        await server.told(1)
        await asyncio.sleep(0.1)  # longer than it is waited for
        await server.told(1)
        await asyncio.wait_for(asyncio.gather(*(made.leave(ReplicaName(name)) for name in "ab")), 5)
        await _quiet()
        assert (server.replicas, server.writes, others) == (1, [3], [1])


async def test_what_another_hand_wrote_is_decided_first() -> None:
    """A larger number stays until it is wanted: what happens to pods meanwhile writes nothing over it."""
    server, others = Scaled(), cast("list[int]", [])
    async with enrolled(server, others) as made:
        await sit(made, "a")
        server.set(3)
        await server.told(3)
        made.wake()
        await _quiet()
        assert (server.replicas, others) == (3, [3])
        await sit(made, "b", "c")
        assert (server.replicas, server.writes) == (3, [1])


async def test_replicas_that_come_and_go_while_annotations_are_written_break_nothing() -> None:
    """A pod is gone again while it is told whose it is, and a replica comes while another one is told that it goes."""
    server, others = Scaled(), cast("list[int]", [])
    async with enrolled(server, others) as made:
        await sit(made, "a", "b")
        merge = server.merge

        async def slow(path: str, body: Json) -> Json:
            await asyncio.sleep(0)
            if COST in body.get("metadata", {}).get("annotations", {}):
                made.reserve(ReplicaName("c"))
            return await merge(path, body)

        server.merge = slow  # type: ignore[method-assign]  # between two words of the API server things happen
        await asyncio.wait_for(made.leave(ReplicaName("a")), 5)
        (pod,) = await sit(made, "c")
        assert (pod in server.pods, server.replicas, others) == (True, 2, [])


async def left(made: Enrolment, *names: str) -> None:
    """Replicas leave, and their pods go, or are another's."""
    await asyncio.wait_for(asyncio.gather(*(made.leave(ReplicaName(name)) for name in names)), 5)


async def test_the_last_pods_replica_is_drained_before_it_goes() -> None:
    """The first leaves, and the object would end the last: that one's replica is told, the number stays until it has
    left, and its successor has the idle pod."""
    server, others = Scaled(), cast("list[int]", [])
    server.stateful = True
    async with enrolled(server, others) as made:
        pods = await sit(made, "a", "b", "c")
        assert [made.ordinal(ReplicaName(name)) for name in "abc"] == [0, 1, 2]
        told = asyncio.create_task(made.displaced(ReplicaName("c")))
        await _quiet()
        assert not told.done()
        await left(made, "a")  # its pod is another's
        trouble = await asyncio.wait_for(told, 5)
        assert (trouble.reason, server.replicas, len(server.pods)) == ("Displaced", 3, 3)
        made.reserve(ReplicaName("d"))
        (pod,) = await sit(made, "d")
        assert (pod.uid, server.replicas) == (pods[0].uid, 3)
        await left(made, "c")
        assert [one.uid for one in server.pods] == [pods[0].uid, pods[1].uid]
        assert (server.replicas, others, server.writes[-1]) == (2, [], 2)


async def test_who_is_the_last_goes_without_a_word_to_others() -> None:
    """So the number falls at once; two that drain go in whichever order they are done."""
    server, others = Scaled(), cast("list[int]", [])
    server.stateful = True
    async with enrolled(server, others) as made:
        await sit(made, "a", "b", "c", "d")
        await left(made, "d")
        assert (server.replicas, server.annotated["pod-4"].get(COST)) == (3, None)
        for name in "bc":
            made.drains(ReplicaName(name), so=True)
        told = asyncio.create_task(made.displaced(ReplicaName("c")))
        leaving = asyncio.create_task(left(made, "b"))
        await _quiet()
        assert (server.replicas, told.done(), leaving.done()) == (3, False, False)
        await left(made, "c")
        await leaving
        assert (server.replicas, told.done(), others) == (1, False, [])
        told.cancel()


async def test_a_pod_that_leaves_is_given_to_who_comes() -> None:
    """One leaves and another one comes in the same moment: no pod ends, and none is waited for."""
    server, others = Scaled(), cast("list[int]", [])
    async with enrolled(server, others) as made:
        first, _ = await sit(made, "a", "b")
        leaving = asyncio.create_task(left(made, "a"))
        made.reserve(ReplicaName("c"))
        (pod,) = await sit(made, "c")
        await leaving
        assert (pod.uid, server.writes, others) == (first.uid, [2], [])


async def test_what_its_probes_call_not_ready_goes_before_the_idle_one() -> None:
    """A ReplicaSet takes it first, though it serves: its replica is drained, and succeeded in the idle pod, which does
    not cost least any more."""
    server, others = Scaled(), cast("list[int]", [])
    async with enrolled(server, others) as made:
        pods = dict(zip("abc", await sit(made, "a", "b", "c"), strict=True))
        slow = replace(pods["c"], ready=False)
        server.pods[server.pods.index(pods["c"])] = slow
        made.heard(slow, True)
        await left(made, "a")
        assert (await asyncio.wait_for(made.displaced(ReplicaName("c")), 5)).reason == "Displaced"
        made.reserve(ReplicaName("d"))
        (pod,) = await sit(made, "d")
        assert pod.uid == pods["a"].uid
        await left(made, "c")
        assert sorted(one.uid for one in server.pods) == sorted([pods["a"].uid, pods["b"].uid])
        assert server.annotated[slow.name][COST] == "-1000"
        assert server.annotated[pod.name].get(COST) != "-1000"


async def test_an_object_that_has_not_said_yet_which_pods_are_its() -> None:
    """A LeaderWorkerSet's controller writes that after the object was made: its pods are found as soon as it has."""
    server, others = Scaled(), cast("list[int]", [])
    server.selector = ""
    async with enrolled(server, others) as made:
        sitting = asyncio.create_task(made.sit(ReplicaName("a")))
        await _quiet()
        assert (server.replicas, sitting.done()) == (1, False)
        server.selector = "app=a"
        await server.told(1)
        assert (await asyncio.wait_for(sitting, 5)).uid == "1"


async def test_another_port_is_the_same_object() -> None:
    """What else is said of an object changes nothing of whose its pods are; another object is another enrolment, and
    none lets it go."""
    tools = cast("Tools", SimpleNamespace(settings=KubernetesSettings(), clock=SystemClock()))
    tasks: list[asyncio.Task[None]] = []

    def spawn(work: Any) -> asyncio.Task[None]:
        work.close()
        tasks.append(asyncio.create_task(asyncio.sleep(0)))
        return tasks[-1]

    known, name = Enrolments(tools, cast("Any", None), spawn), ModelName("m")
    first = known.of(name, ScaleTargetSpec(name="a"))
    other_port = ScaleTargetSpec(name="a", port=9000)
    known.declared(name, other_port)
    assert known.of(name, other_port) is first
    assert first.target.port == 9000
    known.declared(name, ScaleTargetSpec(name="b"))
    second = known.of(name, ScaleTargetSpec(name="b"))
    assert second is not first
    known.declared(name, None)
    assert known.of(name, ScaleTargetSpec(name="b")) is not second
    await asyncio.gather(*tasks, return_exceptions=True)
