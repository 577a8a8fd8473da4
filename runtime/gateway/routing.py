"""Which model a request is for.

In this order: the header `x-relume-model` (any path and method, but for orders to engines); `/v1/models` (answered
here); the path of KServe's V2 protocol; the `model` of the JSON or multipart body of a POST below `/v1/` or `/v2/`.
What is read here is what an engine would read, or the request is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final
from urllib.parse import unquote_to_bytes

from runtime.gateway.errors import Failure, Refused, bad_request
from runtime.gateway.json_body import read_json
from runtime.gateway.multipart import is_multipart, read_multipart
from runtime.gateway.request_head import RequestHead
from runtime.gateway.settings import GatewaySettings

MAX_NAME: Final = 256
"""Characters of a model's name or alias."""

_KSERVE: Final = re.compile(rb"/v2/models/([^/]+)(?:/versions/[^/]+)?/(infer|generate|generate_stream)")
_MODELS: Final = b"/v1/models"
_ORDERS: Final = frozenset({
    b"/abort_requests", b"/collective_rpc", b"/fault_tolerance/apply", b"/finish_weight_update",
    b"/init_weight_transfer_engine", b"/is_paused", b"/is_scaling_elastic_ep", b"/is_sleeping", b"/pause",
    b"/release_kv_cache_memory", b"/reset_encoder_cache", b"/reset_mm_cache", b"/reset_prefix_cache", b"/resume",
    b"/scale_elastic_ep", b"/server_info", b"/shutdown_weight_transfer_engine", b"/sleep",
    b"/start_draft_weight_update", b"/start_profile", b"/start_weight_update", b"/stop_profile",
    b"/update_weight_version", b"/update_weights", b"/wake_up", b"/weight_checker", b"/weight_info",
})  # fmt: skip
"""Not asked but told: what vLLM 0.32.0 obeys on its own port, most of it with VLLM_SERVER_DEV_MODE=1 (which its sleep
needs). Only relume tells engines what to do."""
_RELAYED_METHODS: Final = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE"})


class By(Enum):
    """What names the model."""

    HEADER = auto()
    PATH = auto()
    BODY = auto()
    JSON = auto()
    """A body that is plain JSON, as far as the head tells."""
    LIST = auto()
    """None: ``/v1/models``, answered from the catalog."""
    ENTRY = auto()
    """None: ``/v1/models/NAME``, answered from the catalog."""


BY_JSON: Final = By.JSON


@dataclass(slots=True)
class Target:
    """Where a request goes, as far as its head tells. `name`: empty when the body names the model."""

    by: By
    name: str = ""
    stream: bool = False


_BY_BODY: Final = Target(By.BODY)
_BY_JSON: Final = Target(By.JSON)


def find_target(head: RequestHead) -> Target:
    """Judge the head alone, before a body is accepted. Raises Refused with a 400, 404 or 405."""
    named = head.noted.get(b"x-relume-model")
    if named is not None:
        return _by_header(head, named)
    path = head.path
    if path == _MODELS or path.startswith(b"/v1/models/"):
        if head.method not in {b"GET", b"HEAD"}:
            raise _method_not_allowed(b"GET, HEAD")
        return Target(By.LIST) if path == _MODELS else Target(By.ENTRY, _name(unquote_to_bytes(path[11:])))
    if path.startswith(b"/v2/models/"):
        kserve = _KSERVE.fullmatch(path)
        if kserve is None:
            raise _no_such_path(path)
        if head.method != b"POST":
            raise _method_not_allowed(b"POST")
        return Target(By.PATH, _name(unquote_to_bytes(kserve[1])), kserve[2] == b"generate_stream")
    if (path.startswith((b"/v1/", b"/v2/"))) and len(path) > 4:
        if head.method != b"POST":
            raise _method_not_allowed(b"POST")
        return _by_body(head)
    raise _no_such_path(path)


def _by_header(head: RequestHead, named: bytes) -> Target:
    if head.method not in _RELAYED_METHODS:
        raise _method_not_allowed(b"GET, HEAD, POST, PUT, PATCH, DELETE")
    if _tidied(head.path) in _ORDERS:
        raise _no_such_path(head.path)
    return Target(By.HEADER, _name(named))


def _tidied(path: bytes) -> bytes:
    """As the most lenient engine reads it. A line feed at the end is none to Python's ``$``, and so to Starlette's
    routes; others take several slashes for one, or capitals for small letters."""
    return re.sub(rb"/+", b"/", re.sub(rb"[\0- \x7f]", b"", unquote_to_bytes(path))).rstrip(b"/").lower()


def _by_body(head: RequestHead) -> Target:
    content_type = head.noted.get(b"content-type")
    if b"content-encoding" in head.noted or (content_type is not None and is_multipart(content_type)):
        return _BY_BODY
    return _BY_JSON


def read_body(
    target: Target, head: RequestHead, body: bytes | bytearray, settings: GatewaySettings
) -> tuple[str, bool]:
    """(name of the model, whether a stream is asked for). Raises Refused with a 400 or 415."""
    found: object
    if target.by is BY_JSON:
        found, stream = read_json(body, settings.max_json_items)
        if type(found) is str and 0 < len(found) <= MAX_NAME:  # as `_checked` would find
            return found, stream
        return _checked(found, stream)
    content_type = head.noted.get(b"content-type")
    if target.by is not By.BODY:
        if target.by is By.HEADER and content_type is not None and b"json" in content_type.lower() and body:
            return target.name, read_json(body, settings.max_json_items)[1]
        return target.name, target.stream
    if head.noted.get(b"content-encoding", b"identity").lower() != b"identity":
        message = "A compressed body cannot be routed by its model; send it plain, or name the model in x-relume-model."
        raise Refused(Failure(415, "unsupported_content_encoding", message))
    if content_type is not None and is_multipart(content_type):
        found, stream = read_multipart(content_type, body)
    else:
        found, stream = read_json(body, settings.max_json_items)
    return _checked(found, stream)


def _checked(found: object, stream: bool) -> tuple[str, bool]:
    if found is None:
        raise bad_request("missing_model", "The request does not name a model.", "model")
    if type(found) is not str or not 0 < len(found) <= MAX_NAME:
        raise bad_request("invalid_model", f"`model` is a string of 1 to {MAX_NAME} characters.", "model")
    return found, stream


def _name(raw: bytes) -> str:
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise bad_request("invalid_model", "The model's name is not UTF-8.", "model") from None
    if not 0 < len(name) <= MAX_NAME:
        raise bad_request("invalid_model", f"A model's name has 1 to {MAX_NAME} characters.", "model")
    return name


def _method_not_allowed(allow: bytes) -> Refused:
    message = f"This path takes {allow.decode('ascii')}."
    return Refused(Failure(405, "method_not_allowed", message, allow=allow))


def _no_such_path(path: bytes) -> Refused:
    shown = path[:100].decode("latin-1")
    return Refused(
        Failure(404, "unknown_path", f"There is nothing at {shown}; inference paths begin with /v1/ or /v2/.")
    )
