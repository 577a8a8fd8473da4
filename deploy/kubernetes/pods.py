"""The pods of the cluster as they are now, and whoever waits for one of them.

Of our own namespace all are followed. Of the others only those that take resources of a node count: bound ones that are
not over. What is read of a pod stands in its view (`views`), and the view is all that is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace

from deploy.kubernetes.api import KubeApi
from deploy.kubernetes.reflecting import Reflector, key_of, version_only
from deploy.kubernetes.resources import PODS, Json
from deploy.kubernetes.views import OVER, PodView, pod_of, taker_of

Heard = Callable[[PodView, bool], None]
"""Takes a pod and whether it is still there."""


class PodStore:
    """Follows the pods of `namespace`, and those of others that take resources of nodes."""

    def __init__(self, api: KubeApi, namespace: str, heard: Heard) -> None:
        elsewhere = ",".join(
            (f"metadata.namespace!={namespace}", "spec.nodeName!=", *(f"status.phase!={one}" for one in OVER))
        )
        self._ours = Reflector(api, PODS.path(namespace), self._changed, keep=version_only)
        self._others = Reflector(api, PODS.path(), self._changed_elsewhere, {"fieldSelector": elsewhere}, version_only)
        self.reflectors = (self._ours, self._others)
        self._heard = heard
        self._said: dict[str, PodView] = {}
        """As the API server has them."""
        self._views: dict[str, PodView] = {}
        """With what else is known of their GPUs."""
        self._bells: dict[str, set[asyncio.Event]] = {}
        self.unwell: Callable[[PodView], bool] = lambda _: False
        """Whether a GPU of a pod is sick by other words than its kubelet's."""

    def __iter__(self) -> Iterator[PodView]:
        return iter(self._views.values())

    def get(self, namespace: str, name: str) -> PodView | None:
        """One pod, if it is there."""
        return self._views.get(f"{namespace}/{name}")

    def expect(self, item: Json) -> PodView:
        """What the API server answered to our own write: known before the watch tells it."""
        key = key_of(item)
        known = self._views.get(key)
        if known is None or known.uid != item["metadata"]["uid"]:
            self._ours.objects[key] = version_only(item)
            self._changed(key, item)
        return self._views[key]

    def bell(self, namespace: str, name: str) -> asyncio.Event:
        """Set whenever that pod changes. Give it back with `unbell`."""
        event = asyncio.Event()
        self._bells.setdefault(f"{namespace}/{name}", set()).add(event)
        return event

    def unbell(self, namespace: str, name: str, event: asyncio.Event) -> None:
        """Nobody waits by it any more."""
        key = f"{namespace}/{name}"
        waiting = self._bells.get(key, set())
        waiting.discard(event)
        if not waiting:
            self._bells.pop(key, None)

    def look_again(self, node: str) -> None:
        """Something else is known of the GPUs of a node: its pods may be sick, or well again."""
        for key, said in list(self._said.items()):
            if said.node == node and self._judged(said) != self._views[key]:
                self._take(key, said)

    def _judged(self, said: PodView) -> PodView:
        return replace(said, sick=True) if not said.sick and self.unwell(said) else said

    def _changed(self, key: str, item: Json | None) -> None:
        self._take(key, None if item is None else pod_of(item))

    def _changed_elsewhere(self, key: str, item: Json | None) -> None:
        self._take(key, None if item is None else taker_of(item))

    def _take(self, key: str, said: PodView | None) -> None:
        if said is None:
            self._said.pop(key, None)
            view = self._views.pop(key, None)
        else:
            self._said[key] = said
            view = self._views[key] = self._judged(said)
        for event in self._bells.get(key, ()):
            event.set()
        if view is not None:
            self._heard(view, said is not None)
