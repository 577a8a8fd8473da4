"""``/v1/models``: what is declared, with its state."""

from __future__ import annotations

import json

from tests.support.gateway import Gateways
from tests.support.scripted_slots import ScriptedSlots


async def test_models_are_listed_from_the_catalog(gateways: Gateways) -> None:
    """The list, an entry by name and by alias with an escaped slash, HEAD without body, 404 and 405 for the rest."""
    client = await gateways.client(await gateways.start(ScriptedSlots([])))
    listing = await client.ask(b"GET /v1/models HTTP/1.1\r\nHost: t\r\n\r\n")
    data = json.loads(listing.body)
    assert data["object"] == "list"
    assert data["data"] == [
        {
            "id": "echo", "object": "model", "created": 1_700_000_000, "owned_by": "relume", "state": "Zero",
            "aliases": ["alias/echo"],
        }
    ]  # fmt: skip
    for name in (b"echo", b"alias%2Fecho", b"alias/echo"):
        entry = await client.ask(b"GET /v1/models/%b HTTP/1.1\r\nHost: t\r\n\r\n" % name)
        assert json.loads(entry.body)["id"] == "echo"
    head = await client.ask(b"HEAD /v1/models HTTP/1.1\r\nHost: t\r\n\r\n", head_only=True)
    assert int(head.headers["content-length"]) == len(listing.body)
    missing = await client.ask(b"GET /v1/models/none HTTP/1.1\r\nHost: t\r\n\r\n")
    assert missing.status == 404
    assert json.loads(missing.body)["error"]["code"] == "model_not_found"
    assert missing.headers["x-should-retry"] == "false"
    wrong = await client.ask(b"POST /v1/models HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\n{}")
    assert (wrong.status, wrong.headers["allow"]) == (405, "GET, HEAD")
