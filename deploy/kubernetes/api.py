"""Calls to the API server: JSON in, JSON out, over the client of `kubernetes.aio`.

That client brings what is hard: kubeconfig files, accounts in a cluster, tokens that change, TLS. Its 800 typed models
stay aside: they refuse fields of newer servers, and a fold over watches needs a few fields of large objects only.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import aiohttp

from deploy.kubernetes.resources import MANAGER, Json
from events.units import Seconds

if TYPE_CHECKING:
    from kubernetes.aio.client import ApiClient, Configuration

CALL_WITHIN: Final = Seconds(15.0)
"""For one call: an API server that is healthy answers within a second; its own bound for a request is a minute."""
WATCHED_FOR: Final = 290
"""Seconds after which the server ends a watch by itself (client-go: 5 to 10 minutes)."""
LINE_MOST: Final = 64 << 10
"""Bytes of a line of a pod's log. Chosen: above it a line is no line for people."""
SILENT_FOR: Final = Seconds(100.0)
"""A watch that says nothing for so long may be dead, and is asked for anew: a server with news sends a bookmark once a
minute, one without has nothing to say."""

UNDECLARED: Final = "field not declared in schema"
"""In the answer to an apply with a field that the kind's definition does not have."""
_STATUS_FIELD: Final = re.compile(rf"\.status\.(\w+)[^:\s]*: {UNDECLARED}")

Query = Mapping[str, str]
Refresh = Callable[[], Coroutine[Any, Any, None]]
"""Keeps a token fresh that a kubeconfig's plug-in gives; returns at once for other kinds of credentials."""

logger = logging.getLogger(__name__)
T = TypeVar("T")


class KubernetesMissing(Exception):
    """The client is not installed, or there is no cluster to speak to. The text says what to do."""


