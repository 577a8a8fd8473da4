"""Who reads from an OCI registry: the Authorization header by the registry's own challenge, renewed before it ends.

As the distribution specification has it: ``GET /v2/`` answers 401 with ``WWW-Authenticate: Bearer realm="…"``, where a
token is had, for a user and a password or for nobody; or with ``Basic``, and the two are sent each time.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlencode, urlsplit

from coldstart.adapters.http_channel import is_sendable, phrase
from coldstart.core.cache.errors import CredentialsMissing, Interrupted, SourceBroken, SourceRefused
from coldstart.core.cache.policy import FetchPolicy
from events.clock import Clock

TOKEN_SECONDS: Final = 60.0
"""How long a token lives that does not say (distribution specification, token authentication)."""
_EARLY: Final = 0.8
"""Of its life, after which the next one is asked for. Chosen: a request under way still arrives in time."""
_ANSWER_BYTES_MOST: Final = 1 << 20
_TOKEN: Final = re.compile(r"[!-~]+")
_PARAMETER: Final = re.compile(r'(\w+)="([^"]*)"')


class _Stay(urllib.request.HTTPRedirectHandler):
    """Secrets go where they were meant to go, and no further."""

    def redirect_request(self, *_: object) -> None:
        """No."""


class Login:
    """The header for one repository of one registry. Used by several threads."""

    def __init__(self, base: str, repository: str, secret: str | None, policy: FetchPolicy, clock: Clock) -> None:
        self._base, self._repository = base, repository
        self._basic = None if secret is None else base64.b64encode(secret.encode()).decode()
        self._wait = policy.connect + policy.stall
        self._clock = clock
        self._lock = threading.Lock()
        self._challenge: tuple[str, dict[str, str]] | None = None
        self._headers: dict[str, str] = {}
        self._until = 0.0

    def headers(self) -> Mapping[str, str]:
        """What to send now. Raises SourceRefused, SourceBroken or Interrupted."""
        with self._lock:
            if self._challenge is None:
                self._challenge = self._challenged()
            kind, told = self._challenge
            if kind == "basic":
                return {} if self._basic is None else {"Authorization": f"Basic {self._basic}"}
            if kind == "bearer" and self._clock.now() >= self._until:
                self._renew(told)
            return self._headers

    def _challenged(self) -> tuple[str, dict[str, str]]:
        status, headers, _ = self._get(f"{self._base}/v2/", {})
        if status == 200:
            return "", {}
        kind, _, rest = headers.get("www-authenticate", "").partition(" ")
        if status != 401 or kind.lower() not in ("basic", "bearer"):
            raise SourceBroken(self._base, f"GET /v2/ answers {status}, as no OCI registry does")
        return kind.lower(), {name.lower(): value for name, value in _PARAMETER.findall(rest)}

    def _renew(self, told: dict[str, str]) -> None:
        realm = told.get("realm", "")
        if not is_sendable(realm) or urlsplit(realm).scheme not in ("http", "https"):
            raise SourceBroken(self._base, "where it gives tokens is no http or https address")
        if urlsplit(realm).scheme != "https" and urlsplit(self._base).scheme != "http":
            raise SourceBroken(self._base, "it wants its token asked for without https")
        asked = {"service": told.get("service", ""), "scope": f"repository:{self._repository}:pull"}
        mine = {} if self._basic is None else {"Authorization": f"Basic {self._basic}"}
        status, _, body = self._get(f"{realm}?{urlencode(asked)}", mine)
        if status != 200:
            raise SourceRefused(self._base, f"it gives no token for {self._repository} ({status})")
        token, life = self._read(body)
        self._headers = {"Authorization": f"Bearer {token}"}
        self._until = self._clock.now() + _EARLY * life

    def _read(self, body: bytes) -> tuple[str, float]:
        """Token and life in seconds, as the server has them."""
        try:
            answer = json.loads(body)
            token = str(answer.get("token") or answer["access_token"])
            life = float(answer.get("expires_in") or TOKEN_SECONDS)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            token, life = "", 0.0
        if _TOKEN.fullmatch(token) is None or not life > 0:
            raise SourceBroken(self._base, "its token cannot be read")
        return token, life

    def _get(self, url: str, headers: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
        opener = urllib.request.build_opener(_Stay)
        request = urllib.request.Request(url, headers={"User-Agent": "relume", **headers})  # noqa: S310 - see `_renew`
        try:
            with opener.open(request, timeout=self._wait) as answer:
                return answer.status, _lowered(answer.headers.items()), answer.read(_ANSWER_BYTES_MOST)
        except urllib.error.HTTPError as error:
            with error:
                if error.code in (408, 429) or error.code >= 500:
                    raise Interrupted(phrase(error.code)) from None
                return error.code, _lowered(error.headers.items()), b""
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise Interrupted(f"the connection failed ({type(error).__name__})") from None


def user_and_password(reference: str, secret: str) -> str:
    """The secret, if it is one of a registry. The text of the error holds nothing of it."""
    if ":" not in secret:
        raise CredentialsMissing(reference, "oci:// needs USER:PASSWORD there (or USER:TOKEN)")
    return secret


def _lowered(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers}
