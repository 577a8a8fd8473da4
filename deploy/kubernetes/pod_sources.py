"""Where replicas' pods come from: an enrolled object, or a pod of our own, with what its node must have first."""

from __future__ import annotations

from collections.abc import Mapping

from coldstart.cache.wanting import Wanted
from deploy.kubernetes.enrolling import Enrolments
from deploy.kubernetes.node_cache import Bringing, NodeCache
from deploy.kubernetes.own_pod import OwnPod
from deploy.kubernetes.replica import PodReplica, PodSource
from deploy.kubernetes.shapes import Shapes
from deploy.kubernetes.shaping import ADAPTERS, HOST, WEIGHTS, PodOrder, WeightsMount, pod_name
from deploy.kubernetes.tools import Tools
from deploy.local.view import View
from events.names import ModelName
from runtime.adapters.registry import engine_for
from runtime.ports import LaunchRequest


class PodSources:
    """Of all models' replicas."""

    def __init__(self, tools: Tools, shapes: Shapes, view: View, enrolments: Enrolments, cache: NodeCache) -> None:
        self._tools = tools
        self._settings = tools.settings
        self._shapes = shapes
        self._view = view
        self._enrolments = enrolments
        self._cache = cache

    def source_for(self, replica: PodReplica) -> PodSource:
        """Where a replica's pod comes from. Raises ValueError."""
        declared, grant = replica.declared, replica.grant
        shape = self._shapes.of(declared.model, declared.uid, grant.revision)
        if shape.target is not None:
            return self._enrolments.source(declared.model, shape.target, replica.name, grant.placement.node)
        assert shape.pod is not None
        pod, epoch, name = shape.pod, self._epoch(declared.model), pod_name(declared.uid, grant)
        wanted = {one.name: one.wanted for one in declared.adapters if one.wanted is not None}
        if declared.wanted is not None:
            wanted = {"": declared.wanted} | wanted
        if wanted:
            replica.bringing = self._bringing(wanted, grant.placement.node, name)
        drain = max(1, round(self._view.granted(declared.model).drain_bound))

        def order() -> PodOrder:
            asked = LaunchRequest(
                model=declared.model, replica=replica.name, host=HOST, port=pod.port, slots=declared.slots,
                weights=replica.declared.weights, cpu=grant.resources.cpu, gpus=grant.placement.gpus,
                options=declared.options, adapters=tuple((one.name, one.path) for one in replica.declared.adapters),
            )  # fmt: skip
            return PodOrder(
                namespace=self._settings.namespace, model=declared.model, uid=declared.uid, grant=grant, shape=pod,
                launch=engine_for(declared.engine).launch(asked), owner=shape.owner, epoch=epoch,
                drain=drain, weights=self._mounts(replica),
            )  # fmt: skip

        return OwnPod(self._tools, name, self._settings.namespace, order)

    def _bringing(self, wanted: Mapping[str, Wanted], node: str, pod: str) -> Bringing:
        """How weights come to a pod's node. Raises ValueError where there are no agents."""
        if not self._settings.weights_claim:
            address = next(iter(wanted.values())).address
            raise ValueError(
                f"weights.uri: {address} goes through the node's cache, and no agents are installed; install "
                "them (the chart's agent.enabled, relume install --agent), or mount the weights with pod.mounts"
            )
        return Bringing(self._cache, self._tools.clock, node, f"{self._settings.namespace}/{pod}", wanted)

    def _mounts(self, replica: PodReplica) -> tuple[WeightsMount, ...]:
        """What of the node's cache a replica's pod sees."""
        brought = {} if replica.bringing is None else replica.bringing.brought
        claim = self._settings.weights_claim
        return tuple(
            WeightsMount(claim, one.folder, f"{ADAPTERS}/{name}" if name else WEIGHTS) for name, one in brought.items()
        )

    def _epoch(self, model: ModelName) -> int:
        view = self._view.models.get(model)
        return 0 if view is None or view.grant is None else view.grant.epoch or 0