class ApiError(Exception):
    """The API server refused a call: its status, its reason, its sentence; and the fields that it names."""

    def __init__(self, status: int, reason: str, message: str, causes: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(f"{reason or status}: {message}")
        self.causes = causes
        self.status = status
        self.reason = reason
        self.message = message


class ApiUnavailable(Exception):
    """The API server cannot be reached, or has too much to do. Trying again later may work; `after` when it said so."""

    def __init__(self, message: str, after: Seconds | None = None) -> None:
        super().__init__(message)
        self.after = after


class VersionGone(Exception):
    """What happened since that resource version is not known any more (410): list again."""


class KubeApi:
    """One API server, as one user. Used on one event loop; close it. `calls` counts, by verb."""

    def __init__(self, client: ApiClient, refresh: Refresh | None = None) -> None:
        self._client = client
        self._refreshing = None if refresh is None else asyncio.create_task(_refresh(refresh), name="kubernetes-token")
        self.calls: dict[str, int] = {}

    async def close(self) -> None:
        """Close its connections."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)
        await self._client.close()  # type: ignore[no-untyped-call]  # published half typed

    async def get(self, path: str, query: Query | None = None) -> Json:
        """Read an object or a collection."""
        return await self._call("GET", path, query)

    async def create(self, path: str, body: Json, query: Query | None = None) -> Json:
        """Make an object."""
        return await self._call("POST", path, query, body)

    async def replace(self, path: str, body: Json) -> Json:
        """Write an object whose resource version is still the one in `body`; ApiError 409 otherwise."""
        return await self._call("PUT", path, None, body)

    async def apply(self, path: str, body: Json, query: Query | None = None) -> Json:
        """Server-side apply by our field manager; what others own is taken over."""
        asked = {"fieldManager": MANAGER, "force": "true"} | dict(query or {})
        return await self._call("PATCH", path, asked, body, "application/apply-patch+yaml")

    async def apply_status(self, path: str, body: Json) -> Json:
        """As `apply`, of an object's ``status``. What a definition older than this relume does not know of it is left
        out."""
        while True:
            try:
                return await self.apply(f"{path}/status", body)
            except ApiError as error:
                status = dict(body["status"])
                known = {name: value for name, value in status.items() if name not in _undeclared(error)}
                if len(known) == len(status):
                    raise
                body = {**body, "status": known}

    async def merge(self, path: str, body: Json) -> Json:
        """Change some fields (JSON merge patch)."""
        return await self._call("PATCH", path, {"fieldManager": MANAGER}, body, "application/merge-patch+json")

    async def delete(self, path: str, *, grace: int | None = None, uid: str = "") -> bool:
        """Delete an object; False when it is gone. `uid`: only this one, not another of the same name."""
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            await self._call("DELETE", path, None, options)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND and not (uid and error.status == HTTPStatus.CONFLICT):
                raise
            return False
        return True

    async def watch(self, path: str, query: Query) -> AsyncIterator[Json]:
        """What happens in a collection, until the server ends the watch or is silent for long. Raises VersionGone and
        what calls raise."""
        asked = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(WATCHED_FOR)} | dict(query)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CALL_WITHIN, sock_read=SILENT_FOR)
        try:
            async with self._asked("GET", path, asked, None, ("", timeout)) as answer:
                if answer.status != HTTPStatus.OK:
                    raise _refusal(answer, await answer.read())
                try:
                    async for line in answer.content:
                        yield _event(line)
                except aiohttp.SocketTimeoutError:
                    return  # going on from the last version costs one call; a server that is dead refuses it
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ApiUnavailable(f"the watch of {path} broke: {_said(error)}") from error

    async def lines(self, path: str, query: Query) -> AsyncIterator[str]:
        """A text that may go on for long, line by line; a line longer than `LINE_MOST` is cut into several."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CALL_WITHIN, sock_read=None)
        rest = b""
        try:
            async with self._asked("GET", path, query, None, ("", timeout)) as answer:
                if answer.status != HTTPStatus.OK:
                    raise _refusal(answer, await answer.read())
                async for piece in answer.content.iter_any():
                    *whole, rest = (rest + piece).split(b"\n")
                    for line in whole:
                        yield line.decode("utf-8", "backslashreplace")
                    if len(rest) > LINE_MOST:
                        yield rest.decode("utf-8", "backslashreplace")
                        rest = b""
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ApiUnavailable(f"{path}: {_said(error)}") from error
        if rest:
            yield rest.decode("utf-8", "backslashreplace")

    async def _call(
        self, verb: str, path: str, query: Query | None, body: Json | None = None, kind: str = "application/json"
    ) -> Json:
        timeout = aiohttp.ClientTimeout(total=CALL_WITHIN)
        try:
            async with self._asked(verb, path, query, body, (kind, timeout)) as answer:
                raw = await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ApiUnavailable(f"{verb} {path}: {_said(error)}") from error
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise _refusal(answer, raw)
        said: Json = json.loads(raw) if raw else {}
        return said

    @asynccontextmanager
    async def _asked(
        self, verb: str, path: str, query: Query | None, body: Json | None, how: tuple[str, aiohttp.ClientTimeout]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        kind, timeout = how
        self.calls[verb] = self.calls.get(verb, 0) + 1
        headers = {"Accept": "application/json"} | ({"Content-Type": kind} if kind and body is not None else {})
        method, url, made, _, _ = await self._client.param_serialize(
            verb, path, query_params=list((query or {}).items()), header_params=headers, auth_settings=["BearerToken"]
        )  # the body goes as it is: JSON needs no conversion, and an empty object is one too
        answer = await self._client.rest_client.request(  # type: ignore[no-untyped-call]  # published half typed
            method, url, headers=made, body=None if body is None else dict(body), _request_timeout=timeout
        )
        async with answer.response as response:
            try:
                yield response
            finally:
                _leave(response)


def _leave(response: aiohttp.ClientResponse) -> None:
    """Without a farewell, when the answer was not heard to its end: in TLS that would wait half a minute for the
    server's, which may be dead or busy, and we may be gone before."""
    connection = response.connection  # None once the answer has ended
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


async def connect(kubeconfig: Path | None, context: str = "") -> KubeApi:
    """By a kubeconfig file; without one, as the account of the pod that we are in, or by the user's own kubeconfig.

    Raises KubernetesMissing.
    """
    try:
        from kubernetes.aio import client, config  # noqa: PLC0415 - an extra, and 0.5 s to import
    except ImportError as error:
        raise KubernetesMissing("relume speaks to Kubernetes with its client; install relume[kubernetes]") from error
    configuration = client.Configuration()
    try:
        loader = await _configure(config, configuration, kubeconfig, context)
    except (config.ConfigException, OSError, ValueError) as error:
        where = f"the kubeconfig {kubeconfig}" if kubeconfig else "a kubeconfig or the account of a pod"
        raise KubernetesMissing(f"no cluster is known by {where}: {error}; give --kubeconfig FILE") from error
    refresh: Any = config.refresh_token
    made = client.ApiClient(configuration)
    return KubeApi(made, None if loader is None else lambda: refresh(loader, configuration))


async def _configure(config: Any, configuration: Configuration, kubeconfig: Path | None, context: str) -> object | None:
    """What keeps the credentials of a kubeconfig; None for those of a pod, which the client reads anew by itself."""
    if kubeconfig is None:
        try:
            config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException:
            loader: object = await config.load_kube_config(
                context=context or None, client_configuration=configuration, persist_config=False
            )
            return loader
        return None
    found: object = await config.load_kube_config(
        config_file=str(kubeconfig), context=context or None, client_configuration=configuration, persist_config=False
    )
    return found


async def _refresh(refresh: Refresh) -> None:
    """Go on refreshing whatever the plug-in does: the token that is there serves until it runs out."""
    while True:
        try:
            await refresh()
        except Exception as error:  # noqa: BLE001 - a program of the user's failed; calls tell when it matters
            logger.warning("the token of the kubeconfig was not renewed: %s", error)
            await asyncio.sleep(10)
        else:
            return  # there is nothing to renew


async def insist(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Call until the API server answers. Raises ApiError."""
    tries = 0
    while True:
        try:
            return await call()
        except ApiUnavailable as error:
            logger.debug("asks again: %s", error)
            await pause(tries, error.after)
            tries += 1


def _event(line: bytes) -> Json:
    said: Json = json.loads(line)
    if said["type"] != "ERROR":
        return said
    status = said["object"]
    if status.get("code") == HTTPStatus.GONE:
        raise VersionGone(str(status.get("message", "")))
    raise ApiUnavailable(f"the watch was ended: {status.get('reason', '')}: {status.get('message', '')}")


def _refusal(answer: aiohttp.ClientResponse, raw: bytes) -> Exception:
    """What an answer with an error means: later, or no."""
    try:
        status = json.loads(raw)
    except ValueError:
        status = {"message": raw[:300].decode(errors="replace")}
    message, reason = str(status.get("message", "")), str(status.get("reason", ""))
    if answer.status == HTTPStatus.GONE:
        return VersionGone(message)
    if UNDECLARED in message:  # a server that cannot know of the field says that it failed itself
        message = f"{message}; the definition is older than this relume: relume install --only-crds upgrades it"
        return ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, "FieldUnknown", message)
    later = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.UNAUTHORIZED)  # a token that ran out is renewed
    if answer.status in later or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        after = answer.headers.get("Retry-After", "")
        return ApiUnavailable(f"{answer.status} {reason} {message}", Seconds(float(after)) if after.isdigit() else None)
    named = status.get("details", {}).get("causes", ())
    causes = tuple((str(one.get("field", "")), str(one.get("message", ""))) for one in named)
    return ApiError(answer.status, reason, message, causes)


def _undeclared(error: ApiError) -> set[str]:
    """The fields of a status that a definition does not have."""
    return set(_STATUS_FIELD.findall(error.message)) if error.reason == "FieldUnknown" else set()


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


async def pause(tries: int, after: Seconds | None = None) -> None:
    """Before the next try of a call: 0.1, 0.2, 0.4 … 10 s, or as long as the server said."""
    await asyncio.sleep(after if after is not None else min(10.0, 0.1 * 2.0 ** min(tries, 10)))
