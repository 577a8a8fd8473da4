"""`relume topics`: the topics of an event log on Kafka."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Final

import click

from deploy.cli.commands import Lazy, LazyGroup, command
from deploy.cli.failing import Refused
from deploy.cli.options import output
from deploy.cli.output import number, say, show_json, show_table
from deploy.cli.setting_options import KAFKA_OPTIONS, setting_options, settings_given
from deploy.compose import topics as looking
from deploy.settings.events_url import KafkaEvents
from deploy.settings.settings import Settings, SettingsRefused
from events.log import EventLogError

_OPTIONS: Final = ("events", *KAFKA_OPTIONS)

topics = LazyGroup(
    name="topics",
    help="The topics of an event log on Kafka.",
    lazy={
        "check": Lazy("deploy.cli.topics:check", "Say whether they are there and fit."),
        "create": Lazy("deploy.cli.topics:create", "Create those that are missing."),
    },
    examples=(
        "relume topics check --events kafka://localhost:9092",
        "relume topics create --events kafka://localhost:9092 --kafka-replication 3",
    ),
)


@command("check", (
    "relume topics check --events kafka://localhost:9092",
    "RELUME_EVENTS=kafka://b1:9092,b2:9092 relume topics check -o json",
))  # fmt: skip
@setting_options(_OPTIONS)
@output("table", "json")
def check(output: str, **given: str | None) -> int:
    """Say of each topic whether it is there and fit. Exit code 1 when one is not."""
    return _show(_look(looking.check, given), output)


@command("create", (
    "relume topics create --events kafka://localhost:9092",
    "relume topics create --events kafka://b1:9092 --kafka-partitions 24 --kafka-replication 3 -o json",
))  # fmt: skip
@setting_options(_OPTIONS)
@output("table", "json")
def create(output: str, **given: str | None) -> int:
    """Create the missing topics; those that exist are left as they are. Exit code 1 when one is not fit."""
    state = _look(looking.create, given, "created")
    for name in state.created:
        say(f"created: {name}")
    return _show(state, output)


def _look(
    work: Callable[[Settings, tuple[str, ...]], looking.TopicsState], given: dict[str, str | None],
    done: str = "looked at",
) -> looking.TopicsState:  # fmt: skip
    settings = settings_given(given)
    url = settings.events_url
    if not isinstance(url, KafkaEvents):
        raise click.UsageError("Topics are Kafka's; give --events kafka://HOST:PORT or set RELUME_EVENTS.")
    try:
        return work(settings, url.servers)
    except SettingsRefused as error:
        raise Refused(f"the topics could not be {done}", why=str(error)) from error
    except EventLogError as error:
        remedy = "do the brokers run, is --events right, and does --kafka-security say how they want to be spoken to?"
        if done == "created":
            remedy += " Are there as many brokers as --kafka-replication wants copies?"
        raise Refused(f"the topics could not be {done}", why=str(error), remedy=remedy) from error


def _show(state: looking.TopicsState, output: str) -> int:
    if output == "json":
        show_json(asdict(state) | {"fit": not state.problems})
    else:
        rows = [
            [one.name, one.kind, number(one.partitions), number(one.replication), _word(one)] for one in state.topics
        ]
        show_table(("TOPIC", "KIND", "PARTITIONS", "REPLICATION", "STATE"), rows)
        for problem in state.problems:
            say(f"problem: {problem}")
    return 1 if state.problems else 0


def _word(topic: looking.TopicState) -> str:
    if topic.partitions is None:
        return "missing"
    return "not fit" if topic.problems else "fit"
