"""`relume dead-letters`: events that could not be read, and asynchronous requests that ended without an answer."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from deploy.cli.commands import Lazy, LazyGroup, command
from deploy.cli.connection import Connection, Question
from deploy.cli.failing import Refused
from deploy.cli.options import complete_models, output, talking
from deploy.cli.output import age, say, show_json, show_table
from events.dead_letters import RAW_BYTES
from events.names import Topic
from events.units import format_instant, parse_instant

LETTERS: Final = 10_000
"""Most dead letters of one list."""

BATCH: Final = 200
"""Letters that are replayed together."""

SOURCE: Final = "relume/replay"
_FIELDS: Final = ("path", "body", "priority", "correlationId", "caller", "stream", "replyTopic", "idempotencyKey")
"""What a request is asked again with. Its deadline is not: it has passed."""

KINDS: Final = ("all", "events", "inference")

dead_letters = LazyGroup(
    name="dead-letters",
    help="Events that could not be read, and asynchronous requests that ended without an answer.",
    lazy={
        "list": Lazy("deploy.cli.dead_letters:list_letters", "List them, newest first."),
        "replay": Lazy("deploy.cli.dead_letters:replay", "Put them on their topics again."),
    },
    examples=("relume dead-letters list", "relume dead-letters replay --kind inference --all --dry-run"),
)


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter, of either topic. `event` asks for it again; None: it cannot be put again, and `why`."""

    shown: dict[str, Any]
    event: dict[str, Any] | None
    why: str = ""


_KIND = click.option("--kind", type=click.Choice(KINDS), default="all", show_default=True,
                     help="Events that could not be read, requests without an answer, or both.")  # fmt: skip
_MODEL = click.option("--model", shell_complete=complete_models, help="Only requests for this model.")
_REASON = click.option("--reason", metavar="TEXT", help="Only those whose reason says this.")
_LIMIT = click.option("--limit", type=click.IntRange(1, LETTERS), default=100, show_default=True,
                      help="The newest so many.")  # fmt: skip


@command("list", (
    "relume dead-letters list",
    "relume dead-letters list --kind inference --model llama --reason deadline",
    "relume dead-letters list -o json --limit 1000",
))  # fmt: skip
@_KIND
@_MODEL
@_REASON
@_LIMIT
@output("table", "json")
@talking
def list_letters(  # noqa: PLR0913 - one parameter an option
    connection: Connection, *, kind: str, model: str | None, reason: str | None, limit: int, output: str
) -> None:  # fmt: skip
    """List what could not be read or answered, newest first, with the reason."""
    letters = _chosen(connection, kind, model, reason)[:limit]
    if output == "json":
        show_json({"items": [letter.shown for letter in letters]})
    elif not letters:
        say("no dead letters")
    else:
        rows = [
            [age(one["at"]), one["topic"], one["type"] or "-", one["id"], one["reason"]]
            for one in (letter.shown for letter in letters)
        ]
        show_table(("AGO", "TOPIC", "TYPE", "ID", "REASON"), rows)


@command("replay", (
    "relume dead-letters replay --id outcome/0c3f…              # one, by the id that the list shows",
    "relume dead-letters replay --kind inference --model llama --all --dry-run -o json",
    "relume dead-letters replay --kind inference --reason deadline --all",
))  # fmt: skip
@click.option("--id", "idents", multiple=True, metavar="ID", help="This one; may be repeated.")
@click.option("--all", "everything", is_flag=True, help="All that the filters leave.")
@_KIND
@_MODEL
@_REASON
@click.option("--dry-run", is_flag=True, help="Say what would be put again; put nothing.")
@output("text", "json")
@talking
def replay(  # noqa: PLR0913 - one parameter an option
    connection: Connection, *, idents: Sequence[str], everything: bool, kind: str, model: str | None,
    reason: str | None, dry_run: bool, output: str,
) -> int:  # fmt: skip
    """Put dead letters on their topics again, as new events whose cause is the letter.

    A request is asked again without its old deadline. An event that could not be read is put again as it was, which
    helps after an upgrade; it must stand whole in its letter (4 KiB). Exit code 1 when one could not be put again.
    """
    if bool(idents) == everything:
        raise click.UsageError("Give --id (once or more), or --all; not both.")
    letters = _chosen(connection, kind, model, reason)
    if idents:
        unknown = set(idents) - {letter.shown["id"] for letter in letters}
        if unknown:
            raise Refused(f"there is no dead letter {min(unknown)!r}", remedy="relume dead-letters list")
        letters = [letter for letter in letters if letter.shown["id"] in idents]
    able = [letter for letter in letters if letter.event is not None]
    unable = [letter for letter in letters if letter.event is None]
    if not dry_run:
        for first in range(0, len(able), BATCH):
            _send(connection, [letter.event for letter in able[first : first + BATCH]])
    if output == "json":
        show_json({
            "replayed": [letter.shown["id"] for letter in able], "dryRun": dry_run,
            "refused": [{"id": letter.shown["id"], "why": letter.why} for letter in unable],
        })  # fmt: skip
    else:
        say(f"{len(able)} dead letters {'would be put again' if dry_run else 'put again'}, {len(unable)} cannot be")
        for letter in unable:
            say(f"  {letter.shown['id']}: {letter.why}")
    return 1 if unable else 0


