"""Tells people on the API server: each object's status with its conditions, and Events when something turns.

`kubectl describe model NAME` tells the story. A status is made of what is known now, and written when it differs from
what was written last; so many changes become one write, and an API server that is away delays nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from deploy.api.node_calls import CANCELLED, LATE
from deploy.api.shapes import ModelState, ModelStatus
from deploy.api.status import Facts, model_status
from deploy.kubernetes.api import KubeApi
from deploy.kubernetes.lease import Lease
from deploy.kubernetes.object_telling import ObjectTeller, acceptance
from deploy.kubernetes.resources import MODELS, Json
from deploy.kubernetes.settings import KubernetesSettings
from deploy.kubernetes.status_writes import Acceptance
from deploy.kubernetes.telling_parts import Turn
from deploy.kubernetes.views import LABEL_MODEL
from events.clock import Clock

_TROUBLE: Final = frozenset({ModelState.FAILED})
_SHORT: Final = frozenset({"Shortage", LATE, CANCELLED})
_QUIET: Final = frozenset({"", "Granted", "Wished", "Place", "Spawn", "Load", "Warmup"})
"""Reasons that pass by in each start: they stand in the status, and are no Event of their own."""


MOST_ENDS: Final = 16
"""Ends of pods by other hands that wait to be told of one model; further ones are told by its state only. Chosen."""


class Teller(ObjectTeller[Facts]):
    """Writes the status of Model objects."""

    word = "model"
    resource = MODELS

    def __init__(
        self, api: KubeApi, lease: Lease, clock: Clock, settings: KubernetesSettings,
        facts: Callable[[str], Facts | None],
    ) -> None:  # fmt: skip
        super().__init__(api, lease, clock, settings, facts)
        self.object_of: Callable[[str], Json | None] = lambda _: None
        """The Model object of a name, as the API server has it."""
        self._ends: dict[str, list[Turn]] = {}

    def ended(self, name: str, reason: str, message: str) -> None:
        """Another hand ends a replica's pod: an Event, whatever becomes of it."""
        ends = self._ends.setdefault(name, [])
        if len(ends) < MOST_ENDS:
            ends.append(Turn(reason, message, warns=True))
        self.mark(name)

    async def _tell(self, name: str) -> None:
        found = self.object_of(name)
        if found is None:
            self._forget(name)
            self._ends.pop(name, None)
            return
        accepted, facts = self._accepted.get(name), self._facts(name)
        if accepted is None:
            return
        said = None if facts is None else model_status(facts)
        while ends := self._ends.get(name):
            await self._event(found, ends[0])
            ends.pop(0)
        await self._tell_turn(found, said, accepted)
        await self._write(name, found, self._status(name, found, said, accepted))

    def _status(self, name: str, found: Json, said: ModelStatus | None, accepted: Acceptance) -> dict[str, Any]:
        problem, generation = accepted.problem, accepted.generation
        wanted = [acceptance(problem)]
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
        status["conditions"] = self._conditions(name, found, wanted, generation)
        return {key: value for key, value in status.items() if value is not None}

    async def _tell_turn(self, found: Json, said: ModelStatus | None, accepted: Acceptance) -> None:
        """An Event when the state turned, or its reason did and is worth one."""
        name = found["metadata"]["name"]
        if accepted.problem:
            turn, note, warns = ("Refused", accepted.problem, 0), accepted.problem, True
        elif said is None:
            return
        else:
            reason = "" if said.reason in _QUIET else said.reason
            turn = (said.state.value, reason, 0)
            note = said.message or _notes(said)
            warns = said.state in _TROUBLE or bool(said.failures) or said.reason in _SHORT
        if self._turned.get(name) == turn:
            return
        first = name not in self._turned and turn == ("Zero", "", 0)
        self._turned[name] = turn
        if not first:  # that nothing happened yet is no news
            await self._event(found, Turn(turn[1] or turn[0], note, warns))


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
