"""`relume events produce`: tell what happened elsewhere, checked before anything is sent."""

from __future__ import annotations

import contextlib
import difflib
import json
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final

import click
from click.shell_completion import CompletionItem

from deploy.cli.commands import command
from deploy.cli.connection import Connection, Question
from deploy.cli.failing import Refused
from deploy.cli.options import complete_models, output, talking
from deploy.cli.output import say, show_json
from deploy.cli.setting_options import KAFKA_ACCESS, setting_options, settings_given
from deploy.settings.events_url import KafkaEvents
from deploy.settings.settings import SettingsRefused
from events.clock import SystemClock
from events.codec import MAX_EVENT_BYTES, Ignored, Rejected, decode_structured, encode_structured
from events.envelope import AnyEnvelope
from events.foreign import FOREIGN
from events.kinds import KINDS
from events.log import EventLogError
from events.payload import Unencodable

BATCH: Final = 500
"""Events that are checked, then sent, together; the admin API takes 1000 at most."""

BODY: Final = 3 << 20
"""Bytes of one request to the admin API, which takes 4 MiB."""

IDS: Final = 1000
"""Most ids that an answer repeats."""

SOURCE: Final = "relume/cli"

NAMES: Final = {KINDS[data].name.removeprefix("relume."): KINDS[data].full_name for data in FOREIGN}
"""What may be produced, by its short name."""

Send = Callable[[Sequence[AnyEnvelope]], None]


def _complete_types(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in NAMES if name.startswith(incomplete)]


@command("produce", (
    "relume events produce activation.requested --model llama --data '{\"replicas\": 2}'",
    "relume events produce signal.measured --model llama --data '{\"name\": \"jobs\", \"value\": 35, \"target\": 10}'",
    "relume events produce -f events.jsonl                     # one CloudEvent a line; - is standard input",
    "relume events produce -f - --events kafka://localhost:9092   # to Kafka itself, without a running relume",
    "relume events produce -f events.jsonl --dry-run",
))  # fmt: skip
@click.argument("kind", metavar="[TYPE]", required=False, shell_complete=_complete_types)
@click.option("--model", shell_complete=complete_models, help="The model that it is about.")
@click.option("--data", metavar="JSON", help="The event's data, a JSON object.")
@click.option("--id", "ident", metavar="ID", help="Unique for its source; the same again is the same event.")
@click.option("--source", default=SOURCE, show_default=True, help="Who says so.")
@click.option("-f", "--file", "file", metavar="FILE", help="CloudEvents, one JSON object a line; - is standard input.")
@click.option("--dry-run", is_flag=True, help="Check everything; send nothing.")
@output("text", "json")
@setting_options(("events", *KAFKA_ACCESS))
@talking
def produce(  # noqa: PLR0913 - one parameter an option
    connection: Connection, *, kind: str | None, model: str | None, data: str | None, ident: str | None, source: str,
    file: str | None, output: str, dry_run: bool, **given: str | None,
) -> None:  # fmt: skip
    """Tell one event, or those of a file: TYPE is request.arrived, request.finished, activation.requested,
    signal.measured, backlog.measured, lag.measured, replica.metrics or inference.requested.

    Every event is checked against its schema first; a wrong one is told with its line, and its batch of 500 is not
    sent. Without --events they go through the admin API, with it to Kafka itself. A line's missing id, source and
    specversion are filled in; an id of your own makes it safe to send the same file twice.
    """
    if (kind is None) == (file is None):
        raise click.UsageError("Give a TYPE with --model and --data, or a file with -f; not both.")
    if file is not None and (model or data or ident):
        raise click.UsageError("--model, --data and --id make one event; the lines of a file say theirs.")
    lines = _lines(file) if file is not None else iter([(0, _one(str(kind), model, data, ident))])
    count = 0
    ids: list[str] = []
    with way(connection, given, dry_run) as send:
        while batch := list(islice(lines, BATCH)):
            envelopes = [_checked(number, event, source, count) for number, event in batch]
            send(envelopes)
            count += len(envelopes)
            ids += [envelope.id for envelope in envelopes[: IDS - len(ids)]]
    if output == "json":
        show_json({"appended": 0 if dry_run else count, "checked": count, "ids": ids})
    else:
        say(f"{count} event{'' if count == 1 else 's'} {'would be sent' if dry_run else 'sent'}")


