"""A copy of a collection follows the API server through everything that watches do."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from deploy.kubernetes import reflecting
from deploy.kubernetes.api import ApiError, ApiUnavailable, KubeApi, VersionGone
from deploy.kubernetes.reflecting import Reflector
from deploy.kubernetes.resources import Json
from events.units import Seconds
from tests.support.kube_fake import Scripted


def item(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "resourceVersion": str(version)}}


def listed(version: int, *items: Json, more: str = "") -> Json:
    metadata = {"resourceVersion": str(version)} | ({"continue": more} if more else {})
    return {"apiVersion": "v1", "kind": "PodList", "metadata": metadata, "items": list(items)}


def event(kind: str, name: str, version: int) -> Json:
    return {"type": kind, "object": item(name, version)}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited for is counted elsewhere."""

    async def pause(tries: int, after: Seconds | None = None) -> None:
        del tries, after
        await asyncio.sleep(0)

    monkeypatch.setattr(reflecting, "pause", pause)


async def follow(*answers: Any) -> tuple[Reflector, Scripted, list[tuple[str, str]]]:
    """Follow a script to its end: the copy, what was asked, and what was told."""
    server, told = Scripted(*answers), []

    def changed(key: str, found: Json | None) -> None:
        told.append((key, "gone" if found is None else str(found["metadata"]["resourceVersion"])))

    reflector = Reflector(cast("KubeApi", server), "/api/v1/pods", changed)
    running = asyncio.create_task(reflector.run())
    await asyncio.wait_for(server.done.wait(), 5)
    running.cancel()
    return reflector, server, told


async def test_it_lists_and_then_watches_from_there() -> None:
    """All that is there, page by page, then what changes, is removed, and comes."""
    reflector, server, told = await follow(
        listed(4, item("a", 1), more="page 2"), listed(5, item("b", 2)),
        [event("MODIFIED", "a", 6), event("DELETED", "b", 7), event("ADDED", "c", 8)],
    )  # fmt: skip
    assert told == [("n/a", "1"), ("n/b", "2"), ("n/a", "6"), ("n/b", "gone"), ("n/c", "8")]
    assert set(reflector.objects) == {"n/a", "n/c"}
    assert server.asked[1]["continue"] == "page 2"
    assert server.asked[2]["resourceVersion"] == "5"
    assert reflector.objects["n/c"].get("kind") is None or reflector.synced.is_set()


async def test_a_watch_that_ends_goes_on_where_it_was() -> None:
    """After the server ended it, after a bookmark, after a broken connection: no list, nothing told twice."""
    reflector, server, told = await follow(
        listed(5, item("a", 1)), [event("MODIFIED", "a", 6)],
        [event("BOOKMARK", "", 20), ApiUnavailable("the connection broke")], [event("MODIFIED", "a", 21)],
    )  # fmt: skip
    assert told == [("n/a", "1"), ("n/a", "6"), ("n/a", "21")]
    assert [asked["resourceVersion"] for asked in server.asked[1:]] == ["5", "6", "20", "21"]
    assert reflector.stats.lists == 1


async def test_a_past_that_is_forgotten_is_listed_again() -> None:
    """410 Gone, in the stream or at once: the new list tells what changed, came and went meanwhile, and no more."""
    reflector, _, told = await follow(
        listed(5, item("a", 1), item("b", 2), item("c", 3)), [VersionGone("too old")],
        listed(90, item("a", 1), item("b", 80), item("d", 81)), [event("ADDED", "e", 91)],
    )  # fmt: skip
    assert told[3:] == [("n/b", "80"), ("n/d", "81"), ("n/c", "gone"), ("n/e", "91")]
    assert reflector.stats.gone == 1


async def test_what_the_server_refuses_is_asked_again() -> None:
    """Permissions come and go, kinds are defined later, servers are throttled: it goes on by itself."""
    reflector, _, told = await follow(
        ApiError(403, "Forbidden", "no"), ApiUnavailable("429", Seconds(1.0)), listed(5, item("a", 1)), [],
    )  # fmt: skip
    assert told == [("n/a", "1")]
    assert reflector.stats.broken == 2


async def test_what_is_made_while_it_lists_is_not_gone() -> None:
    """An object that we made ourselves while a list was under way may be missing in it; it is there all the same."""
    server, told = Scripted(), []
    reflector = Reflector(cast("KubeApi", server), "/api/v1/pods", lambda key, found: told.append((key, found is None)))

    async def get(path: str, query: Any = None) -> Json:
        del path, query
        reflector.objects["n/mine"] = item("mine", 9)
        return listed(5)

    server.get = get  # type: ignore[method-assign]  # the moment between the question and the answer
    running = asyncio.create_task(reflector.run())
    await asyncio.wait_for(server.done.wait(), 5)
    running.cancel()
    assert told == []
    assert "n/mine" in reflector.objects


async def test_a_list_of_several_pages_is_taken_page_by_page() -> None:
    """Never are all objects held whole at once; what is gone is told when the last page has been read, not before."""
    first, last = listed(90, item("a", 80)), listed(90, item("d", 81))
    first["metadata"]["continue"] = "more"
    reflector, server, told = await follow(
        listed(5, item("a", 1), item("c", 3)), [VersionGone("too old")],
        first, ApiUnavailable("500", Seconds(0.0)), first, last, [],
    )  # fmt: skip
    assert told[2:] == [("n/a", "80"), ("n/d", "81"), ("n/c", "gone")]
    assert set(reflector.objects) == {"n/a", "n/d"}
    assert [query.get("continue") for query in server.asked if "limit" in query] == [None, None, "more", None, "more"]
