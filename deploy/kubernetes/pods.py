"""All pods of the cluster as they are now, and whoever waits for one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace

from deploy.kubernetes.api import KubeApi
from deploy.kubernetes.reflecting import Reflector, key_of
from deploy.kubernetes.resources import PODS, Json
from deploy.kubernetes.views import PodView, pod_of

Heard = Callable[[PodView, bool], None]
"""Takes a pod and whether it is still there."""


class PodStore:
    """Follows the pods of all namespaces: those of others take resources of nodes too."""

    def __init__(self, api: KubeApi, heard: Heard) -> None:
        self.reflector = Reflector(api, PODS.path(), self._changed)
        self._heard = heard
        self._views: dict[str, PodView] = {}
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
            self.reflector.objects[key] = item
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
        for key, view in list(self._views.items()):
            item = self.reflector.objects.get(key) if view.node == node else None
            if item is not None and self._seen(item) != view:
                self._changed(key, item)

    def _seen(self, item: Json) -> PodView:
        view = pod_of(item)
        return replace(view, sick=True) if not view.sick and self.unwell(view) else view

    def _changed(self, key: str, item: Json | None) -> None:
        if item is None:
            view = self._views.pop(key, None)
        else:
            view = self._views[key] = self._seen(item)
        for event in self._bells.get(key, ()):
            event.set()
        if view is not None:
            self._heard(view, item is not None)
