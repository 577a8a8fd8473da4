"""The settings of a gateway that shares models with others."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Final, Self

from pydantic import field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

HOST_PORT: Final = re.compile(r"(?:[^\s:]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5})")


class PeerFields(BaseSettings):
    """How gateways on one event log reach each other."""

    model_config = SettingsConfigDict(use_attribute_docstrings=True)

    peer_address: str = ""
    """HOST:PORT at which other gateways reach this one; port 0: any free one. Empty: there is no other gateway."""
    peer_listen: str = ""
    """HOST:PORT that their calls are taken at. Default: peer_address."""
    peer_secret_file: Path | None = None
    """A file with a secret that all gateways share."""
    peer_tls_ca: Path | None = None
    """Certificates (PEM) of the authorities that gateways know each other by; with peer_tls_cert and peer_tls_key."""
    peer_tls_cert: Path | None = None
    """This gateway's certificate chain (PEM), for calls that it makes and takes."""
    peer_tls_key: Path | None = None
    """Its private key (PEM)."""

    @field_validator("peer_address", "peer_listen")
    @classmethod
    def _host_and_port(cls, text: str) -> str:
        found = HOST_PORT.fullmatch(text)
        if text and (found is None or int(found[1]) > 65535):
            raise ValueError("it is no HOST:PORT; write such as 10.0.0.1:8082 or [::1]:8082")
        return text

    @field_validator("peer_secret_file", "peer_tls_ca", "peer_tls_cert", "peer_tls_key")
    @classmethod
    def _peer_file(cls, path: Path | None) -> Path | None:
        if path is not None and not path.expanduser().is_file():
            raise ValueError(f"there is no file {path}; name one that exists")
        return None if path is None else path.expanduser()

    @model_validator(mode="after")
    def _peer_rules(self) -> Self:
        tls = (self.peer_tls_ca, self.peer_tls_cert, self.peer_tls_key)
        if any(tls) and not all(tls):
            raise ValueError("peer_tls_ca, peer_tls_cert and peer_tls_key belong together; give all three")
        others = (self.peer_listen, self.peer_secret_file, self.peer_tls_ca)
        if not self.peer_address and any(others):
            raise ValueError("a gateway without peer_address talks to no other one; give it too")
        if self.peer_address and not (_is_local(self.peer_host) or self.peer_secret_file or self.peer_tls_ca):
            raise ValueError(
                f"calls of other gateways are taken at {self.peer_host}, which can be reached from outside, and who "
                "calls there can take slots; give peer_secret_file or peer_tls_ca, or bind it to 127.0.0.1"
            )
        return self

    @property
    def peer_host(self) -> str:
        """The address that calls are taken at."""
        return (self.peer_listen or self.peer_address).rpartition(":")[0].strip("[]")

    @property
    def peer_port(self) -> int:
        """The port that calls are taken at."""
        return int((self.peer_listen or self.peer_address).rpartition(":")[2] or "0")


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