def _one(kind: str, model: str | None, data: str | None, ident: str | None) -> dict[str, Any]:
    name = kind.removeprefix("relume.").removesuffix(".v1")
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(NAMES)}."
        raise click.UsageError(f"{kind!r} is no type that may be produced; {hint}")
    try:
        fields = {} if data is None else json.loads(data)
    except json.JSONDecodeError as error:
        raise click.UsageError(f"--data is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise click.UsageError("--data must be a JSON object, such as '{\"replicas\": 2}'")
    event = {"type": NAMES[name], "data": {**fields, **({"model": model} if model else {})}}
    return {**event, **({"id": ident} if ident else {})}


def _lines(file: str) -> Iterator[tuple[int, object]]:
    """The lines that are not empty, with their numbers, as they are read: a pipe may go on for hours."""
    with _opened(file) as opened:
        number = 0
        while raw := opened.readline(MAX_EVENT_BYTES + 2):
            number += 1
            if len(raw) > MAX_EVENT_BYTES + 1:
                raise Refused(f"line {number} is longer than an event may be: {MAX_EVENT_BYTES} bytes")
            if not raw.strip():
                continue
            try:
                yield number, json.loads(raw)
            except ValueError as error:
                raise Refused(f"line {number} is not JSON", why=str(error)) from error


def _opened(file: str) -> AbstractContextManager[IO[bytes]]:
    if file == "-":
        return contextlib.nullcontext(sys.stdin.buffer)
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise Refused(f"{file} cannot be read", why=str(error.strerror)) from error


def _checked(number: int, event: object, source: str, sent: int) -> AnyEnvelope:
    """The event, or why it is refused."""
    where = f"line {number}: " if number else ""
    before = f"{sent} events before its batch were sent" if sent else "nothing was sent"
    if isinstance(event, dict):
        event = {"specversion": "1.0", "id": str(uuid.uuid4()), "source": source, **event}
    found = decode_structured(json.dumps(event).encode(), SystemClock().now())
    if isinstance(found, Ignored | Rejected):
        remedy = "docs/reference/asyncapi.yaml says how each event looks"
        raise Refused(f"{where}{found.reason}", why=before, remedy=remedy)
    if not isinstance(found.data, FOREIGN):
        raise Refused(
            f"{where}{KINDS[type(found.data)].full_name} has one writer, inside relume", why=before,
            remedy=f"produce one of {', '.join(NAMES)}",
        )  # fmt: skip
    return found


@contextmanager
def way(connection: Connection, given: dict[str, str | None], dry_run: bool) -> Iterator[Send]:
    """How checked events are sent."""
    if dry_run:
        yield lambda _: None
        return
    settings = settings_given(given)
    if not settings.events:
        yield lambda envelopes: _through_admin(connection, envelopes)
        return
    url = settings.events_url
    if not isinstance(url, KafkaEvents):
        raise click.UsageError("Only Kafka takes events without a running relume; leave --events out, or kafka://….")
    from deploy.compose.producing import KafkaSender  # noqa: PLC0415 - the client takes a while to import

    try:
        with KafkaSender(settings, url.servers) as sender:
            yield sender.send
    except (EventLogError, SettingsRefused, Unencodable) as error:
        remedy = "relume topics create" if "there is no topic" in str(error) else ""
        raise Refused("the events could not be sent", why=str(error), remedy=remedy) from error


def _through_admin(connection: Connection, envelopes: Sequence[AnyEnvelope]) -> None:
    waiting: list[bytes] = []
    for raw in (*map(encode_structured, envelopes), b""):
        if waiting and (not raw or sum(map(len, waiting)) + len(raw) > BODY):
            body = b"[" + b",".join(waiting) + b"]"
            connection.ask(Question("POST", "/v1alpha1/events", body=body, kind="application/cloudevents-batch+json"))
            waiting = []
        waiting.append(raw)
