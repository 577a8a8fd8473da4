"""A real broker that demands TLS with passwords, or with client certificates. User `me`, password `right`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.admin import ScramMechanism, UserScramCredentialUpsertion

from tests.support.certificates import Authority
from tests.support.kafka_broker import broker_in, free_port

LOGIN = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Secured:
    """Where a broker demands what, and what satisfies it."""

    sasl: str
    mutual: str
    ca: Path
    certificate: Path
    key: Path


@contextmanager
def secured_broker(folder: Path) -> Iterator[Secured]:
    """A broker with a listener for TLS with passwords, and one for TLS with client certificates."""
    authority = Authority(folder)
    chain, key = authority.issue("localhost")
    ours = authority.issue("relume")
    store, trust = folder / "broker.pem", authority.certificate
    store.write_bytes(key.read_bytes() + chain.read_bytes())
    sasl, mutual = free_port(), free_port()
    more = f"""
ssl.keystore.type=PEM
ssl.keystore.location={store}
ssl.truststore.type=PEM
ssl.truststore.location={trust}
listener.name.mutual.ssl.client.auth=required
listener.name.secret.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.secret.plain.sasl.jaas.config={LOGIN}.plain.PlainLoginModule required user_me="right";
listener.name.secret.oauthbearer.sasl.jaas.config={LOGIN}.oauthbearer.OAuthBearerLoginModule required;
listener.name.secret.scram-sha-256.sasl.jaas.config={LOGIN}.scram.ScramLoginModule required;
listener.name.secret.scram-sha-512.sasl.jaas.config={LOGIN}.scram.ScramLoginModule required;
"""

    def edit(settings: str) -> str:
        lines = []
        for line in settings.splitlines():
            name, _, value = line.partition("=")
            if name in ("listeners", "advertised.listeners"):
                value += f",SECRET://127.0.0.1:{sasl},MUTUAL://127.0.0.1:{mutual}"
            elif name == "listener.security.protocol.map":
                value += ",SECRET:SASL_SSL,MUTUAL:SSL"
            lines.append(f"{name}={value}")
        return "\n".join(lines) + more

    with broker_in(folder / "broker", edit) as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.address)
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion("me", mechanism, "right")])
        admin.close()
        yield Secured(f"127.0.0.1:{sasl}", f"127.0.0.1:{mutual}", trust, *ours)
