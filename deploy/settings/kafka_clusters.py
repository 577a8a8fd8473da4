"""Other Kafka clusters whose lag models may follow, by name: a file, so that no password stands in a declaration.

```yaml
orders:
  servers: [b1:9093, b2:9093]
  security: sasl_ssl
  tlsCa: /etc/relume/orders-ca.pem
  saslMechanism: SCRAM-SHA-512
  username: relume
  passwordFile: /run/secrets/orders
```
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, TypeAdapter

from deploy.settings.named import read_named
from events.adapters.kafka.settings import Mechanism
from events.names import DNS_LABEL_PATTERN
from events.spec import Spec

CLUSTERS_MOST = 64

Name = Annotated[str, StringConstraints(pattern=DNS_LABEL_PATTERN)]
Server = Annotated[str, StringConstraints(pattern=r"^[^\s,/]+:\d{1,5}$")]


class KafkaCluster(Spec):
    """How one cluster is reached."""

    servers: Annotated[tuple[Server, ...], Field(min_length=1, max_length=16)]
    """HOST:PORT of some of its brokers."""
    security: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = "plaintext"
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    sasl_mechanism: Mechanism | None = None
    username: str = ""
    password_file: Path | None = None
    token_file: Path | None = None

    def password(self) -> str:
        """What stands in the password file; empty without one. OSError, UnicodeDecodeError when it cannot be read."""
        return "" if self.password_file is None else self.password_file.read_text(encoding="utf-8").strip()


_CLUSTERS: TypeAdapter[dict[str, KafkaCluster]] = TypeAdapter(
    Annotated[dict[Name, KafkaCluster], Field(max_length=CLUSTERS_MOST)]
)


def read_clusters(path: Path) -> dict[str, KafkaCluster]:
    """The clusters of a file, by name. ValueError says in a sentence what is wrong."""
    return read_named(path, _CLUSTERS)