def _chosen(connection: Connection, kind: str, model: str | None, reason: str | None) -> list[Letter]:
    """Newest first."""
    letters: list[Letter] = []
    if kind != "inference" and model is None:
        letters += [_of_event(one) for one in _read(connection, Topic.DEAD_LETTERS)]
    if kind != "events":
        letters += [_of_request(one) for one in _read(connection, Topic.INFERENCE_DEAD_LETTERS)]
    chosen = [
        letter for letter in letters
        if model in (None, letter.shown.get("model")) and (reason is None or reason in letter.shown["reason"])
    ]  # fmt: skip
    return sorted(chosen, key=lambda letter: parse_instant(letter.shown["at"]), reverse=True)


def _read(connection: Connection, topic: Topic) -> list[dict[str, Any]]:
    query = {"topic": str(topic), "from": "beginning", "follow": False}
    return [json.loads(line) for line in connection.lines("/v1alpha1/events", query)]


def _of_request(event: dict[str, Any]) -> Letter:
    data = event["data"]
    shown = {
        "id": event["id"], "topic": str(Topic.INFERENCE_DEAD_LETTERS), "type": "relume.inference.requested.v1",
        "reason": f"{data['reason']}: {data['message']}", "at": event["time"], "model": data["model"],
        "request": data["origin"]["id"], "source": data["origin"]["source"], "attempts": data["attempts"],
        "status": data.get("status"),
    }  # fmt: skip
    requested = data.get("requested")
    if requested is None:
        origin = data["origin"]
        why = (
            f"the request is not in its letter; it stands at {origin['topic']}/{origin['partition']}/{origin['offset']}"
        )
        return Letter(shown, None, why)
    again = {name: requested[name] for name in _FIELDS if requested.get(name) is not None}
    return Letter(shown, _event("relume.inference.requested.v1", data["model"], again, event["id"]))


def _of_event(event: dict[str, Any]) -> Letter:
    data = event["data"]
    shown = {
        "id": event["id"], "topic": data["topic"], "type": data["type"], "reason": data["reason"],
        "at": format_instant(data["at"]),
        "model": None, "source": data["source"], "raw": data["raw"], "rawBytes": data["rawBytes"],
        "partition": data.get("partition"), "offset": data.get("offset"),
    }  # fmt: skip
    if data["rawBytes"] > RAW_BYTES:
        return Letter(shown, None, f"it has {data['rawBytes']} bytes; a letter holds {RAW_BYTES}")
    try:
        said = json.loads(data["raw"])
    except ValueError:
        return Letter(shown, None, "what it said is not JSON")
    if not isinstance(said, dict):
        return Letter(shown, None, "what it said is no JSON object")
    if "specversion" in said:
        return Letter(shown, said | {"cause": event["id"]})
    if not data["type"]:
        return Letter(shown, None, "it names no type")
    return Letter(shown, _event(data["type"], None, said, event["id"]))


def _event(kind: str, key: str | None, data: dict[str, Any], letter: str) -> dict[str, Any]:
    event = {"specversion": "1.0", "id": str(uuid.uuid4()), "source": SOURCE, "type": kind, "cause": letter,
             "data": data}  # fmt: skip
    return event if key is None else event | {"partitionkey": key}


def _send(connection: Connection, events: Sequence[dict[str, Any] | None]) -> None:
    body = json.dumps(events).encode()
    connection.ask(Question("POST", "/v1alpha1/events", body=body, kind="application/cloudevents-batch+json"))
