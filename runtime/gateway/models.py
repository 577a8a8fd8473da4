"""``/v1/models`` in OpenAI's form, from what is declared: a model at zero is listed like any other, with its state."""

from __future__ import annotations

import orjson

from runtime.gateway.errors import Refused, unknown_model
from runtime.ports import Catalog, CatalogEntry


def model_list(catalog: Catalog) -> bytes:
    """All declared models as JSON."""
    return orjson.dumps({"object": "list", "data": [_fields(entry) for entry in catalog.entries()]})


def model_entry(catalog: Catalog, name: str) -> bytes:
    """The model with this name or alias as JSON. Raises Refused with a 404."""
    for entry in catalog.entries():
        if entry.name == name or name in entry.aliases:
            return orjson.dumps(_fields(entry))
    raise Refused(unknown_model(name))


def _fields(entry: CatalogEntry) -> dict[str, object]:
    return {
        "id": entry.name,
        "object": "model",
        "created": entry.created,
        "owned_by": "relume",
        "state": entry.state,
        "aliases": list(entry.aliases),
    }
