"""GpuPool objects: what they say is declared, and their status tells whether it holds.

A definition that is not there yet (an older installation's) keeps nothing else waiting: the defaults hold until then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol

from deploy.api.pool_board import POOL
from deploy.kubernetes.declared_objects import DeclaredObjects, metadata_of
from deploy.kubernetes.reflecting import Reflector
from deploy.kubernetes.resources import EVENTS, GPU_POOLS, Json
from deploy.kubernetes.status_writes import Acceptance, StatusWrites
from deploy.kubernetes.telling_parts import Turn, condition, event_body
from deploy.kubernetes.tools import Tools
from deploy.spec.check import check_as
from deploy.spec.document import API_VERSION
from deploy.spec.kinds import Document
from deploy.spec.pool import GpuPool
from events.types.pools import PoolDeclared

logger = logging.getLogger(__name__)


class DeclaresPools(Protocol):
    """Writes declarations (`deploy.api.declaring`). All raise ProblemError."""

    async def apply(self, documents: Sequence[Document]) -> object:
        """Declare these, all or none."""

    async def delete_pool(self, name: str) -> object:
        """Declare a pool no longer."""


class PoolObjects(DeclaredObjects[PoolDeclared]):
    """The GpuPool objects of one namespace, and what stands in the log. Used on one event loop."""

    word = "pool"

    def __init__(self, tools: Tools, declaring: DeclaresPools) -> None:
        super().__init__(tools.clock, self._accepted)
        self._tools = tools
        self._declaring = declaring
        self._namespace = tools.settings.namespace
        self._reflector = Reflector(tools.api, GPU_POOLS.path(self._namespace), self._changed)
        self._writes = StatusWrites(self.word, tools.clock, self._tell)
        self._acceptances: dict[str, Acceptance] = {}
        self._turned: dict[str, str] = {}
        self.status_writes = 0

    def begin(self, spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]) -> None:
        """Follow, declare and tell from now on. The log must have been read."""
        for work in (self._reflector.run(), self._writes.run(), self._once_listed()):
            spawn(work)

    async def _once_listed(self) -> None:
        await self._reflector.synced.wait()
        await self.run()

    def declared(self, event: PoolDeclared) -> None:
        """A declaration stands in the log."""
        self._declared[event.pool] = event
        self._writes.mark(event.pool)

    def _changed(self, key: str, _: object) -> None:
        self.changed(key)
        self._writes.mark(key.rpartition("/")[2])

    def _accepted(self, name: str, generation: int, problem: str) -> None:
        self._acceptances[name] = Acceptance(generation, problem)
        self._writes.mark(name)

    def _found(self, name: str) -> Json | None:
        return self._reflector.objects.get(f"{self._namespace}/{name}")

    def _keys(self) -> Iterable[str]:
        return self._reflector.objects

    async def _declare(self, name: str, found: Json) -> None:
        pool = check_as(GpuPool, document(found))
        await self._end_former(name, found)
        await self._declaring.apply([pool])

    async def _delete(self, name: str) -> object:
        return await self._declaring.delete_pool(name)

    async def _tell(self, name: str) -> None:
        """Write the status, if it differs from what stands there; an Event when it turned."""
        found, accepted = self._found(name), self._acceptances.get(name)
        if found is None:
            self._acceptances.pop(name, None)
            self._turned.pop(name, None)
        declared = self._declared.get(name)
        stands = declared is not None and not declared.deleted
        if found is None or accepted is None or not (stands or accepted.problem):
            return  # it has not been looked at, or the log has not said it yet
        status = self._status(found, accepted, declared if stands else None)
        if found.get("status") == status:
            return
        await self._tools.lease.hold()
        await self._tell_turn(found, status)
        body = {"apiVersion": GPU_POOLS.api_version, "kind": GPU_POOLS.kind, "status": status,
                "metadata": {"name": name, "namespace": self._namespace}}  # fmt: skip
        await self._tools.api.apply_status(GPU_POOLS.path(self._namespace, name), body)
        self.status_writes += 1

    def _status(self, found: Json, accepted: Acceptance, declared: PoolDeclared | None) -> dict[str, Any]:
        name, problem = found["metadata"]["name"], accepted.problem
        led, state = name == POOL, "InForce"
        reason, message = "Led", "what is decided from now on goes by it"
        if not led:
            state, reason = "NotLed", "NotLed"
            message = f"relume leads the pool {POOL}, and no other: name this object {POOL}"
        if problem:
            before = "what was declared before stays" if declared is not None else "the defaults hold"
            state, reason, message = "Refused", "Refused", f"{problem} ({before})"
        old = {one["type"]: one for one in found.get("status", {}).get("conditions", ())}
        holds = "True" if declared is not None and led else "False"
        wanted = (("Accepted", "False" if problem else "True", "Refused" if problem else "Declared", problem),
                  ("InForce", holds, reason, message))  # fmt: skip
        now, generation = self._tools.clock.now(), accepted.generation
        status: dict[str, Any] = {
            "state": state, "reason": reason, "message": message, "observedGeneration": generation,
            "conditions": [condition(old.get(one[0], {}), (*one, generation), now) for one in wanted],
        }  # fmt: skip
        return status if declared is None else status | {"revision": declared.revision}

    async def _tell_turn(self, found: Json, status: Json) -> None:
        name = found["metadata"]["name"]
        if self._turned.get(name) == status["message"]:
            return
        self._turned[name] = status["message"]
        turn = Turn(status["state"], status["message"], status["state"] != "InForce", "Declare")
        body = event_body(found, GPU_POOLS, turn, self._tools.settings.identity, self._tools.clock.now())
        await self._tools.api.create(EVENTS.path(self._namespace), body)


def document(found: Json) -> dict[str, Any]:
    """The document that a GpuPool object is, as on one machine."""
    return {
        "apiVersion": API_VERSION, "kind": "GpuPool", "metadata": metadata_of(found, ()), "spec": found.get("spec", {}),
    }  # fmt: skip
