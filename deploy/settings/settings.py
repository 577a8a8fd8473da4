"""The settings of the process: from the command line, else from the environment (``RELUME_…``), else the defaults.

What belongs to a model stands in its declaration; what belongs to the machine and the process stands here. Nothing else
reads the environment.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from deploy.settings.cache_peers import CachePeerFields
from deploy.settings.events_url import EventsUrl, KafkaEvents, SqliteEvents, parse_events_url
from deploy.settings.gpus import checked_gpus
from deploy.settings.kafka import KafkaFields
from deploy.settings.kubernetes import KubernetesFields
from deploy.settings.peers import PeerFields
from deploy.settings.prometheus import PrometheusFields
from deploy.settings.weights import WeightFields
from events.log import Retention
from events.names import DNS_LABEL_PATTERN
from events.spec import Duration, Quantity
from events.units import Seconds

ENV_PREFIX = "RELUME_"

_TOPIC: Final = re.compile(r"(?!\.\.?$)[A-Za-z0-9._-]{1,249}")  # what Kafka takes as a topic's name

Port = Annotated[int, Field(ge=0, le=65535)]


class LogLevel(StrEnum):
    """How much the process says on standard error."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How it says it."""

    TEXT = "text"
    JSON = "json"


def default_data_dir() -> Path:
    """``$XDG_DATA_HOME/relume``, else ``~/.local/share/relume``, as the XDG base directory specification says."""
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "share") / "relume"


