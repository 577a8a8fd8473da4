"""Where and how the admin port listens, and its bounds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deploy.settings.settings import Settings, is_loopback
from events.units import Bytes, Seconds


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """Loopback only, unless a bearer token or a CA of client certificates is set: who can apply can run commands.

    `port` 0 lets the system choose. A CA of clients needs a certificate and key of the server.
    """

    host: str = "127.0.0.1"
    port: int = 8081
    token: str = ""
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    max_body: Bytes = Bytes(4 << 20)
    request_timeout: Seconds = Seconds(30.0)
    heartbeat: Seconds = Seconds(15.0)
    """A stream that is quiet this long gets a comment, so that both ends see a dead connection."""
    write_timeout: Seconds = Seconds(10.0)
    """A reader of a stream that takes nothing for this long is cut."""
    farewell: Seconds = Seconds(5.0)
    """A reader that is cut has this long to take the last word; then the connection is aborted."""
    max_streams: int = 64
    """Streams that are open at the same time; one more gets 503."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("the admin port's certificate and key come together; give both or neither")
        if self.client_ca is not None and self.certificate is None:
            raise ValueError("client certificates need TLS; give the admin port a certificate and a key too")
        if not is_loopback(self.host) and not self.token and self.client_ca is None:
            raise ValueError(
                f"the admin port would listen on {self.host}, and who can apply a model can run commands; "
                "set a token or a CA of client certificates, or listen on 127.0.0.1"
            )

    @property
    def open_to_loopback(self) -> bool:
        """Nobody proves who they are: then only this machine may ask, and pages of a browser may not."""
        return not self.token and self.client_ca is None


def admin_settings(settings: Settings) -> AdminSettings:
    """The admin port's part of the settings of the process; SettingsRefused when the token cannot be read."""
    return AdminSettings(
        host=settings.admin_host, port=settings.admin_port, token=settings.admin_token() or "",
        certificate=settings.admin_tls_cert, key=settings.admin_tls_key, client_ca=settings.admin_client_ca,
    )  # fmt: skip
