"""Lag of consumer groups on any cluster, read with Kafka's admin client: one client and one thread a cluster."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from autoscaler.core.lag import Look, Offsets
from autoscaler.core.policy import LagPolicy
from autoscaler.ports import LagUnknown
from deploy.compose.eventlog import MISSING, kafka_settings
from deploy.settings.events_url import KafkaEvents
from deploy.settings.kafka_clusters import KafkaCluster, read_clusters
from deploy.settings.settings import SettingProblem, Settings, SettingsRefused
from events.adapters.kafka import settings as kafka
from events.clock import Clock
from events.log import EventLogError
from events.units import Seconds

if TYPE_CHECKING:
    from events.adapters.kafka.client import Admin

CLUSTERS_MOST: Final = 32
"""Clients kept; the one that was used least lately makes room."""

PATIENCE: Final = Seconds(5.0)
"""The longest that one question may take, with its repetitions; a look asks three to four in one go."""

Key = tuple[tuple[str, ...], str]


class KafkaLags:
    """See `autoscaler.ports.LagReader`. A cluster without a name and servers is that of the event log."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        """Raises SettingsRefused for a file of clusters that cannot be used."""
        self._clock = clock
        self._own = _own(settings)
        self._named = _named(settings.kafka_clusters)
        self._clients: dict[Key, Admin] = {}

    async def look(self, lag: LagPolicy) -> Look:
        """See the port."""
        if importlib.util.find_spec("kafka") is None:
            raise LagUnknown(MISSING)
        from events.adapters.kafka.standing import NoTopic, standing  # noqa: PLC0415 - comes with an extra

        client = self._client(lag)
        try:
            found = await client.call(lambda admin: standing(admin, lag.group, lag.topic, lag.partitions), PATIENCE)
        except (EventLogError, NoTopic) as error:
            raise LagUnknown(str(error)) from error
        offsets = {place: Offsets(one.first, one.end, one.committed) for place, one in found.items()}
        return Look(self._clock.now(), offsets)

    def close(self) -> None:
        """See the port."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _client(self, lag: LagPolicy) -> Admin:
        from events.adapters.kafka.client import Admin, quieten  # noqa: PLC0415 - comes with an extra

        key = (lag.servers, lag.cluster)
        client = self._clients.pop(key, None)
        if client is None:
            quieten()
            client = Admin(self._settings(lag))
            if len(self._clients) >= CLUSTERS_MOST:
                self._clients.pop(next(iter(self._clients))).close()
        self._clients[key] = client  # the one used last stands last
        return client

    def _settings(self, lag: LagPolicy) -> kafka.KafkaSettings:
        if lag.cluster:
            found = self._named.get(lag.cluster)
            if found is None:
                raise LagUnknown(f"there is no cluster {lag.cluster} in the file that --kafka-clusters names")
            return found
        if lag.servers:
            return _patient(kafka.KafkaSettings(lag.servers))
        if self._own is None:
            raise LagUnknown("the event log is not on Kafka; give kafkaLag a cluster or bootstrapServers")
        return self._own


def _own(settings: Settings) -> kafka.KafkaSettings | None:
    url = settings.events_url
    return _patient(kafka_settings(settings, url.servers)) if isinstance(url, KafkaEvents) else None


def _named(path: Path | None) -> Mapping[str, kafka.KafkaSettings]:
    if path is None:
        return {}
    try:
        return {name: _patient(_reached(cluster)) for name, cluster in read_clusters(path).items()}
    except (ValueError, OSError) as error:
        raise SettingsRefused([SettingProblem("kafka_clusters", str(path), str(error), "mend the file")]) from error


def _reached(cluster: KafkaCluster) -> kafka.KafkaSettings:
    security = kafka.KafkaSecurity(
        protocol=cast("kafka.Protocol", cluster.security.upper()),
        ca=cluster.tls_ca,
        certificate=cluster.tls_cert,
        key=cluster.tls_key,
        mechanism=cluster.sasl_mechanism,
        username=cluster.username,
        password=cluster.password(),
        token_file=cluster.token_file,
    )
    return kafka.KafkaSettings(cluster.servers, security)


def _patient(settings: kafka.KafkaSettings) -> kafka.KafkaSettings:
    """As patient as a measurement is, which comes again in seconds."""
    return replace(settings, client_id="relume-lag", request_timeout=Seconds(3.0), open_timeout=Seconds(3.0))