class Settings(WeightFields, CachePeerFields, PeerFields, PrometheusFields, KubernetesFields, KafkaFields):
    """All settings of a relume process."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        extra="forbid",
        frozen=True,
        validate_default=False,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )

    data_dir: Path = Field(default_factory=default_data_dir)
    """The folder of this relume: event log, logs of replicas, lock. One process a folder."""
    node_name: Annotated[str, Field(pattern=DNS_LABEL_PATTERN)] = "local"
    """What this process is called: its node in placements, its gateway among others. One of its own each."""
    events: str = ""
    """The event log: memory:, sqlite:PATH or kafka://HOST:PORT[,HOST:PORT]. Default: events.db in the data folder."""
    events_age: Annotated[Duration, Field(ge=60)] = 7 * 86400.0
    """How long news stays in the event log."""
    events_bytes: Annotated[Quantity, Field(ge=1 << 20)] = 1 << 30
    """How large the event log may grow before old news goes earlier."""

    gateway_host: str = "127.0.0.1"
    """Address of the data port."""
    gateway_port: Port = 8080
    """The data port: OpenAI-compatible HTTP. 0: any free one."""
    gateway_tls_cert: Path | None = None
    """Certificate chain (PEM) of the data port; with gateway_tls_key."""
    gateway_tls_key: Path | None = None
    """Its private key (PEM)."""
    max_body_bytes: Annotated[Quantity, Field(ge=1024)] = 32 << 20
    """Largest body of a request; above it 413."""
    hold_max_requests: Annotated[int, Field(ge=1)] = 20_000
    """Most requests held for a slot, over all models."""
    hold_max_bytes: Annotated[Quantity, Field(ge=1024)] = 512 << 20
    """Most bytes of their bodies, over all models."""
    drain_bound: Duration = 30.0
    """How long running streams may go on after SIGTERM."""
    access_log: str = "-"
    """Where a JSON line for each request goes: - is standard error, a path a file, empty nowhere."""

    inference_reply_topics: str = ""
    """Kafka topics, with commas between, that asynchronous requests may name for a copy of their answer."""

    admin_host: str = "127.0.0.1"
    """Address of the admin port. Not a loopback one: only with a token or a client CA."""
    admin_port: Port = 8081
    """The admin port: health, metrics, API. 0: any free one."""
    admin_tls_cert: Path | None = None
    """Certificate chain (PEM) of the admin port; with admin_tls_key."""
    admin_tls_key: Path | None = None
    """Its private key (PEM)."""
    admin_token_file: Path | None = None
    """A file with the token that clients of the admin port must show."""
    admin_client_ca: Path | None = None
    """Certificates (PEM) of the authorities whose clients may use the admin port; with admin_tls_cert."""

    gpus: Annotated[int | str, BeforeValidator(checked_gpus)] | None = None
    """Virtual GPUs to declare: how many, or which, such as 2xA100-80GB:nvlink=0,1xA100-40GB:mig=3g.20gb/2*1g.5gb,
    1xL4:turns=4. Default: the real ones, if there are any."""
    gpu_limiter: Path | None = None
    """HAMi-core's library (libvgpu.so), which keeps whoever has a gpuFraction or gpuMemory of a real card to that
    much of its memory. Default: none, and nothing keeps them."""
    cpu: Annotated[float, Field(gt=0)] | None = None
    """Cores that replicas may use together. Default: all."""
    memory: Annotated[Quantity, Field(gt=0)] | None = None
    """Bytes of memory that replicas may use together. Default: all."""

    adopt_within: Duration = 3600.0
    """How long replicas of a relume cluster that died serve on, for the next one to take over. 0: they end with it."""

    log_level: LogLevel = LogLevel.INFO
    """How much the process says."""
    log_format: LogFormat = LogFormat.TEXT
    """How it says it: text or json."""

    @field_validator("data_dir", "gateway_tls_cert", "gateway_tls_key", "admin_tls_cert", "admin_tls_key",
                     "admin_token_file", "admin_client_ca", "kubeconfig", "gpu_limiter")  # fmt: skip
    @classmethod
    def _expanded(cls, path: Path | None) -> Path | None:
        return None if path is None else path.expanduser()

    @field_validator("events")
    @classmethod
    def _known_log(cls, text: str) -> str:
        if text:
            parse_events_url(text)
        return text

    @field_validator("inference_reply_topics")
    @classmethod
    def _topics_of_others(cls, text: str) -> str:
        for topic in filter(None, (one.strip() for one in text.split(","))):
            if not _TOPIC.fullmatch(topic):
                raise ValueError(f"{topic!r} is no name of a topic; write letters, digits and ._- , 249 at most")
            if topic.startswith("relume."):
                raise ValueError(f"{topic!r} is one of ours, where copies would be taken for events; name one of yours")
        return text

    @field_validator("gateway_tls_cert", "gateway_tls_key", "admin_tls_cert", "admin_tls_key", "admin_token_file",
                     "admin_client_ca", "kubeconfig", "gpu_limiter")  # fmt: skip
    @classmethod
    def _file(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_file():
            raise ValueError(f"there is no file {path}; name one that exists")
        return path

    @model_validator(mode="after")
    def _rules_between_settings(self) -> Self:
        for port in ("gateway", "admin"):
            cert, key = getattr(self, f"{port}_tls_cert"), getattr(self, f"{port}_tls_key")
            if (cert is None) != (key is None):
                given, lacking = ("cert", "key") if key is None else ("key", "cert")
                raise ValueError(f"{port}_tls_{given} is given without {port}_tls_{lacking}; give both")
        if self.admin_client_ca is not None and self.admin_tls_cert is None:
            raise ValueError("admin_client_ca needs TLS; give admin_tls_cert and admin_tls_key too")
        if self.gateway_port == self.admin_port != 0 and self.gateway_host == self.admin_host:
            raise ValueError(f"gateway_port and admin_port are both {self.admin_port}; change one of them")
        if self.inference_reply_topics and not isinstance(self.events_url, KafkaEvents):
            raise ValueError("inference_reply_topics are topics of Kafka; give events as kafka://HOST:PORT, or none")
        if not is_loopback(self.admin_host) and self.admin_token_file is None and self.admin_client_ca is None:
            raise ValueError(
                f"admin_host {self.admin_host} can be reached from outside, and whoever can apply a model can run "
                "commands; give admin_token_file or admin_client_ca, or bind it to 127.0.0.1"
            )
        return self

    @property
    def events_url(self) -> EventsUrl:
        """The event log's address; by default events.db in the data folder."""
        return parse_events_url(self.events) if self.events else SqliteEvents(self.data_dir / "events.db")

    @property
    def retention(self) -> Retention:
        """What the event log may forget."""
        return Retention(age=Seconds(self.events_age), bytes=self.events_bytes)

    def admin_token(self) -> str | None:
        """The token in admin_token_file, without the line end; None when there is none. SettingsRefused if too short.

        16 characters are the least that could be 64 random bits in hexadecimal.
        """
        if self.admin_token_file is None:
            return None
        try:
            token = self.admin_token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsRefused([_token_problem(self.admin_token_file, f"it cannot be read ({error})")]) from error
        if len(token) < 16 or not token.isascii() or any(letter.isspace() for letter in token):
            rule = "the token must be at least 16 ASCII characters in one word"
            raise SettingsRefused([_token_problem(self.admin_token_file, rule)])
        return token


@dataclass(frozen=True, slots=True)
class SettingProblem:
    """One wrong setting: its name (``admin_port``), what it said, the rule, the remedy."""

    setting: str
    value: object
    rule: str
    remedy: str

    def __str__(self) -> str:
        name = f"{self.setting} ({flag(self.setting)} or {variable(self.setting)})" if self.setting else "settings"
        said = "" if self.value is None else f" is {self.value!r}"
        return f"{name}{said}: {self.rule}; {self.remedy}"


class SettingsRefused(ValueError):
    """The process cannot start with these settings; `problems` has all that were found."""

    def __init__(self, problems: list[SettingProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))


def load_settings(given: Mapping[str, object]) -> Settings:
    """Settings from the command line (`given`, by field name; None means not given), the environment and defaults."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]  # pydantic checks them
    except ValidationError as error:
        raise SettingsRefused([_problem(one) for one in error.errors(include_url=False)]) from None


def variable(setting: str) -> str:
    """The environment variable of a setting."""
    return ENV_PREFIX + setting.upper()


def flag(setting: str) -> str:
    """The command-line option of a setting."""
    return "--" + setting.replace("_", "-")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`. Names other than localhost count as reachable from outside."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def unreadable(setting: str, path: Path, error: Exception) -> SettingProblem:
    """The problem of a file that is named and cannot be read."""
    return SettingProblem(setting, str(path), f"it cannot be read ({error})", "name a file that can")


def _token_problem(path: Path, rule: str) -> SettingProblem:
    remedy = "write one, for example with: openssl rand -hex 32"
    return SettingProblem("admin_token_file", str(path), rule, remedy)


def _problem(error: Mapping[str, object]) -> SettingProblem:
    """One of pydantic's errors in our words: validators say ``RULE; REMEDY``, the rest is about types and bounds."""
    loc = error["loc"]
    setting = str(loc[0]) if isinstance(loc, tuple) and loc else ""
    rule, _, remedy = str(error["msg"]).removeprefix("Value error, ").partition("; ")
    if error["type"] == "extra_forbidden":
        rule, remedy = "there is no such setting", "leave it out"
    elif error["type"] == "string_pattern_mismatch":  # of names alone
        rule, remedy = "a name is 1 to 63 lower-case letters, digits and dashes", "write such as gw-1"
    value = error["input"] if setting else None
    return SettingProblem(setting, value, rule, remedy or "--help says what is allowed")
