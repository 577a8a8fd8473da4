"""Tells people on the API server how a training job is: the status of its TrainingJob object with its conditions, and
Events on it, or on the Job of others that runs it. `kubectl describe` tells the story.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from deploy.api.training_facts import JobFacts
from deploy.api.training_status import training_status
from deploy.api.trainingshapes import TrainingState, TrainingStatus
from deploy.kubernetes.api import ApiError, KubeApi
from deploy.kubernetes.lease import Lease
from deploy.kubernetes.resources import EVENTS, TRAINING_JOBS, Json
from deploy.kubernetes.settings import KubernetesSettings
from deploy.kubernetes.status_writes import Acceptance, StatusWrites
from deploy.kubernetes.telling_parts import Turn, condition, event_body
from deploy.kubernetes.training.objects import Source
from deploy.kubernetes.training.shaping import LABEL_JOB
from events.clock import Clock

logger = logging.getLogger(__name__)

_BAD: Final = frozenset({TrainingState.FAILED})
_TOLD: Final = frozenset({"EvictionBlocked", "NodeSilent", "NoLastingFolder", "BackOff"})
"""Reasons that are an Event of their own, and a warning, whatever the state."""
Known = Callable[[str], "tuple[Source, Json] | None"]


class TrainingTeller:
    """Writes about jobs. `facts` gives what is known of one; None: nothing is declared. `object_of`: its object;
    `warning`: a reason and a sentence about it that people should know whatever its state."""

    def __init__(
        self, api: KubeApi, lease: Lease, clock: Clock, settings: KubernetesSettings,
        facts: Callable[[str], JobFacts | None],
    ) -> None:  # fmt: skip
        self._api = api
        self._lease = lease
        self._clock = clock
        self._settings = settings
        self._facts = facts
        self.object_of: Known = lambda _: None
        self.warning: Callable[[str], tuple[str, str]] = lambda _: ("", "")
        self._accepted: dict[str, Acceptance] = {}
        self._written: dict[str, Json] = {}
        self._turned: dict[str, tuple[str, str, int]] = {}
        self._queue = StatusWrites("training job", clock, self._tell)
        self.writes = 0
        self.events = 0

    def accepted(self, name: str, generation: int, problem: str) -> None:
        """An object was declared, or refused."""
        self._accepted[name] = Acceptance(generation, problem)
        self.mark(name)

    def mark(self, name: str) -> None:
        """Something about a job changed."""
        self._queue.mark(name)

    async def run(self) -> None:
        """Write until cancelled."""
        await self._queue.run()

    async def _tell(self, name: str) -> None:
        known, accepted = self.object_of(name), self._accepted.get(name)
        if known is None:
            for told in (self._accepted, self._written, self._turned):
                told.pop(name, None)
            return
        if accepted is None:
            return
        source, found = known
        facts = self._facts(name)
        said = None if facts is None else training_status(facts)
        await self._tell_turn(name, (source, found), said, accepted)
        if source.resource != TRAINING_JOBS:
            return  # the status of another's object is another's
        status = self._status(name, found, said, accepted)
        if self._written.get(name) == status or found.get("status") == status:
            return
        await self._lease.hold()
        body = {"apiVersion": TRAINING_JOBS.api_version, "kind": TRAINING_JOBS.kind, "status": status,
                "metadata": {"name": name, "namespace": self._settings.namespace}}  # fmt: skip
        await self._api.apply_status(TRAINING_JOBS.path(self._settings.namespace, name), body)
        self.writes += 1
        self._written[name] = status

    def _status(self, name: str, found: Json, said: TrainingStatus | None, accepted: Acceptance) -> dict[str, Any]:
        now, problem = self._clock.now(), accepted.problem
        wanted = [("Accepted", "False" if problem else "True", "Refused" if problem else "Declared", problem)]
        status: dict[str, Any] = {"observedGeneration": accepted.generation, "selector": f"{LABEL_JOB}={name}"}
        if said is not None:
            status |= _numbers(said)
            wanted += _conditions(said, self.warning(name))
        elif problem:
            status |= {"state": TrainingState.FAILED.value, "reason": "Refused", "message": problem}
        before = {
            one["type"]: one for one in (self._written.get(name) or found.get("status") or {}).get("conditions", ())
        }
        status["conditions"] = [
            condition(before.get(kind, {}), (kind, truth, reason, message, accepted.generation), now)
            for kind, truth, reason, message in wanted
        ]
        return {key: value for key, value in status.items() if value is not None}

    async def _tell_turn(
        self, name: str, about: tuple[Source, Json], said: TrainingStatus | None, accepted: Acceptance
    ) -> None:
        """Events when the state turned, when it is another run, or when something is worth a warning."""
        source, found = about
        turn: tuple[str, str, int]
        if accepted.problem:
            turn, told = ("Refused", accepted.problem, 0), Turn("Refused", accepted.problem, True, "Declare")
        elif said is None:
            return
        else:
            reason, warned = _worth(said, self.warning(name))
            turn = (said.state.value, reason, said.run)
            told = Turn(reason or said.state.value, warned or _notes(said), bool(reason) or said.state in _BAD, "Train")
        if self._turned.get(name) == turn:
            return
        self._turned[name] = turn
        await self._lease.hold()
        body = event_body(found, source.resource, told, self._settings.identity, self._clock.now())
        try:
            await self._api.create(EVENTS.path(self._settings.namespace), body)
            self.events += 1
        except ApiError as error:
            logger.debug("an event of training job %s was refused: %s", name, error)


def _numbers(said: TrainingStatus) -> dict[str, Any]:
    checkpoint = said.checkpoint
    return {
        "state": said.state.value, "reason": said.reason, "message": said.message, "run": said.run,
        "members": said.members, "readyMembers": said.ready_members, "granted": said.granted_members,
        "step": said.step, "resumedStep": said.resumed_step, "preemptions": said.preemptions,
        "failures": said.failures, "ending": said.ending,
        "checkpointStep": None if checkpoint is None else checkpoint.step,
        "checkpoint": None if checkpoint is None else checkpoint.path,
        "checkpointVerified": None if checkpoint is None else checkpoint.verified,
    }  # fmt: skip


def _conditions(said: TrainingStatus, warning: tuple[str, str]) -> list[tuple[str, str, str, str]]:
    """Granted, Running, Saved (a committed checkpoint), Yielding (a notice stands), Disturbed (see the message)."""
    runs = said.state is TrainingState.RUNNING
    yields = said.state is TrainingState.SAVING
    reason, message = _worth(said, warning)
    saved = said.checkpoint
    return [
        ("Granted", _truth(bool(said.granted_members)), said.reason or said.state.value, said.message),
        ("Running", _truth(runs or yields), said.state.value, ""),
        ("Yielding", _truth(yields), said.reason if yields else said.state.value, said.message if yields else ""),
        ("Saved", _truth(saved is not None), "Committed" if saved else "NoCheckpoint",
         "" if saved is None else f"step {saved.step}: {saved.path}"),
        ("Disturbed", _truth(bool(reason)), reason or "Well", message),
    ]  # fmt: skip


def _worth(said: TrainingStatus, warning: tuple[str, str]) -> tuple[str, str]:
    """A reason that people should act on, and its sentence; empty: none."""
    return (said.reason, said.message) if said.reason in _TOLD else warning


def _truth(so: bool) -> str:
    return "True" if so else "False"


def _notes(said: TrainingStatus) -> str:
    match said.state:
        case TrainingState.RUNNING:
            began = "from the beginning" if not said.resumed_step else f"from step {said.resumed_step}"
            return f"run {said.run}: {said.ready_members} of {said.members} members train, {began}"
        case TrainingState.PARKED if said.checkpoint is not None:
            return f"it has yielded, saved at step {said.checkpoint.step}; {said.message}"
        case TrainingState.FINISHED:
            return f"it has finished, at step {said.step}"
    return said.message or f"the job is {said.state.value.lower()}"
