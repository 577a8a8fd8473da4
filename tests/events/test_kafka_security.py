"""TLS, client certificates and SASL against a real broker that demands them."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from events.adapters.kafka.log import KafkaEventLog
from events.adapters.kafka.settings import KafkaSecurity, KafkaSettings, Mechanism
from events.clock import SystemClock
from events.log import LogUnavailable, Start
from events.names import Topic
from events.units import Seconds
from tests.support.certificates import Authority
from tests.support.events import Teller, collect
from tests.support.kafka_logs import LEAKS, collect_leaks
from tests.support.kafka_secured import Secured, secured_broker

pytestmark = [pytest.mark.needs("kafka"), pytest.mark.slow, *LEAKS]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker with a listener for TLS with passwords, and one for TLS with client certificates."""
    with secured_broker(tmp_path_factory.mktemp("secured")) as found:
        yield found


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


def unsigned(subject: str, seconds: float) -> str:
    """A token as a broker without an issuer of tokens takes it: a JWS without a signature (RFC 7515, appendix A.5)."""
    now = SystemClock().now()
    parts = ({"alg": "none"}, {"sub": subject, "iat": now, "exp": now + seconds})
    return ".".join(urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + "."


async def test_a_token(secured: Secured, tmp_path: Path) -> None:
    """OAUTHBEARER: the file is read at each connection, so one that was renewed is let in, and an old one is not."""
    path = tmp_path / "token"
    security = KafkaSecurity("SASL_SSL", secured.ca, mechanism="OAUTHBEARER", token_file=path)
    path.write_text(unsigned("me", -3600) + "\n", encoding="utf-8")
    with pytest.raises(LogUnavailable, match="is the proof of who we are right"):
        await round_trip(secured.sasl, security)
    path.unlink()
    with pytest.raises(LogUnavailable):
        await round_trip(secured.sasl, security)
    path.write_text(unsigned("me", 3600) + "\n", encoding="utf-8")
    await round_trip(secured.sasl, security)


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
