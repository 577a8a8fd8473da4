"""The output of replicas over HTTP."""

from __future__ import annotations

import asyncio

from tests.support.admin import Admin


async def test_the_last_lines(admin: Admin) -> None:
    """As many lines as asked for, oldest first; none with tail=0; 404 with the nearest for an unknown replica."""
    admin.logs.lines["echo-r1-0"] = [f"line {n}" for n in range(5)]
    path = "/v1alpha1/replicas/echo-r1-0/logs"
    assert await admin.text(f"{path}?tail=2") == "line 3\nline 4\n"
    assert await admin.text(f"{path}?tail=0") == ""
    assert (await admin.get("/v1alpha1/replicas/echo-r1-9/logs"))[0] == 404


async def test_following_ends_with_the_replica(admin: Admin) -> None:
    """The last lines, then each new one as it comes, then the end."""
    admin.logs.lines["echo-r1-0"] = ["old"]
    async with (
        asyncio.timeout(10),
        admin.http.get("/v1alpha1/replicas/echo-r1-0/logs?follow=true&tail=1") as response,
    ):
        assert response.content_type == "text/plain"
        assert await response.content.readline() == b"old\n"
        for text in ("new", "lone surrogate \udcff"):
            admin.logs.new.put_nowait(text)
        assert await response.content.readline() == b"new\n"
        assert await response.content.readline() == b"lone surrogate \\udcff\n"
        admin.logs.new.put_nowait(None)
        assert await response.content.read() == b""
