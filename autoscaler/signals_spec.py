"""What a user writes under `scaling.signals`: numbers from outside that the model follows."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from autoscaler.core.policy import EngineNumber, LagPolicy, QueryPolicy, Series, SignalPolicy
from events.spec import Duration, Spec
from events.units import Seconds

SIGNALS_MOST = 8
"""Signals that one model may declare."""

KafkaName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
"""What Kafka takes as the name of a topic."""

Server = Annotated[str, StringConstraints(pattern=r"^[^\s,/]+:\d{1,5}$")]

ClusterName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]


MetricsServer = Annotated[str, StringConstraints(pattern=r"^(https?://[^\s@]+|[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)$")]
"""A name, or a URL without a password in it: declarations are read by many."""


class KafkaLagSpec(Spec):
    """The lag of a consumer group: records of a topic that it has not committed yet."""

    group: Annotated[str, StringConstraints(min_length=1, max_length=249)]
    """The consumer group."""
    topic: KafkaName | None = None
    """The topic; default: all topics that the group has committed in."""
    partitions: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=1000)] = ()
    """Only these partitions of the topic; default: all."""
    bootstrap_servers: Annotated[tuple[Server, ...], Field(max_length=16)] = ()
    """HOST:PORT of some brokers, without encryption; default: the brokers of the event log."""
    cluster: ClusterName | None = None
    """Instead: a cluster that --kafka-clusters names, with its servers, certificates and password."""
    every: Annotated[Duration, Field(ge=1, le=300)] = 5.0
    """How often it is measured."""
    target: Annotated[float, Field(gt=0)] = 10.0
    """Records of lag that one replica takes."""
    drain_within: Annotated[Duration, Field(ge=1)] | None = None
    """The lag is to be worked off in so long; sizes by the measured rate of a replica as soon as that is known."""
    activation: Annotated[float, Field(ge=0)] = 0.0
    """A lag that is not above it wakes nothing and needs nothing."""
    offset_reset_policy: Literal["latest", "earliest"] = "latest"
    """Where a group without a committed offset begins: latest counts 1 a partition, earliest all that is there."""
    scale_to_zero_on_invalid_offset: bool = False
    """Without a committed offset there is no lag."""
    allow_idle_consumers: bool = False
    """More replicas than partitions are of use."""
    limit_to_partitions_with_lag: bool = False
    """No more replicas than partitions that have lag."""
    ensure_even_distribution: bool = False
    """Only as many replicas as share the partitions evenly."""
    exclude_persistent_lag: Annotated[Duration, Field(ge=1)] | None = None
    """Lag of a partition whose committed offset has stood still for so long keeps one replica and sizes nothing."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.cluster is not None and self.bootstrap_servers:
            raise ValueError("cluster and bootstrapServers both say where the topic is; leave one out")
        if self.partitions and self.topic is None:
            raise ValueError("partitions are those of one topic; name the topic")
        if self.limit_to_partitions_with_lag:
            if self.topic is None:
                raise ValueError("limitToPartitionsWithLag counts partitions of one topic; name the topic")
            if self.allow_idle_consumers or self.ensure_even_distribution:
                raise ValueError(
                    "limitToPartitionsWithLag contradicts allowIdleConsumers and ensureEvenDistribution; leave it out"
                )
        return self

    def resolve(self) -> LagPolicy:
        """Plain numbers."""
        return LagPolicy(
            group=self.group,
            topic=self.topic or "",
            partitions=tuple(sorted(set(self.partitions))),
            servers=self.bootstrap_servers,
            cluster=self.cluster or "",
            every=Seconds(self.every),
            target=self.target,
            drain_within=None if self.drain_within is None else Seconds(self.drain_within),
            from_earliest=self.offset_reset_policy == "earliest",
            no_offset_is_zero=self.scale_to_zero_on_invalid_offset,
            allow_idle_consumers=self.allow_idle_consumers,
            limit_to_partitions_with_lag=self.limit_to_partitions_with_lag,
            even_distribution=self.ensure_even_distribution,
            exclude_after=None if self.exclude_persistent_lag is None else Seconds(self.exclude_persistent_lag),
        )


