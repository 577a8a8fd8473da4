"""What is wrong with a pod, in our words, and when to look again though nothing happens. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from deploy.kubernetes.views import PodView
from events.units import Instant, Seconds


class PodReason(StrEnum):
    """Why a replica failed on Kubernetes; beside `deploy.local.declared.Reason`, whose words hold here too."""

    UNSCHEDULABLE = "Unschedulable"
    """The scheduler found no node for it."""
    IMAGE_PULL = "ImagePullBackOff"
    """Its image cannot be pulled."""
    CONTAINER_CONFIG = "ContainerConfigError"
    """Something that its container needs is not there, such as a secret."""
    CRASH_LOOP = "CrashLoopBackOff"
    """Its container ends again and again (pods of enrolled objects; those of ours are started by us)."""
    EVICTED = "Evicted"
    """Its node ran short, somebody asked for its eviction, or a pod of higher priority took its place."""
    NODE_LOST = "NodeLost"
    """Its node is silent or gone."""
    UNHEALTHY = "GpuUnhealthy"
    """Its kubelet says that its device is unhealthy."""
    DELETED = "Deleted"
    """Somebody deleted it."""
    REFUSED = "PodRefused"
    """The API server refused it."""
    DISPLACED = "Displaced"
    """Its object ends this pod first, though another replica was to go."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a pod may stay without a place, and without its container, before its start counts as failed."""

    schedule: Seconds = Seconds(60.0)
    """A replica is placed by the allocator before its pod exists, so a scheduler that finds no place knows something
    that we do not; a minute is ten of its retries. Chosen."""
    pull: Seconds = Seconds(600.0)
    """After which an image that is still not there is told as what it is. Chosen: 20 GB at 50 MB/s take 400 s."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a replica must be replaced."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is wrong, if anything; and when time alone may change that."""

    trouble: Trouble | None
    again_at: Instant | None = None


_DISRUPTED: Final = {
    "DeletionByTaintManager": PodReason.NODE_LOST,
    "DeletionByPodGC": PodReason.NODE_LOST,
}
_NO_CONFIG: Final = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "InvalidImageName")
_NO_IMAGE: Final = ("ImagePullBackOff", "ErrImageNeverPull")
FINE: Final = Judgement(None)


def judge(pod: PodView, *, ready: bool, limits: Limits, now: Instant) -> Judgement:
    """`ready`: the replica has answered before, so that an end is a crash and no failed start."""
    if pod.over:
        return Judgement(_end(pod, ready))
    if pod.deleting:
        return Judgement(_going(pod))
    if pod.sick:
        return Judgement(Trouble(PodReason.UNHEALTHY, "its GPU is unhealthy, as its kubelet or agent says"))
    if pod.waiting is not None and not pod.running:
        return _waits(pod, limits, now)
    return FINE if pod.node else _has_no_node(pod, limits, now)


def _has_no_node(pod: PodView, limits: Limits, now: Instant) -> Judgement:
    until = Instant(pod.created_at + limits.schedule)
    if now < until:
        return Judgement(None, until)
    if pod.unscheduled is not None:
        return Judgement(Trouble(PodReason.UNSCHEDULABLE, f"no node takes it: {pod.unscheduled.message}"))
    told = "no scheduler says anything of it: is there one of pod.scheduler's name, and is there what the pod claims?"
    return Judgement(Trouble(PodReason.UNSCHEDULABLE, told))


def gone(pod: PodView | None) -> Trouble:
    """A pod that is not there any more, though nobody of us ended it; `pod` is what was seen of it last."""
    if pod is not None and pod.disrupted is not None:
        return _going(pod)
    name = "its pod" if pod is None else f"pod {pod.name}"
    return Trouble(PodReason.DELETED, f"{name} is gone; somebody deleted it")


def _going(pod: PodView) -> Trouble:
    if pod.disrupted is not None:
        reason = _DISRUPTED.get(pod.disrupted.reason, PodReason.EVICTED)
        return Trouble(reason, f"{pod.disrupted.reason}: {pod.disrupted.message}")
    return Trouble(PodReason.DELETED, f"somebody deleted pod {pod.name}")


def _waits(pod: PodView, limits: Limits, now: Instant) -> Judgement:
    assert pod.waiting is not None
    reason, message = pod.waiting.reason, pod.waiting.message
    if reason in _NO_IMAGE:
        return Judgement(Trouble(PodReason.IMAGE_PULL, message))
    if reason in _NO_CONFIG:
        return Judgement(Trouble(PodReason.CONTAINER_CONFIG, f"{reason}: {message}"))
    if reason == "CrashLoopBackOff":
        return Judgement(Trouble(PodReason.CRASH_LOOP, message))
    until = Instant(pod.created_at + limits.pull)
    if reason == "ErrImagePull" and now >= until:
        return Judgement(Trouble(PodReason.IMAGE_PULL, message))
    return Judgement(None, until if reason == "ErrImagePull" else None)


def _end(pod: PodView, ready: bool) -> Trouble:
    """How a pod ended whose containers run no more."""
    if pod.told is not None and pod.told.reason in ("Evicted", "Preempting", "Shutdown", "NodeShutdown", "Terminated"):
        return Trouble(PodReason.EVICTED, f"{pod.told.reason}: {pod.told.message}")
    if pod.told is not None and pod.told.reason == "NodeLost":
        return Trouble(PodReason.NODE_LOST, pod.told.message)
    return _going(pod) if pod.disrupted is not None else _exit(pod, ready)


def _exit(pod: PodView, ready: bool) -> Trouble:
    """How its container ended by itself."""
    ended = pod.ended
    if ended is None:
        said = "" if pod.told is None else f": {pod.told.reason} {pod.told.message}".rstrip()
        return Trouble("Crashed" if ready else "ExitedWhileStarting", f"the pod ended ({pod.phase}){said}")
    if ended.reason == "OOMKilled":
        return Trouble("OOMKilled", "its container used more memory than resources.memory allows")
    if ended.reason in ("StartError", "ContainerCannotRun"):
        return Trouble("CommandNotFound", ended.message or "its container could not be started")
    said = f": {ended.message}" if ended.message else ""
    return Trouble(
        "Crashed" if ready else "ExitedWhileStarting", f"the engine ended by itself with {ended.exit_code}{said}"
    )
