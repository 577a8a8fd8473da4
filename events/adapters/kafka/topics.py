"""The topics of relume in Kafka: how each is made, and whether those that exist are fit.

*State* is compacted, but not before the retention's age, so that the history of the last days can be read too. *News*
and *queue* are deleted after it; news also beyond the retention's bytes. All carry the broker's time of append.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import LeaderNotAvailableError, NoError, TopicAlreadyExistsError, for_code

from events.adapters.kafka.settings import RECORD_BYTES, KafkaSettings
from events.names import TOPIC_KINDS, TopicKind

SEGMENT_BYTES: Final = 64 << 20
"""A segment is forgotten or compacted whole and only once it is closed; Kafka's 1 GiB would keep little topics for
ever."""

READY_WITHIN: Final = 10_000  # milliseconds until new topics have leaders
_UNKNOWN_TOPIC: Final = 3  # Kafka's error code UNKNOWN_TOPIC_OR_PARTITION


@dataclass(frozen=True, slots=True)
class TopicReport:
    """One topic as it is. `partitions` None: it does not exist. `problems`: why it is not fit, each with a remedy."""

    name: str
    kind: TopicKind
    partitions: int | None = None
    replication: int | None = None
    problems: tuple[str, ...] = ()


def wanted_configs(settings: KafkaSettings, kind: TopicKind) -> dict[str, str]:
    """The configuration that a topic of this kind is created with."""
    age = str(round(settings.retention.age * 1000))
    configs = {
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(RECORD_BYTES),
        "segment.bytes": str(SEGMENT_BYTES),
    }
    if kind is TopicKind.STATE:
        return configs | {
            "cleanup.policy": "compact",
            "min.compaction.lag.ms": age,
            "delete.retention.ms": age,
            "min.cleanable.dirty.ratio": "0.1",
        }
    configs |= {"cleanup.policy": "delete", "retention.ms": age}
    if kind is TopicKind.NEWS:
        share = max(SEGMENT_BYTES, settings.retention.bytes // settings.partitions)
        configs["retention.bytes"] = str(share)
    return configs


def check_topics(
    client: KafkaAdminClient, settings: KafkaSettings, topics: Sequence[str] = tuple(TOPIC_KINDS)
) -> tuple[TopicReport, ...]:
    """Each topic as it is, in order, and what does not fit `settings`."""
    found = {topic["name"]: topic for topic in client.describe_topics(list(topics)) if topic["name"] is not None}
    known = [name for name in topics if found.get(name, {}).get("error_code") == 0]
    configs = _configs(client, known)
    reports = [_report(str(name), found.get(name), configs.get(name, {}), settings) for name in topics]
    return tuple(_with_uneven(reports))


def check_created(client: KafkaAdminClient, settings: KafkaSettings) -> tuple[TopicReport, ...]:
    """All topics right after they were created: a broker that does not know one yet is asked again (by the caller, who
    tries again what passes)."""
    reports = check_topics(client, settings)
    if missing := [report.name for report in reports if report.partitions is None]:
        raise LeaderNotAvailableError(f"just created, and not known to each broker yet: {', '.join(missing)}")
    return reports


def create_topics(client: KafkaAdminClient, settings: KafkaSettings, reports: Sequence[TopicReport]) -> list[str]:
    """Create those of `reports` that are missing, with as many partitions as the others have; their names.

    Where there are none at all the first is created alone: of several processes that find nothing at the same moment,
    perhaps with different settings, one creates it, and all others go by its number of partitions. One that another
    process created is none of ours.
    """
    created: list[str] = []
    if common_partitions(reports) is None and reports:
        created = _create(client, settings, reports[:1], settings.partitions)
        client.wait_for_topics([reports[0].name], timeout_ms=READY_WITHIN)
        reports = (*check_topics(client, settings, [reports[0].name]), *reports[1:])
    created += _create(client, settings, reports, common_partitions(reports) or settings.partitions)
    client.wait_for_topics([report.name for report in reports], timeout_ms=READY_WITHIN)
    return created


def _create(
    client: KafkaAdminClient, settings: KafkaSettings, reports: Sequence[TopicReport], partitions: int
) -> list[str]:
    wanted = {
        report.name: {
            "num_partitions": partitions,
            "replication_factor": settings.replication,
            "configs": wanted_configs(settings, report.kind),
        }
        for report in reports
        if report.partitions is None
    }
    created = []
    for topic in client.create_topics(wanted, raise_errors=False)["topics"] if wanted else ():
        error = for_code(topic["error_code"])
        if error is NoError:
            created.append(topic["name"])
        elif error is not TopicAlreadyExistsError:
            why = f"{topic['name']} cannot be created: {topic['error_message'] or error.description}"
            # Right after its start no broker may hold anything yet, which Kafka tells as a wrong number of copies.
            raise LeaderNotAvailableError(why) if "fenced" in why else error(why)
    return created


def common_partitions(reports: Sequence[TopicReport]) -> int | None:
    """How many partitions the topics that exist have; None when there are none, or they differ."""
    counts = {report.partitions for report in reports if report.partitions is not None}
    return counts.pop() if len(counts) == 1 else None


def problems_of(reports: Sequence[TopicReport]) -> list[str]:
    """All that is wrong, a sentence each; missing topics among it."""
    missing = [report.name for report in reports if report.partitions is None]
    found = [f"{report.name}: {problem}" for report in reports for problem in report.problems]
    if missing:
        found.insert(0, f"missing: {', '.join(missing)}; create them with: relume topics create")
    return found


def _configs(client: KafkaAdminClient, names: Sequence[str]) -> dict[str, Mapping[str, str]]:
    if not names:
        return {}
    asked = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    told = client.describe_configs(asked, config_filter="all").get("topic", {})
    return {
        name: {key: str(entry["value"]) for key, entry in entries.items()} for name, entries in told.items()
    }  # fmt: skip


def _report(
    name: str, topic: Mapping[str, object] | None, configs: Mapping[str, str], settings: KafkaSettings
) -> TopicReport:
    kind = TOPIC_KINDS.get(name, TopicKind.QUEUE)
    if topic is None or topic["error_code"] == _UNKNOWN_TOPIC:
        return TopicReport(name, kind)
    if topic["error_code"] != 0:  # just created by another, it has no leader yet: that passes
        raise for_code(topic["error_code"])(f"{name} cannot be described")
    if "cleanup.policy" not in configs:
        raise LeaderNotAvailableError(
            f"{name}: its configuration is not told: the broker that was asked does not know it yet, or the right to "
            "DescribeConfigs is missing"
        )
    partitions = topic["partitions"]
    assert isinstance(partitions, list)
    replication = min((len(one["replica_nodes"]) for one in partitions), default=0)
    return TopicReport(name, kind, len(partitions), replication, tuple(_faults(kind, configs, settings)))


def _faults(kind: TopicKind, configs: Mapping[str, str], settings: KafkaSettings) -> list[str]:
    faults = []
    policy = configs.get("cleanup.policy", "")
    if kind is TopicKind.STATE and "compact" not in policy:
        faults.append(f"cleanup.policy is {policy}, so states would be forgotten; set it to compact")
    if kind is TopicKind.STATE and "delete" in policy:
        faults.append(f"cleanup.policy is {policy}, so states that do not change would be forgotten; take delete out")
    if kind is not TopicKind.STATE and "compact" in policy:
        faults.append(f"cleanup.policy is {policy}, so news of a model would hide other news; set it to delete")
    age = round(settings.retention.age * 1000)
    if kind is not TopicKind.STATE and 0 <= int(configs.get("retention.ms", "-1")) < age:
        faults.append(
            f"retention.ms is {configs['retention.ms']}, less than what --events-age says ({age}); set it to {age}, or "
            "give a smaller --events-age"
        )
    if configs.get("message.timestamp.type") != "LogAppendTime":
        faults.append("message.timestamp.type is CreateTime, so producers' clocks would count; set it to LogAppendTime")
    return faults


def _with_uneven(reports: Sequence[TopicReport]) -> list[TopicReport]:
    """All topics have the same number of partitions, since the partition of a model is the same in each."""
    counts = {report.partitions for report in reports if report.partitions is not None}
    if len(counts) < 2:
        return list(reports)
    said = f"topics have {', '.join(map(str, sorted(counts)))} partitions; all must have the same number"
    remedy = "recreate those that differ (partitions can be added, but what stands in them stays where it is)"
    return [
        TopicReport(report.name, report.kind, report.partitions, report.replication,
                    (*report.problems, f"{said}: {remedy}"))
        if report.partitions not in (None, max(counts)) else report
        for report in reports
    ]  # fmt: skip
