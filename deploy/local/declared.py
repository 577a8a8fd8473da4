"""What the cluster needs of a declaration, and the words for what goes wrong with replicas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pydantic import TypeAdapter, ValidationError

from coldstart.cache.wanting import Wanted
from coldstart.core.policy import SleepPolicy
from coldstart.spec import AdapterSpec, FetchedSpec, SleepSpec, WeightsSpec
from events.names import ModelName
from events.types.models import ModelDeclared
from runtime.core.policy import Batching, Timeouts
from runtime.spec import BatchingSpec, EngineSpec, EngineType, Slots, TimeoutsSpec


class Reason(StrEnum):
    """Why a replica failed: the `reason` of `relume.replicas`."""

    INVALID_SPEC = "InvalidSpec"
    """The declaration or an option of its engine is wrong."""
    WEIGHTS_NOT_FOUND = "WeightsNotFound"
    """A local file that is not there, or a source that refuses."""
    WEIGHTS_NO_SPACE = "WeightsNoSpace"
    """The node's cache cannot make the room; the message has the numbers."""
    WEIGHTS_MISMATCH = "WeightsMismatch"
    """What came is not what was asked for, or changed again and again."""
    WEIGHTS_UNAVAILABLE = "WeightsUnavailable"
    """The source gave nothing within the retries; what was verified is kept."""
    COMMAND_NOT_FOUND = "CommandNotFound"
    CANNOT_START = "CannotStart"
    """The system gave no process or no port."""
    EXITED_WHILE_STARTING = "ExitedWhileStarting"
    START_HUNG = "StartHung"
    WARMUP_FAILED = "WarmupFailed"
    """Healthy, but the one-token request is answered with an error."""
    SLOTS_MISMATCH = "SlotsMismatch"
    OOM_KILLED = "OOMKilled"
    """Used more memory than its limit."""
    CRASHED = "Crashed"
    """Ended by itself after it was ready."""
    UNRESPONSIVE = "Unresponsive"
    """Suspected by a gateway, and did not answer its health check."""


@dataclass(frozen=True, slots=True)
class DeclaredAdapter:
    """A LoRA adapter: a local path, or what the node's cache must have first."""

    name: str
    path: str
    wanted: Wanted | None = None


class InvalidDeclaration(Exception):
    """A declaration that no replica can be made of; the text says why."""


@dataclass(frozen=True, slots=True)
class Declared:
    """One revision of a model, as far as running it goes.

    `weights` is a local path, or empty: also while `wanted`, what the node's cache must have first, is not there yet.
    """

    model: ModelName
    uid: str
    revision: int
    engine: EngineType
    options: Mapping[str, object]
    weights: str
    slots: int
    timeouts: Timeouts
    wanted: Wanted | None = None
    sleep: SleepPolicy | None = None
    adapters: tuple[DeclaredAdapter, ...] = ()
    batching: Batching | None = None


_SLOTS: TypeAdapter[int] = TypeAdapter(Slots)
DEFAULT_SLOTS = 4  # the same as deploy.spec's, for declarations of other writers that leave it out


def read_declaration(event: ModelDeclared) -> Declared:
    """Raises InvalidDeclaration. (Who declares checks all of it; this guards against other writers and versions.)"""
    spec = event.spec
    try:
        engine = EngineSpec.model_validate(spec.get("engine"))
        timeouts = TimeoutsSpec.model_validate(spec.get("timeouts") or {})
        slots = _SLOTS.validate_python(spec.get("slots", DEFAULT_SLOTS))
        cold = spec.get("coldStart")
        lying = cold.get("sleep") if isinstance(cold, dict) else None
        sleep = None if lying is None else SleepSpec.model_validate(lying).resolve()
        gathers = spec.get("batching")
        batching = None if gathers is None else BatchingSpec.model_validate(gathers).resolve()
        raw = spec.get("weights")
        weights = None if raw is None else WeightsSpec.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidDeclaration(f"{where or 'spec'}: {first['msg']}") from error
    wanted = None if weights is None else through_the_cache(weights)
    return Declared(
        model=ModelName(event.model), uid=event.uid, revision=event.revision, engine=engine.type,
        options=engine.options, weights="" if weights is None or wanted is not None else local_path(weights.uri),
        slots=slots, timeouts=timeouts.resolve(), wanted=wanted, sleep=sleep,
        adapters=() if weights is None else tuple(_adapter(one) for one in weights.adapters), batching=batching,
    )  # fmt: skip


def _adapter(adapter: AdapterSpec) -> DeclaredAdapter:
    wanted = through_the_cache(adapter)
    return DeclaredAdapter(adapter.name, "" if wanted is not None else local_path(adapter.uri), wanted)


def through_the_cache(weights: FetchedSpec) -> Wanted | None:
    """What the node's cache must have; None: they are used where they lie."""
    remote = "://" in weights.uri and urlsplit(weights.uri).scheme != "file"
    cache = weights.cache if isinstance(weights, WeightsSpec) else None
    if not (remote if cache is None else cache):
        return None
    uri = weights.uri if "://" in weights.uri else Path(weights.uri).expanduser().absolute().as_uri()
    return replace(weights.resolve(), address=uri)


def local_path(uri: str) -> str:
    """The path that a URI names; ``file://`` and plain paths only. Raises InvalidDeclaration."""
    if not uri or "://" not in uri:
        return str(Path(uri).expanduser()) if uri else ""
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise InvalidDeclaration(
            f"weights.uri: {uri} is not a local file; write a path or file:///PATH, or leave out cache: false"
        )
    return unquote(parts.path)
