"""How the agents of nodes reach each other, from the settings."""

from __future__ import annotations

from deploy.compose.peers import tls_contexts
from deploy.local.agent_peers import PeerSettings
from deploy.settings.settings import SettingProblem, Settings, SettingsRefused, unreadable


def cache_peer_settings(settings: Settings) -> PeerSettings | None:
    """None: this node asks no other. Raises SettingsRefused for files that do not hold what they should."""
    path = settings.cache_peer_token_file
    if not settings.cache_peer_address or path is None:
        return None
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsRefused([unreadable("cache_peer_token_file", path, error)]) from error
    if len(token) < 16 or not token.isascii() or any(letter.isspace() for letter in token):
        rule = "the token must be at least 16 ASCII characters in one word"
        remedy = "write one, for example with: openssl rand -hex 32"
        raise SettingsRefused([SettingProblem("cache_peer_token_file", str(path), rule, remedy)])
    host, _, port = (settings.cache_peer_listen or settings.cache_peer_address).rpartition(":")
    server, client = tls_contexts(
        settings.cache_peer_tls_ca, settings.cache_peer_tls_cert, settings.cache_peer_tls_key, "cache_peer_tls_cert"
    )
    return PeerSettings(settings.cache_peer_address, host.strip("[]"), int(port), token, server, client)
