"""Prometheus servers whose numbers models may follow: the settings, and a file of servers by name.

```yaml
main:
  url: https://prometheus.example:9090
  tlsCa: /etc/relume/ca.pem
  bearerTokenFile: /run/secrets/prometheus
  headers: {X-Scope-OrgID: inference}
```
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, StringConstraints, TypeAdapter, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from deploy.settings.named import read_named
from events.names import DNS_LABEL_PATTERN
from events.spec import Spec

SERVERS_MOST = 64

Name = Annotated[str, StringConstraints(pattern=DNS_LABEL_PATTERN)]
HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,64}$")]
Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s@]+$")]
"""Without a password in it: that has a file of its own."""


class PrometheusFields(BaseSettings):
    """Which Prometheus servers there are."""

    model_config = SettingsConfigDict(use_attribute_docstrings=True)

    prometheus: Url | None = None
    """The Prometheus server that models ask when they name none (scaling.signals: prometheus)."""
    prometheus_servers: Path | None = None
    """A YAML file of Prometheus servers by name, with certificates and tokens (scaling.signals: prometheus.server)."""

    @field_validator("prometheus_servers")
    @classmethod
    def _servers_file(cls, path: Path | None) -> Path | None:
        if path is not None and not path.expanduser().is_file():
            raise ValueError(f"there is no file {path}; name one that exists")
        return None if path is None else path.expanduser()


class PrometheusServer(Spec):
    """How one server is reached."""

    url: Url
    """http(s)://HOST:PORT, with a path where a proxy needs one."""
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    username: str = ""
    password_file: Path | None = None
    bearer_token_file: Path | None = None
    headers: Annotated[dict[HeaderName, str], Field(max_length=16)] = Field(default_factory=dict)
    """Headers that are no secret, such as X-Scope-OrgID."""
    header_files: Annotated[dict[HeaderName, Path], Field(max_length=16)] = Field(default_factory=dict)
    """Headers whose values stand in files."""

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if self.username and self.bearer_token_file is not None:
            raise ValueError("username and bearerTokenFile are two ways to sign in; keep one")
        if bool(self.username) != (self.password_file is not None):
            raise ValueError("username and passwordFile belong together; give both")
        if self.tls_key is not None and self.tls_cert is None:
            raise ValueError("tlsKey is the key of tlsCert; give both")
        return self

    def secret_headers(self) -> dict[str, str]:
        """All headers, read from their files now. OSError, UnicodeDecodeError when one cannot be read."""
        found = dict(self.headers)
        for name, path in self.header_files.items():
            found[name] = _read(path)
        if self.bearer_token_file is not None:
            found["Authorization"] = f"Bearer {_read(self.bearer_token_file)}"
        return found

    def sign_in(self) -> tuple[str, str] | None:
        """Name and password, read now; None without."""
        return None if self.password_file is None else (self.username, _read(self.password_file))


def _read(path: Path) -> str:
    return path.expanduser().read_text(encoding="utf-8").strip()


_SERVERS: TypeAdapter[dict[str, PrometheusServer]] = TypeAdapter(
    Annotated[dict[Name, PrometheusServer], Field(max_length=SERVERS_MOST)]
)


def read_servers(path: Path) -> dict[str, PrometheusServer]:
    """The servers of a file, by name. ValueError says in a sentence what is wrong."""
    return read_named(path, _SERVERS)
