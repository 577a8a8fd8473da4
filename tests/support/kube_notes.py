"""What a kubelet keeps for a container beside its process: the pod's annotations as a file, and its last words."""

from __future__ import annotations

import json
from pathlib import Path

from deploy.kubernetes.resources import Json


class PodNotes:
    """Of one pod, in a folder of its own."""

    def __init__(self, pod: Json, folder: Path) -> None:
        self.folder = folder / f"{pod['metadata']['name']}-{pod['metadata']['uid'][:8]}"
        container = pod["spec"]["containers"][0]
        volumes = {one["name"] for one in pod["spec"].get("volumes", []) if "downwardAPI" in one}
        self._mounts = [one["mountPath"] for one in container.get("volumeMounts", []) if one["name"] in volumes]
        self._message_path: str = container.get("terminationMessagePath", "/dev/termination-log")
        self._message = self.folder / "termination-log"
        self.folder.mkdir(exist_ok=True)
        self._message.touch()
        self.refresh(pod)

    def refresh(self, pod: Json) -> None:
        """The pod changed: write its annotations anew, as the downward API has them."""
        if self._mounts:
            annotations = pod["metadata"].get("annotations", {})
            text = "".join(f"{name}={json.dumps(value)}\n" for name, value in sorted(annotations.items()))
            partial = self.folder / "annotations.partial"
            partial.write_text(text, encoding="utf-8")
            partial.replace(self.folder / "annotations")

    def mapped(self, text: str) -> str:
        """Paths in the container, as they are here."""
        for mount in self._mounts:
            text = text.replace(mount, str(self.folder))
        return text.replace(self._message_path, str(self._message))

    def last_words(self) -> str:
        """The termination message, as far as a kubelet takes it."""
        return self._message.read_bytes()[-4096:].decode("utf-8", "replace")
