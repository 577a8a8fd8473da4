"""What members of training jobs wrote: the logs of their pods, as those of replicas."""

from __future__ import annotations

from deploy.kubernetes.pod_logs import PodLogs
from deploy.kubernetes.training.shaping import run_of
from deploy.kubernetes.views import PodView


class MemberLogs(PodLogs):
    """The newest pod of a member; an ended one stays until the next run. Of an enrolled Job's pods ask `kubectl`."""

    def _is(self, pod: PodView, replica: str) -> bool:
        known = run_of(pod.annotations)
        return known is not None and known[2] == replica
