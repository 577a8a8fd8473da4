"""TLS, client certificates and SASL against a real broker that demands them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ScramMechanism, UserScramCredentialUpsertion

from events.adapters.kafka.log import KafkaEventLog
from events.adapters.kafka.settings import KafkaSecurity, KafkaSettings, Mechanism
from events.clock import SystemClock
from events.log import LogUnavailable, Start
from events.names import Topic
from events.units import Seconds
from tests.support.certificates import Authority
from tests.support.events import Teller, collect
from tests.support.kafka_broker import broker_in, free_port
from tests.support.kafka_logs import LEAKS, collect_leaks

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]

LOGIN = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Secured:
    """Where a broker demands what, and what satisfies it."""

    sasl: str
    mutual: str
    ca: Path
    certificate: Path
    key: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker with a listener for TLS with passwords, and one for TLS with client certificates."""
    folder = tmp_path_factory.mktemp("secured")
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
listener.name.secret.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.secret.plain.sasl.jaas.config={LOGIN}.plain.PlainLoginModule required user_me="right";
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


@pytest.fixture(autouse=True)
def leaks() -> Iterator[None]:
    """Of refused connections."""
    yield
    collect_leaks()


async def round_trip(server: str, security: KafkaSecurity) -> None:
    """Every kind of client speaks to the broker once: topics, an append, a follower, a group."""
    settings = KafkaSettings((server,), security, partitions=1, open_timeout=Seconds(15.0))
    async with KafkaEventLog(settings, SystemClock()) as log:
        subscription = log.subscribe([Topic.PHASES], Start("end"))
        event = Teller(SystemClock()).drained()
        await log.append([event])
        assert (await collect(subscription, 1))[0].envelope.id == event.id
        await subscription.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_passwords_over_tls(secured: Secured, mechanism: Mechanism) -> None:
    """The right password is let in."""
    security = KafkaSecurity("SASL_SSL", secured.ca, mechanism=mechanism, username="me", password="right")
    await round_trip(secured.sasl, security)


async def test_a_wrong_password(secured: Secured) -> None:
    """It is told as such, and no password stands in the message."""
    security = KafkaSecurity("SASL_SSL", secured.ca, mechanism="SCRAM-SHA-256", username="me", password="hush-hush")
    with pytest.raises(LogUnavailable) as caught:
        await round_trip(secured.sasl, security)
    assert "hush" not in str(caught.value)
    assert "is the password right?" in str(caught.value)
    assert secured.sasl in str(caught.value)


async def test_client_certificates(secured: Secured) -> None:
    """A broker that asks for a certificate gets ours; without one it lets nobody in."""
    await round_trip(secured.mutual, KafkaSecurity("SSL", secured.ca, secured.certificate, secured.key))
    with pytest.raises(LogUnavailable):
        await round_trip(secured.mutual, KafkaSecurity("SSL", secured.ca))


async def test_a_broker_that_nobody_vouches_for(secured: Secured, tmp_path: Path) -> None:
    """A certificate of another authority is not believed."""
    other = Authority(tmp_path).certificate
    with pytest.raises(LogUnavailable, match=r"(?i)certificate"):
        await round_trip(secured.mutual, KafkaSecurity("SSL", other, secured.certificate, secured.key))
