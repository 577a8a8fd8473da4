"""How a gateway reaches the others, from the settings."""

from __future__ import annotations

import ssl
from pathlib import Path

from deploy.settings.settings import SettingProblem, Settings, SettingsRefused, unreadable
from runtime.desk.peers import PeerSettings


def peer_settings(settings: Settings) -> PeerSettings | None:
    """None: this gateway is the only one. Raises SettingsRefused for files that do not hold what they should."""
    if not settings.peer_address:
        return None
    server, client = tls_contexts(
        settings.peer_tls_ca, settings.peer_tls_cert, settings.peer_tls_key, "peer_tls_cert"
    )  # fmt: skip
    return PeerSettings(
        host=settings.peer_host,
        port=settings.peer_port,
        address=settings.peer_address,
        secret=_secret(settings),
        server_tls=server,
        client_tls=client,
    )


def _secret(settings: Settings) -> bytes:
    path = settings.peer_secret_file
    if path is None:
        return b""
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise SettingsRefused([unreadable("peer_secret_file", path, error)]) from error
    if len(secret) < 16:  # the least that could be 64 random bits in hexadecimal
        rule, remedy = "the secret must be at least 16 bytes", "write one, for example with: openssl rand -hex 32"
        raise SettingsRefused([SettingProblem("peer_secret_file", str(path), rule, remedy)])
    return secret


def tls_contexts(
    ca: Path | None, cert: Path | None, key: Path | None, setting: str
) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:  # fmt: skip
    """For calls taken and made. Who has a certificate of the authority is one of us, whatever its address. Raises
    SettingsRefused, naming `setting`."""
    if ca is None or cert is None:
        return None, None
    made: list[ssl.SSLContext] = []
    for side in (ssl.Purpose.CLIENT_AUTH, ssl.Purpose.SERVER_AUTH):
        try:
            context = ssl.create_default_context(side, cafile=ca)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_cert_chain(cert, key)
        except (OSError, ssl.SSLError) as error:
            raise SettingsRefused([unreadable(setting, cert, error)]) from error
        made.append(context)
    return made[0], made[1]
