"""Tells people on the API server: each object's status with its conditions, and Events when something turns.

`kubectl describe model NAME` tells the story. A status is made of what is known now, and written when it differs from
what was written last; so many changes become one write, and an API server that is away delays nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from deploy.api.node_calls import CANCELLED, LATE
from deploy.api.shapes import ModelState, ModelStatus
from deploy.api.status import Facts, model_status
from deploy.kubernetes.api import ApiError, KubeApi
from deploy.kubernetes.lease import Lease
from deploy.kubernetes.resources import EVENTS, MODELS, Json
from deploy.kubernetes.settings import KubernetesSettings
from deploy.kubernetes.status_writes import Acceptance, StatusWrites
from deploy.kubernetes.telling_parts import Turn, condition, event_body
from deploy.kubernetes.views import LABEL_MODEL
from events.clock import Clock

logger = logging.getLogger(__name__)

_TROUBLE: Final = frozenset({ModelState.FAILED})
_SHORT: Final = frozenset({"Shortage", LATE, CANCELLED})
_QUIET: Final = frozenset({"", "Granted", "Wished", "Place", "Spawn", "Load", "Warmup"})
"""Reasons that pass by in each start: they stand in the status, and are no Event of their own."""


MOST_ENDS: Final = 16
"""Ends of pods by other hands that wait to be told of one model; further ones are told by its state only. Chosen."""


class Teller:
    """Writes the status of Model objects. `facts` gives what is known of a model; None: nothing is declared."""

    def __init__(
        self, api: KubeApi, lease: Lease, clock: Clock, settings: KubernetesSettings,
        facts: Callable[[str], Facts | None],
    ) -> None:  # fmt: skip
        self._api = api
        self._lease = lease
        self._clock = clock
        self._settings = settings
        self._facts = facts
        self.object_of: Callable[[str], Json | None] = lambda _: None
        """The Model object of a name, as the API server has it."""
        self._accepted: dict[str, Acceptance] = {}
        self._written: dict[str, Json] = {}
        self._turned: dict[str, tuple[str, str]] = {}
        self._ends: dict[str, list[Turn]] = {}
        self._queue = StatusWrites("model", clock, self._tell)
        self.writes = 0
        self.events = 0

    def accepted(self, name: str, generation: int, problem: str) -> None:
        """An object was declared, or refused."""
        self._accepted[name] = Acceptance(generation, problem)
        self.mark(name)

    def ended(self, name: str, reason: str, message: str) -> None:
        """Another hand ends a replica's pod: an Event, whatever becomes of it."""
        ends = self._ends.setdefault(name, [])
        if len(ends) < MOST_ENDS:
            ends.append(Turn(reason, message, warns=True))
        self.mark(name)

    def mark(self, name: str) -> None:
        """Something about a model changed."""
        self._queue.mark(name)

    async def run(self) -> None:
        """Write until cancelled."""
        await self._queue.run()

    async def _tell(self, name: str) -> None:
        found = self.object_of(name)
        if found is None:
            for known in (self._accepted, self._written, self._turned, self._ends):
                known.pop(name, None)
            return
        accepted, facts = self._accepted.get(name), self._facts(name)
        if accepted is None:
            return
        said = None if facts is None else model_status(facts)
        while ends := self._ends.get(name):
            await self._event(found, ends[0])
            ends.pop(0)
        await self._tell_turn(found, said, accepted)
        status = self._status(name, found, said, accepted)
        if self._written.get(name) == status or found.get("status") == status:
            return
        await self._lease.hold()
        body = {"apiVersion": MODELS.api_version, "kind": MODELS.kind, "status": status,
                "metadata": {"name": name, "namespace": self._settings.namespace}}  # fmt: skip
        await self._api.apply_status(MODELS.path(self._settings.namespace, name), body)
        self.writes += 1
        self._written[name] = status

    def _status(self, name: str, found: Json, said: ModelStatus | None, accepted: Acceptance) -> dict[str, Any]:
        now = self._clock.now()
        problem, generation = accepted.problem, accepted.generation
        wanted = [("Accepted", "False" if problem else "True", "Refused" if problem else "Declared", problem)]
        status: dict[str, Any] = {"observedGeneration": generation}
        if "scaleTargetRef" not in found["spec"]:
            status["selector"] = f"{LABEL_MODEL}={name}"
        if said is not None:
            override = said.override
            status |= {
                "state": said.state.value, "reason": said.reason, "message": said.message, "replicas": said.replicas,
                "readyReplicas": said.ready_replicas, "granted": said.granted,
                "wanted": said.wish if override is None else override.replicas,
            }  # fmt: skip
            wanted += [(one.type, one.status, one.reason or one.type, one.message) for one in said.conditions]
        elif problem:
            status |= {"state": ModelState.FAILED.value, "reason": "Refused", "message": problem}
        facts = self._facts(name)
        status["revision"] = None if facts is None else facts.declared.revision
        before = {one["type"]: one for one in self._before(name, found).get("conditions", ())}
        status["conditions"] = [
            condition(before.get(kind, {}), (kind, truth, reason, message, generation), now)
            for kind, truth, reason, message in wanted
        ]
        return {key: value for key, value in status.items() if value is not None}

    def _before(self, name: str, found: Json) -> Json:
        written: Json = self._written.get(name) or found.get("status") or {}
        return written

    async def _tell_turn(self, found: Json, said: ModelStatus | None, accepted: Acceptance) -> None:
        """An Event when the state turned, or its reason did and is worth one."""
        name = found["metadata"]["name"]
        if accepted.problem:
            turn, note, warns = ("Refused", accepted.problem), accepted.problem, True
        elif said is None:
            return
        else:
            reason = "" if said.reason in _QUIET else said.reason
            turn = (said.state.value, reason)
            note = said.message or _notes(said)
            warns = said.state in _TROUBLE or bool(said.failures) or said.reason in _SHORT
        if self._turned.get(name) == turn:
            return
        first = name not in self._turned and turn == ("Zero", "")
        self._turned[name] = turn
        if not first:  # that nothing happened yet is no news
            await self._event(found, Turn(turn[1] or turn[0], note, warns))

    async def _event(self, found: Json, turn: Turn) -> None:
        await self._lease.hold()
        metadata = found["metadata"]
        body = event_body(found, MODELS, turn, self._settings.identity, self._clock.now())
        try:
            await self._api.create(EVENTS.path(self._settings.namespace), body)
            self.events += 1
        except ApiError as error:
            logger.debug("an event of model %s was refused: %s", metadata["name"], error)


def _notes(said: ModelStatus) -> str:
    match said.state:
        case ModelState.ZERO:
            return "nobody asks: no replica is left, and the next request wakes the model"
        case ModelState.STARTING:
            return f"{said.starting_replicas or said.granted or 0} replicas start"
        case ModelState.READY:
            return f"{said.ready_replicas} replicas serve"
        case _:
            return f"the model is {said.state.value.lower()}"
