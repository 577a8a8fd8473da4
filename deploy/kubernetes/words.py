"""Which objects say something else than before: of most that a watch tells only the status was written, by us."""

from __future__ import annotations

from deploy.kubernetes.resources import Json


class Words:
    """What people have written into each object of a collection: for kinds whose status is a part of its own, so that
    the generation is that of everything but metadata and status."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[object, ...]] = {}

    def changed(self, key: str, item: Json | None) -> bool:
        """Whether an object says something else than when this was asked last; or is gone, or new."""
        if item is None:
            self._said.pop(key, None)
            return True
        metadata = item["metadata"]
        said = (
            metadata["uid"], metadata.get("generation"), "deletionTimestamp" in metadata, metadata.get("labels"),
            metadata.get("annotations"),
        )  # fmt: skip
        before = self._said.get(key)
        self._said[key] = said
        return said != before
