"""`relume events`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import click

from deploy.cli.commands import Lazy, LazyGroup, command
from deploy.cli.connection import Connection
from deploy.cli.failing import Refused
from deploy.cli.options import complete_models, output, talking

CUT: Final = "relume.stream.cut.v1"
"""The type of the last word of a stream that the server ends; it stands in no log."""

SUMMARY: Final = 120
"""Characters of an event's data that a line for people shows."""

_IN_SUBJECT: Final = frozenset({"model", "replica", "revision", "uid", "at"})
"""Fields that a line for people leaves out: the subject and the time say them already."""

events = LazyGroup(
    name="events",
    help="Follow, tell and count the events of the log.",
    lazy={
        "tail": Lazy("deploy.cli.events:tail", "Follow events as they come."),
        "produce": Lazy("deploy.cli.producing:produce", "Tell what happened elsewhere."),
        "stats": Lazy("deploy.cli.counting:stats", "Count events: how many, how fast, how far behind."),
    },
    examples=(
        "relume events tail --topic relume.decisions",
        "relume events produce activation.requested --model llama",
        "relume events stats",
    ),
)


@command("tail", (
    "relume events tail",
    "relume events tail --topic relume.decisions --from-beginning -o json   # one CloudEvent a line",
    "relume events tail --model llama --no-follow --from 2026-11-29T18:00:00Z",
))  # fmt: skip
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic; may be repeated.")
@click.option("--model", shell_complete=complete_models, help="Only events about this model.")
@click.option("--from-beginning", is_flag=True, help="Begin with all that stands in the log.")
@click.option("--from", "since", metavar="TIME", help="Begin at an RFC 3339 time.")
@click.option("--limit", type=click.IntRange(1), help="End after so many.")
@click.option("--follow/--no-follow", default=True, show_default=True, help="Go on with what comes.")
@output("text", "json")
@talking
def tail(  # noqa: PLR0913 - one parameter an option
    connection: Connection, *, topics: Sequence[str], model: str | None, since: str | None, limit: int | None,
    output: str, from_beginning: bool, follow: bool,
) -> None:  # fmt: skip
    """Follow events as they come. With -o json: one JSON object a line."""
    if from_beginning and since:
        raise click.UsageError("--from-beginning and --from are two beginnings; give one")
    start = "beginning" if from_beginning or (not follow and not since) else since or "now"
    query = {"topic": list(topics) or None, "model": model, "from": start, "limit": limit, "follow": follow}
    for line in connection.lines("/v1alpha1/events", query, follow=follow):
        text = line.decode("utf-8", "replace")
        if CUT in text and (event := json.loads(text)).get("type") == CUT:
            raise Refused("the stream was ended by relume", why=event["data"]["reason"], remedy="follow again")
        click.echo(text if output == "json" else _sentence(json.loads(text)))


def _sentence(event: dict[str, Any]) -> str:
    data = ", ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in (event.get("data") or {}).items()
        if value not in (None, "", [], {}) and name not in _IN_SUBJECT
    )
    short = data if len(data) <= SUMMARY else data[: SUMMARY - 1] + "…"
    kind = str(event.get("type", "")).removeprefix("relume.")
    return f"{event.get('time', '')!s:<27} {kind:<28} {event.get('subject', '')}  {short}"
