"""Who may ask, and how: the middlewares of the admin port.

Without a token or client certificates the port trusts this machine. A page in a browser runs on this machine too, so
the Host must be a loopback name (else a rebound DNS name reaches us), a foreign Origin is refused, and writes must
carry a content type that a form cannot send.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import uuid
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from deploy.api.problem import ProblemError, problem_response, refuse
from deploy.api.settings import AdminSettings
from deploy.settings.settings import is_loopback
from events.log import EventLogError
from events.units import Seconds

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

UNGUARDED: Final = frozenset({"/healthz", "/readyz"})
"""Probes carry no token; these say nothing about models."""

WRITE_TYPES: Final = frozenset({
    "application/json", "application/yaml", "application/x-yaml", "text/yaml", "application/cloudevents+json",
    "application/cloudevents-batch+json",
})  # fmt: skip
"""Content types of writes. None is one that a browser sends without asking first (text/plain, forms)."""

logger = logging.getLogger(__name__)


def middlewares(settings: AdminSettings) -> list[Middleware]:
    """All of them, outermost first."""
    return [problems, _who(settings), _content, _deadline(settings.request_timeout)]


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error leaves as a problem document; a bug leaves with a number to find it by and no traceback."""
    try:
        return await handler(request)
    except ProblemError as error:
        return problem_response(error)
    except web.HTTPException as error:
        return problem_response(_from_http(request, error))
    except EventLogError as error:
        return problem_response(_from_log(error))
    except Exception:  # the outermost place: logged whole, and never shown to the client
        incident = uuid.uuid4().hex[:12]
        logger.exception("admin request failed, incident %s: %s %s", incident, request.method, request.path)
        detail = f"relume made a mistake; its log tells more under incident {incident}"
        return problem_response(refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", detail))


def _who(settings: AdminSettings) -> Middleware:
    wanted = b"Bearer " + settings.token.encode()

    @web.middleware
    async def who(request: web.Request, handler: Handler) -> web.StreamResponse:
        if settings.open_to_loopback:
            _check_host(request)
        _check_origin(request)
        if settings.token and request.path not in UNGUARDED:
            given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
            if not hmac.compare_digest(given, wanted):
                raise _unauthorized()
        return await handler(request)

    return who


def _check_host(request: web.Request) -> None:
    host = urlsplit(f"//{request.host}").hostname or ""
    if not is_loopback(host.rstrip(".")):
        raise refuse(
            HTTPStatus.FORBIDDEN, "foreign-host",
            f"the Host {request.host!r} is not this machine's loopback, and no token is configured",
            remedy="ask http://127.0.0.1 or http://localhost, or start relume with an admin token",
        )  # fmt: skip


def _check_origin(request: web.Request) -> None:
    origin = request.headers.get("Origin")
    foreign = origin is not None and urlsplit(origin).netloc != request.host
    if foreign or request.headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"}:
        raise refuse(
            HTTPStatus.FORBIDDEN, "foreign-origin", f"a page of {origin or 'another site'} may not use the admin port",
            remedy="use the command line or a program instead of a page",
        )  # fmt: skip


def _unauthorized() -> ProblemError:
    error = refuse(
        HTTPStatus.UNAUTHORIZED, "token-required", "this admin port wants a bearer token, and the one given is not it",
        remedy="set RELUME_ADMIN_TOKEN or pass --token",
    )  # fmt: skip
    error.headers["WWW-Authenticate"] = 'Bearer realm="relume admin"'
    return error


@web.middleware
async def _content(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.method in {"POST", "PUT", "PATCH"} and request.content_type not in WRITE_TYPES:
        raise refuse(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "content-type", f"writes may not be {request.content_type}",
            remedy="send Content-Type: application/yaml or application/json",
        )  # fmt: skip
    return await handler(request)


def _deadline(seconds: Seconds) -> Middleware:
    @web.middleware
    async def deadline(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.match_info.handler in request.app[STREAMS]:
            return await handler(request)
        try:
            async with asyncio.timeout(seconds):
                return await handler(request)
        except TimeoutError as error:
            detail = f"the answer took longer than {seconds:g} s"
            raise refuse(HTTPStatus.GATEWAY_TIMEOUT, "too-slow", detail, remedy="try again") from error

    return deadline


STREAMS: Final = web.AppKey("streams", frozenset)
"""Handlers that stream for as long as the reader stays; they have write deadlines of their own."""


def _from_http(request: web.Request, error: web.HTTPException) -> ProblemError:
    status = HTTPStatus(error.status)
    if status is HTTPStatus.NOT_FOUND:
        return refuse(status, "no-such-path", f"there is no {request.path}", remedy="see /openapi.json")
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        problem = refuse(status, "method", f"{request.path} has no {request.method}", remedy="see /openapi.json")
        problem.headers["Allow"] = error.headers.get("Allow", "")
        return problem
    if status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return refuse(status, "body-too-large", error.text or "the body is too large", remedy="send fewer documents")
    return refuse(status, "http", error.text or error.reason)


def _from_log(error: EventLogError) -> ProblemError:
    problem = refuse(
        HTTPStatus.SERVICE_UNAVAILABLE, "log-unavailable", f"the event log cannot be used now: {error}",
        remedy="see that the disk has space and the broker answers, then try again",
    )  # fmt: skip
    problem.headers["Retry-After"] = "1"
    return problem
