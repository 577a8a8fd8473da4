"""`relume events stats`: what stands in the log, how fast it comes, how far groups are behind."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.live import Live

from deploy.cli.applying import DURATION
from deploy.cli.commands import command
from deploy.cli.connection import Connection
from deploy.cli.failing import Refused
from deploy.cli.options import output, talking
from deploy.cli.output import UNKNOWN, age, show_json, table_text
from deploy.cli.setting_options import KAFKA_ACCESS, setting_options, settings_given
from deploy.settings.events_url import KafkaEvents
from deploy.settings.settings import SettingsRefused
from events.clock import SystemClock
from events.log import EventLogError
from events.names import TOPIC_KINDS
from events.units import Instant, format_instant, format_quantity, parse_instant

if TYPE_CHECKING:
    from events.adapters.kafka.counting import Count, PartitionCount

LATELY: Final = 60.0
"""Seconds over which the rate of a type is told, where events are read one by one."""

LEAST_INTERVAL: Final = 0.2

Answer = dict[str, Any]
Look = Callable[[], Answer]


@command("stats", (
    "relume events stats                                        # by type, through the admin API",
    "relume events stats --events kafka://localhost:9092        # by topic and group, from Kafka itself",
    "relume events stats --events kafka://localhost:9092 --topic orders --group workers --partitions",
    "relume events stats --watch --events kafka://localhost:9092 -o json   # a JSON object a line, each second",
))  # fmt: skip
@click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option("--interval", type=DURATION, default="1s", show_default=True, help="Time between two looks.")
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic, of relume or not; with --events."
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="GROUP",
    help="Only this consumer group; with --events. Default: all that the brokers list.",
)
@click.option("--partitions", is_flag=True, help="A row for each partition; with --events.")
@output("table", "json")
@setting_options(("events", *KAFKA_ACCESS))
@talking
def stats(  # noqa: PLR0913 - one parameter an option
    connection: Connection, *, topics: Sequence[str], groups: Sequence[str], interval: float, output: str, watch: bool,
    partitions: bool, **given: str | None,
) -> None:  # fmt: skip
    """Count the events of the log: how many, how many a second, how large, how old the newest is.

    Without --events a running relume is asked, which reads all of them and counts by type. With --events Kafka itself
    is asked, by topic and partition, with the lag of the consumer groups; nothing is read, and rates are those between
    two looks.
    """
    with _way(connection, given, topics, groups) as (look, draw):
        answer = look()
        if not watch:
            if "topics" in answer:
                time.sleep(max(LEAST_INTERVAL, interval))
                answer = look()
            show_json(answer) if output == "json" else click.echo(draw(answer, partitions))
            return
        console = Console()
        if output == "json" or not console.is_terminal:
            while True:
                click.echo(json.dumps(answer) if output == "json" else draw(answer, partitions) + "\n")
                time.sleep(max(LEAST_INTERVAL, interval))
                answer = look()
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(draw(answer, partitions), refresh=True)
                time.sleep(max(LEAST_INTERVAL, interval))
                answer = look()


@contextmanager
def _way(
    connection: Connection, given: dict[str, str | None], topics: Sequence[str], groups: Sequence[str]
) -> Iterator[tuple[Look, Callable[[Answer, bool], str]]]:
    """How to look, and how the answer looks."""
    settings = settings_given(given)
    if not settings.events:
        if topics or groups:
            raise click.UsageError("--topic and --group are for Kafka itself; give --events kafka://HOST:PORT too.")
        yield lambda: _by_type(connection), _types_table
        return
    url = settings.events_url
    if not isinstance(url, KafkaEvents):
        raise click.UsageError("Only Kafka can be asked without a running relume; leave --events out, or kafka://….")
    from deploy.compose.counting import looking  # noqa: PLC0415 - the client takes a while to import

    try:
        with looking(settings, url.servers, topics or tuple(TOPIC_KINDS), groups) as look:
            yield _Rates(look).answer, _topics_table
    except (EventLogError, SettingsRefused) as error:
        raise Refused("Kafka could not be asked", why=str(error)) from error


# Through the admin API.


def _by_type(connection: Connection) -> Answer:
    counts: dict[str, Answer] = {}
    since = SystemClock().now() - LATELY
    for line in connection.lines("/v1alpha1/events", {"from": "beginning", "follow": False}):
        event = json.loads(line)
        first = {"events": 0, "bytes": 0, "first": event.get("time"), "last": None, "perSecond": 0.0}
        row = counts.setdefault(event["type"], first)
        row["events"] += 1
        row["bytes"] += len(line)
        row["last"] = event.get("time")
        if event.get("time") and parse_instant(event["time"]) >= since:
            row["perSecond"] += 1 / LATELY
    for row in counts.values():
        row["perSecond"] = round(row["perSecond"], 2)
    return {"types": counts, "events": sum(row["events"] for row in counts.values())}


def _types_table(answer: Answer, _: bool) -> str:
    rows = [
        [name, str(row["events"]), f"{row['perSecond']:g}", str(row["bytes"]), age(row["first"]), age(row["last"])]
        for name, row in sorted(answer["types"].items(), key=lambda pair: -pair[1]["events"])
    ]
    return table_text(("TYPE", "EVENTS", "PER SECOND", "BYTES", "FIRST AGO", "LAST AGO"), rows)


# From Kafka itself.


class _Rates:
    """Looks, each with the rates since the one before (None: there was none)."""

    def __init__(self, look: Callable[[], Count]) -> None:
        self._look = look
        self._clock = SystemClock()
        self._ends: dict[tuple[str, int], int] = {}
        self._at: Instant | None = None

    def answer(self) -> Answer:
        """The next look."""
        found, now = self._look(), self._clock.now()
        before, ends = self._at, self._ends
        self._at, self._ends = now, {(one.topic, one.partition): one.end for one in found.partitions}

        def rate(one: PartitionCount) -> float | None:
            was = ends.get((one.topic, one.partition))
            return None if before is None or was is None else round(max(0, one.end - was) / (now - before), 2)

        return {
            "topics": [_partition(one, rate(one)) for one in found.partitions],
            "groups": [
                {"group": one.group, "topic": one.topic, "partition": one.partition, "lag": one.lag}
                for one in found.groups
            ],
            "events": sum(one.end - one.first for one in found.partitions),
        }


def _partition(one: PartitionCount, rate: float | None) -> Answer:
    return {
        "topic": one.topic, "partition": one.partition, "first": one.first, "end": one.end,
        "events": one.end - one.first, "perSecond": rate, "bytes": one.bytes,
        "newest": None if one.newest_at is None else format_instant(one.newest_at),
    }  # fmt: skip


def _topics_table(answer: Answer, partitions: bool) -> str:
    topics = answer["topics"] if partitions else _summed(answer["topics"], ("topic",))
    groups = answer["groups"] if partitions else _summed(answer["groups"], ("group", "topic"))
    head = ("TOPIC", "PARTITION" if partitions else "PARTITIONS", "EVENTS", "PER SECOND", "BYTES", "NEWEST AGO")
    text = table_text(head, [_topic_row(one) for one in topics])
    if groups:
        rows = [[one["group"], one["topic"], str(one["partition"]), str(one["lag"])] for one in groups]
        text += "\n\n" + table_text(("GROUP", "TOPIC", head[1], "LAG"), rows)
    return text


def _topic_row(one: Answer) -> list[str]:
    size, rate = one["bytes"], one["perSecond"]
    return [
        one["topic"], str(one["partition"]), str(one["events"]), UNKNOWN if rate is None else f"{rate:g}",
        UNKNOWN if size is None else format_quantity(size), age(one["newest"]),
    ]  # fmt: skip


def _summed(rows: Sequence[Answer], by: tuple[str, ...]) -> list[Answer]:
    """One row for all partitions: their number, sums, and the newest time."""
    found: dict[tuple[str, ...], Answer] = {}
    for row in rows:
        key = tuple(row[name] for name in by)
        total = found.setdefault(key, {**row, "partition": 0, **{name: None for name in _ADDED if name in row}})
        total["partition"] += 1
        for name in _ADDED:
            if row.get(name) is not None:
                total[name] = row[name] + (total[name] or 0)
        if "newest" in row:
            total["newest"] = max(filter(None, (row["newest"], total["newest"])), default=None)
    return list(found.values())


_ADDED: Final = ("events", "perSecond", "bytes", "lag")
