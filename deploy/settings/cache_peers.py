"""Settings of agents that read each other's weights."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from deploy.settings.peers import HOST_PORT


class CachePeerFields(BaseSettings):
    """How agents on one event log reach each other."""

    model_config = SettingsConfigDict(use_attribute_docstrings=True)

    cache_peer_address: str = ""
    """HOST:PORT at which other nodes read this one's weights; port 0: any free one. Empty: it asks the source only."""
    cache_peer_listen: str = ""
    """HOST:PORT that it listens at. Default: cache_peer_address."""
    cache_peer_token_file: Path | None = None
    """A file with the token that all nodes share, to serve and to ask; with cache_peer_address."""
    cache_peer_tls_ca: Path | None = None
    """Certificates (PEM) of the authorities that agents know each other by; with cache_peer_tls_cert and _key."""
    cache_peer_tls_cert: Path | None = None
    """This agent's certificate chain (PEM), for what it serves and asks."""
    cache_peer_tls_key: Path | None = None
    """Its private key (PEM)."""

    @field_validator("cache_peer_address", "cache_peer_listen")
    @classmethod
    def _cache_host_and_port(cls, text: str) -> str:
        found = HOST_PORT.fullmatch(text)
        if text and (found is None or int(found[1]) > 65535):
            raise ValueError("it is no HOST:PORT; write such as 10.0.0.1:8083 or [::1]:8083")
        return text

    @field_validator("cache_peer_token_file", "cache_peer_tls_ca", "cache_peer_tls_cert", "cache_peer_tls_key")
    @classmethod
    def _cache_peer_file(cls, path: Path | None) -> Path | None:
        if path is not None and not path.expanduser().is_file():
            raise ValueError(f"there is no file {path}; name one that exists")
        return None if path is None else path.expanduser()

    @model_validator(mode="after")
    def _cache_peer_rules(self) -> Self:
        tls = (self.cache_peer_tls_ca, self.cache_peer_tls_cert, self.cache_peer_tls_key)
        if any(tls) and not all(tls):
            raise ValueError(
                "cache_peer_tls_ca, cache_peer_tls_cert and cache_peer_tls_key belong together; give all three"
            )
        if self.cache_peer_address and self.cache_peer_token_file is None:
            raise ValueError(
                "weights at cache_peer_address are not for all; give cache_peer_token_file, the same on all nodes "
                "(for example: openssl rand -hex 32 > token)"
            )
        if not self.cache_peer_address and any((self.cache_peer_listen, self.cache_peer_token_file, *tls)):
            raise ValueError("an agent without cache_peer_address asks no other node; give it too")
        return self
