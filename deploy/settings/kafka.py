"""The settings of an event log on Kafka; they matter with ``--events kafka://…`` alone."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from events.adapters.kafka.settings import BY_PASSWORD, PACKAGES, Mechanism


class KafkaFields(BaseSettings):
    """How relume reaches Kafka, and how topics that it creates are made."""

    model_config = SettingsConfigDict(use_attribute_docstrings=True)

    kafka_partitions: Annotated[int, Field(ge=1, le=1000)] = 12
    """Partitions of each topic that is created; those that exist keep theirs, for ever."""
    kafka_replication: Annotated[int, Field(ge=1, le=15)] | None = None
    """Copies of each topic that is created. Default: what the brokers say."""
    kafka_create_topics: bool = True
    """Whether missing topics are created at the start; else they must be there (relume topics create)."""
    kafka_compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    """How batches are compressed: none, gzip, snappy, lz4 or zstd."""
    kafka_security: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = "plaintext"
    """How brokers are spoken to: plaintext, ssl, sasl_plaintext or sasl_ssl."""
    kafka_tls_ca: Path | None = None
    """Certificates (PEM) of the authorities that brokers are trusted by. Default: the system's."""
    kafka_tls_cert: Path | None = None
    """Our own certificate chain (PEM), for brokers that ask for one; with kafka_tls_key."""
    kafka_tls_key: Path | None = None
    """Its private key (PEM)."""
    kafka_sasl_mechanism: Mechanism | None = None
    """How we prove who we are: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI or AWS_MSK_IAM."""
    kafka_username: str = ""
    """Who we are, with PLAIN and SCRAM."""
    kafka_password_file: Path | None = None
    """A file with the password, with PLAIN and SCRAM."""
    kafka_token_file: Path | None = None
    """A file with the token, with OAUTHBEARER; read at each connection."""
    kafka_clusters: Path | None = None
    """A YAML file of other clusters by name, whose lag models may follow (scaling.signals: kafkaLag.cluster)."""

    @field_validator(
        "kafka_tls_ca", "kafka_tls_cert", "kafka_tls_key", "kafka_password_file", "kafka_token_file", "kafka_clusters"
    )
    @classmethod
    def _kafka_file(cls, path: Path | None) -> Path | None:
        if path is not None and not path.expanduser().is_file():
            raise ValueError(f"there is no file {path}; name one that exists")
        return None if path is None else path.expanduser()

    @model_validator(mode="after")
    def _kafka_rules(self) -> Self:
        self._sasl_rules()
        if (self.kafka_tls_cert is None) != (self.kafka_tls_key is None):
            raise ValueError("kafka_tls_cert and kafka_tls_key belong together; give both")
        tls = (self.kafka_tls_ca, self.kafka_tls_cert)
        if not self.kafka_security.endswith("ssl") and any(tls):
            raise ValueError(
                f"kafka_security is {self.kafka_security}, which uses no certificates; set it to ssl or sasl_ssl"
            )
        return self

    def _sasl_rules(self) -> None:
        told, token = self.kafka_sasl_mechanism, self.kafka_token_file
        user = (self.kafka_username, self.kafka_password_file)
        if not self.kafka_security.startswith("sasl"):
            if told or any(user) or token:
                raise ValueError(
                    f"kafka_security is {self.kafka_security}, which takes no user; set it to sasl_ssl, or leave "
                    "kafka_sasl_mechanism, kafka_username, kafka_password_file and kafka_token_file out"
                )
            return
        if told is None or (told in BY_PASSWORD and not all(user)):
            raise ValueError(
                f"kafka_security is {self.kafka_security}, which needs kafka_sasl_mechanism, kafka_username and "
                "kafka_password_file; give all three (or a kafka_sasl_mechanism that needs no password)"
            )
        if told == "OAUTHBEARER" and token is None:
            raise ValueError("kafka_sasl_mechanism is OAUTHBEARER, which needs kafka_token_file; give it")
        if told not in BY_PASSWORD and any(user):
            raise ValueError(
                f"kafka_sasl_mechanism is {told}, which takes no kafka_username and kafka_password_file; leave them out"
            )
        if told != "OAUTHBEARER" and token is not None:
            raise ValueError(f"kafka_sasl_mechanism is {told}, which takes no kafka_token_file; leave it out")
        package = PACKAGES.get(told)
        if package is not None and find_spec(package) is None:
            raise ValueError(f"kafka_sasl_mechanism is {told}, which needs a package; pip install {package}")
