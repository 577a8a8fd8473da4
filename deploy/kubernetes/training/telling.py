"""Tells people on the API server how a training job is: the status of its TrainingJob object with its conditions, and
Events on it, or on the Job of others that runs it. `kubectl describe` tells the story.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from deploy.api.training_facts import JobFacts
from deploy.api.training_status import training_status
from deploy.api.trainingshapes import TrainingState, TrainingStatus
from deploy.kubernetes.api import KubeApi
from deploy.kubernetes.lease import Lease
from deploy.kubernetes.object_telling import ObjectTeller, acceptance
from deploy.kubernetes.resources import TRAINING_JOBS, Json
from deploy.kubernetes.settings import KubernetesSettings
from deploy.kubernetes.status_writes import Acceptance
from deploy.kubernetes.telling_parts import Turn
from deploy.kubernetes.training.objects import Source
from deploy.kubernetes.training.shaping import LABEL_JOB
from events.clock import Clock

_BAD: Final = frozenset({TrainingState.FAILED})
_TOLD: Final = frozenset({"EvictionBlocked", "NodeSilent", "NoLastingFolder", "BackOff"})
"""Reasons that are an Event of their own, and a warning, whatever the state."""
Known = Callable[[str], "tuple[Source, Json] | None"]


class TrainingTeller(ObjectTeller[JobFacts]):
    """Writes about jobs. `object_of`: the object of one; `warning`: a reason and a sentence about it that people should
    know whatever its state."""

    word = "training job"
    resource = TRAINING_JOBS

    def __init__(
        self, api: KubeApi, lease: Lease, clock: Clock, settings: KubernetesSettings,
        facts: Callable[[str], JobFacts | None],
    ) -> None:  # fmt: skip
        super().__init__(api, lease, clock, settings, facts)
        self.object_of: Known = lambda _: None
        self.warning: Callable[[str], tuple[str, str]] = lambda _: ("", "")

    async def _tell(self, name: str) -> None:
        known, accepted = self.object_of(name), self._accepted.get(name)
        if known is None:
            self._forget(name)
            return
        if accepted is None:
            return
        source, found = known
        facts = self._facts(name)
        said = None if facts is None else training_status(facts)
        await self._tell_turn(name, (source, found), said, accepted)
        if source.resource != TRAINING_JOBS:
            return  # the status of another's object is another's
        await self._write(name, found, self._status(name, found, said, accepted))

    def _status(self, name: str, found: Json, said: TrainingStatus | None, accepted: Acceptance) -> dict[str, Any]:
        problem = accepted.problem
        wanted = [acceptance(problem)]
        status: dict[str, Any] = {"observedGeneration": accepted.generation, "selector": f"{LABEL_JOB}={name}"}
        if said is not None:
            status |= _numbers(said)
            wanted += _conditions(said, self.warning(name))
        elif problem:
            status |= {"state": TrainingState.FAILED.value, "reason": "Refused", "message": problem}
        status["conditions"] = self._conditions(name, found, wanted, accepted.generation)
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
        await self._event(found, told, source.resource)


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
