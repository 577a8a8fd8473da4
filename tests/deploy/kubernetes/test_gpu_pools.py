"""GpuPool objects: what is declared of them, and what their status tells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from deploy.kubernetes.gpu_pools import PoolObjects
from deploy.kubernetes.resources import Json
from deploy.kubernetes.settings import KubernetesSettings
from deploy.kubernetes.tools import Tools
from deploy.spec.declare_pool import declare_pool
from deploy.spec.kinds import Document
from events.clock import SystemClock
from events.types.pools import PoolDeclared


class Server:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.statuses: list[Json] = []
        self.events: list[Json] = []

    async def apply_status(self, path: str, body: Json) -> Json:
        """A status."""
        del path
        self.statuses.append(body["status"])
        return body

    async def create(self, path: str, body: Json) -> Json:
        """An Event."""
        assert "events" in path
        self.events.append(body)
        return body

    async def hold(self) -> None:
        """The Lease."""


class Desk:
    """Declares at once, and tells what stands, as the log would."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.stands: dict[str, PoolDeclared] = {}
        self.heard: Callable[[PoolDeclared], None] = lambda _: None

    async def apply(self, documents: Sequence[Document]) -> object:
        """Those that differ."""
        for document in documents:
            name = document.metadata.name
            before = self.stands.get(name)
            declared = declare_pool(before, document, f"uid-{len(self.done)}")
            if declared != before:
                self.done.append(f"apply {name}")
                self.stands[name] = declared
                self.heard(declared)
        return None

    async def delete_pool(self, name: str) -> object:
        """It is declared no longer."""
        self.done.append(f"delete {name}")
        self.heard(replace(self.stands.pop(name), deleted=True))
        return None


class Case:
    """Objects, and what became of them."""

    def __init__(self) -> None:
        self.server, self.desk = Server(), Desk()
        tools = SimpleNamespace(
            clock=SystemClock(), api=self.server, lease=self.server, settings=KubernetesSettings(namespace="models"),
        )  # fmt: skip
        self.made = PoolObjects(cast("Tools", tools), self.desk)
        self.desk.heard = self.made.declared

    def put(self, name: str = "default", uid: str = "o1", **spec: Any) -> None:
        """It is there, or changed."""
        metadata = {"name": name, "namespace": "models", "uid": uid, "generation": 2}
        self.made._reflector.objects[f"models/{name}"] = {"metadata": metadata, "spec": spec}
        self.made._changed(f"models/{name}", None)

    def take(self, name: str = "default") -> None:
        """It is gone."""
        del self.made._reflector.objects[f"models/{name}"]
        self.made._changed(f"models/{name}", None)

    async def told(self, count: int) -> Json:
        """The newest status, once so many were written."""
        async with asyncio.timeout(30):
            while len(self.server.statuses) < count:  # noqa: ASYNC110 - tasks of its own
                await asyncio.sleep(0.01)
        return self.server.statuses[-1]

    async def does(self, *wanted: str) -> None:
        """Return once just this was declared."""
        async with asyncio.timeout(30):
            while len(self.desk.done) < len(wanted):  # noqa: ASYNC110 - tasks of its own
                await asyncio.sleep(0.01)
        assert self.desk.done == list(wanted)


@asynccontextmanager
async def case() -> AsyncIterator[Case]:
    """All parts of it run."""
    made = Case()
    tasks = [asyncio.create_task(work) for work in (made.made.run(), made.made._writes.run())]
    try:
        await asyncio.sleep(0)
        yield made
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def conditions(status: Json) -> Mapping[str, tuple[str, str]]:
    """Status and reason, by type."""
    return {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}


async def test_an_object_is_declared_changed_and_withdrawn() -> None:
    """Once for each change, and told: it is in force, at this revision; gone, the defaults hold again."""
    async with case() as here:
        here.put()
        first = await here.told(1)
        assert (first["state"], first["revision"], first["observedGeneration"]) == ("InForce", 1, 2)
        assert conditions(first) == {"Accepted": ("True", "Declared"), "InForce": ("True", "Led")}
        here.put(reclaim={"budgetPerHour": 3})
        assert (await here.told(2))["revision"] == 2
        here.take()
        await here.does("apply default", "apply default", "delete default")
        assert [one["reason"] for one in here.server.events] == ["InForce"]


async def test_one_that_was_made_anew_is_another_declaration() -> None:
    """The declaration of the deleted object goes first."""
    async with case() as here:
        here.put()
        await here.told(1)
        here.put(uid="o2")
        await here.does("apply default", "delete default", "apply default")


@pytest.mark.parametrize(("stood", "holds", "words"), [
    (True, ("True", "Refused"), "what was declared before stays"),
    (False, ("False", "Refused"), "the defaults hold"),
])  # fmt: skip
async def test_what_is_wrong_is_told_and_what_stood_stays(stood: bool, holds: tuple[str, str], words: str) -> None:
    """With path, value, rule and remedy, in the condition and in a warning."""
    async with case() as here:
        if stood:
            here.put()
            await here.told(1)
        here.put(reserve={"wholeCards": 1.5})
        said = await here.told(1 + stood)
        assert conditions(said) == {"Accepted": ("False", "Refused"), "InForce": holds}
        for part in ("spec.reserve.wholeCards", "1.5", "must be at most 1", "write 1 or less", words):
            assert part in said["message"]
        assert here.server.events[-1]["type"] == "Warning"
        assert here.desk.done == ["apply default"] * stood


async def test_a_pool_that_nobody_leads_says_so() -> None:
    """It is declared, and nothing goes by it: its name is the mistake."""
    async with case() as here:
        here.put("gpus")
        said = await here.told(1)
        assert (said["state"], conditions(said)["InForce"]) == ("NotLed", ("False", "NotLed"))
        assert "name this object default" in said["message"]