class PrometheusSpec(Spec):
    """What a Prometheus server answers to a query, now and again."""

    query: Annotated[str, StringConstraints(min_length=1, max_length=4096)]
    """PromQL whose answer is one number, such as sum(vllm:num_requests_waiting{model_name="llama"})."""
    server: MetricsServer | None = None
    """A server that --prometheus-servers names, or a URL; default: that of --prometheus."""
    every: Annotated[Duration, Field(ge=1, le=300)] = 15.0
    """How often it is asked."""
    target: Annotated[float, Field(gt=0)] = 1.0
    """How much of it one replica takes."""
    activation: Annotated[float, Field(ge=0)] = 0.0
    """A number that is not above it wakes nothing and needs nothing."""
    series: Series = Series.ONE
    """What to make of several series: one refuses them, sum and max say how they are one number."""
    empty_is_zero: bool = False
    """An answer without any series means 0; by default it means that the number is not known."""

    def resolve(self) -> QueryPolicy:
        """Plain numbers."""
        return QueryPolicy(
            query=self.query, server=self.server or "", every=Seconds(self.every), series=self.series,
            empty_is_zero=self.empty_is_zero,
        )  # fmt: skip


class EngineSignalSpec(Spec):
    """What the model's engines tell of themselves, added up over its replicas that are ready."""

    metric: EngineNumber
    """running or waiting: requests in the engines; kvCacheUse: how full their caches are (1: one is full)."""
    target: Annotated[float, Field(gt=0)]
    """How much of it one replica takes, such as 0.8 of kvCacheUse."""
    activation: Annotated[float, Field(ge=0)] = 0.0
    """A number that is not above it needs nothing."""


class SignalSpec(Spec):
    """One number from outside: told by anyone as relume.signal.measured, or measured by relume itself."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=253)] | None = None
    """Its name, as in relume.signal.measured; of what relume measures it may be left out."""
    target: Annotated[float, Field(gt=0)] | None = None
    """How much of it one replica takes; default: what its sender says."""
    activation: Annotated[float, Field(ge=0)] | None = None
    """A number that is not above it wakes nothing and needs nothing; default: 0."""
    kafka_lag: KafkaLagSpec | None = None
    """Measured by relume: the lag of a consumer group."""
    prometheus: PrometheusSpec | None = None
    """Measured by relume: what a Prometheus server answers to a query."""
    engine: EngineSignalSpec | None = None
    """Measured by relume: what the model's engines tell of themselves. While no replica is ready it does not count."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = {"kafkaLag": self.kafka_lag, "prometheus": self.prometheus, "engine": self.engine}
        kinds = [name for name, spec in given.items() if spec is not None]
        if not kinds and self.name is None:
            raise ValueError(
                "a signal needs a name, or says what is measured; add name: …, kafkaLag: …, prometheus: … or engine: …"
            )
        if len(kinds) > 1:
            count = "two" if len(kinds) == 2 else "three"
            raise ValueError(f"{' and '.join(kinds)} are {count} signals; write each as an item of its own")
        if kinds and (self.target is not None or self.activation is not None):
            raise ValueError(f"target and activation of {kinds[0]} stand inside it; move them there")
        return self

    @property
    def known_as(self) -> str:
        """Its name, or what stands in for it."""
        if self.name is not None:
            return self.name
        if self.prometheus is not None:
            return f"prometheus/{self.prometheus.query}"[:253]
        if self.engine is not None:
            return f"engine/{self.engine.metric.value}"
        if self.kafka_lag is None:
            return ""
        return f"kafka/{self.kafka_lag.cluster or 'default'}/{self.kafka_lag.topic or '*'}/{self.kafka_lag.group}"[:253]

    def resolve(self) -> SignalPolicy:
        """Plain numbers."""
        lag, query = self.kafka_lag, self.prometheus
        if query is not None:
            return SignalPolicy(
                name=self.known_as, target=query.target, activation=query.activation, query=query.resolve()
            )
        if self.engine is not None:
            own = self.engine
            return SignalPolicy(name=self.known_as, target=own.target, activation=own.activation, engine=own.metric)
        return SignalPolicy(
            name=self.known_as,
            target=self.target,
            activation=(self.activation or 0.0) if lag is None else lag.activation,
            lag=None if lag is None else lag.resolve(),
        )
