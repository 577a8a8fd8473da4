"""An enrolled object's replicas and the pods that they were given; and which pods go when the object's number falls.

Pure. Whom a controller ends it decides by itself: a StatefulSet its highest ordinal, a ReplicaSet by a ranking. So a
replica is drained before the number falls that its object would end, though another one was to go: the successor gets
that one's pod, which runs already.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from deploy.kubernetes.views import PodView


@dataclass(slots=True)
class Seat:
    """A replica of ours and the pod that it was given, as it was seen last.

    `drains`: it takes nothing new, and leaves then. `ended`: another hand ends the pod, or has, so its object makes
    another; or it is `displaced`: its object would end the pod next, though another one left. `succeeded`: a further
    replica is there to have the other pod. `node`: where it was granted a place.
    """

    pod: PodView | None = None
    node: str = ""
    drains: bool = False
    leaving: bool = False
    ended: bool = False
    displaced: bool = False
    succeeded: bool = False

    @property
    def firm(self) -> bool:
        """Whether its object must run a pod for it."""
        return not (self.leaving or self.ended)

    @property
    def held(self) -> bool:
        """Whether the number does not fall by it yet: its successor is still to come."""
        return self.ended and not self.succeeded


_PHASES: Final = ("Pending", "Unknown", "Running")


def next_to_go(pods: Iterable[PodView], there: int, wanted: int, cheapest: Collection[str]) -> list[PodView]:
    """Of an object's pods those that it ends when its number falls from `there` to `wanted`. `pods`: that neither end
    nor have ended. `cheapest`: uids of those that were said to cost least.

    A StatefulSet ends the highest ordinals. A ReplicaSet (Kubernetes 1.37, `ActivePodsWithRanks`) ends what has no
    node, then what is pending, then what is not ready by its probes, then what costs least; what comes after that is
    of no account here, since those that leave cost least.
    """
    some = list(pods)
    ordinals = [pod.ordinal for pod in some if pod.ordinal is not None]
    if ordinals:
        first = max(0, max(ordinals) - there + 1)  # where an object's ordinals begin
        return [pod for pod in some if pod.ordinal is not None and pod.ordinal >= first + wanted]
    some.sort(key=lambda pod: (*_rank(pod), pod.uid not in cheapest, -pod.created_at, pod.name))
    return some[: max(0, len(some) - wanted)]


def _rank(pod: PodView) -> tuple[bool, int, bool]:
    phase = _PHASES.index(pod.phase) if pod.phase in _PHASES else 0
    return bool(pod.node), phase, pod.ready


def displace(seats: Iterable[Seat], going: Collection[str]) -> bool:
    """Make the number free to fall so that pods of these uids go; whether it is. Who drains in one of them is waited
    for. Who is not to leave is displaced, and for each such the pod of one that leaves is free for the successor."""
    all_seats = list(seats)
    in_the_way = [
        seat for seat in all_seats
        if seat.pod is not None and seat.pod.uid in going and not (seat.leaving or seat.pod.deleting)
    ]  # fmt: skip
    for seat in in_the_way:
        if not (seat.ended or seat.drains):
            seat.ended = seat.displaced = True
            free_one(all_seats, going)
    return not in_the_way


def free_one(seats: Iterable[Seat], going: Collection[str] = ()) -> bool:
    """Let the pod of a replica that leaves be another's, if there is one that stays; whether there was."""
    for seat in seats:
        pod = seat.pod
        if pod is not None and seat.leaving and not (pod.deleting or pod.over or pod.uid in going):
            if seat.ended and not seat.displaced:
                continue
            seat.pod = None
            return True
    return False
