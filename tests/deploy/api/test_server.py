"""The admin API over real HTTP: models, replicas, decisions, errors."""

from __future__ import annotations

from tests.support.admin import ECHO, Admin, observed, replica


async def test_apply_then_get_shows_the_model_at_zero(admin: Admin) -> None:
    """A declared model is there at once, in the list shape, with state Zero."""
    status, body = await admin.apply()
    assert status == 200
    assert body["items"][0]["action"] == "created"
    status, body = await admin.get("/v1alpha1/models")
    (item,) = body["items"]
    assert item["metadata"]["name"] == "echo"
    assert item["spec"]["scaling"]["keepAlive"] == "5m"
    assert item["status"]["state"] == "Zero"
    assert item["status"]["heldRequests"] is None
