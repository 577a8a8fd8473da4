"""`relume submit`: a file of requests, answered when there is room."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from deploy.cli.batches import SOURCE, Batch, line_out, read_batch, requests_of
from deploy.cli.commands import command
from deploy.cli.connection import Connection
from deploy.cli.failing import Refused
from deploy.cli.options import output, talking
from deploy.cli.output import say, show_json
from deploy.cli.producing import way
from deploy.cli.setting_options import KAFKA_ACCESS, setting_options, settings_given
from deploy.settings.events_url import KafkaEvents
from deploy.settings.settings import SettingsRefused
from events.clock import SystemClock
from events.log import EventLogError
from events.names import Topic
from events.units import Instant, parse_duration

BATCH: Final = 500
"""Requests that are sent together."""

OUTCOMES: Final = (Topic.INFERENCE_RESULTS, Topic.INFERENCE_DEAD_LETTERS)


@command("submit", (
    "relume submit requests.jsonl                       # put them on their topic, and go",
    "relume submit requests.jsonl --wait                # answers to requests.output.jsonl, errors to .errors.jsonl",
    "relume submit requests.jsonl --wait --deadline 2h -o json",
    "relume submit requests.jsonl --wait --events kafka://localhost:9092   # with Kafka itself",
))  # fmt: skip
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--wait", is_flag=True, help="Wait for every outcome, and write the two files.")
@click.option(
    "--output-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where answers go. Default: FILE without its end, and .output.jsonl.",
)
@click.option(
    "--error-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where errors go. Default: FILE without its end, and .errors.jsonl.",
)
@click.option("--deadline", metavar="DURATION", help="Give up after so long, such as 2h. Default: 24h.")
@click.option("--priority", type=int, default=0, show_default=True, help="Larger goes first, among your own.")
@output("text", "json")
@setting_options(("events", *KAFKA_ACCESS))
@talking
def submit(  # noqa: PLR0913 - one parameter an option
    connection: Connection, *, file: Path, wait: bool, output_file: Path | None, error_file: Path | None,
    deadline: str | None, priority: int, output: str, **given: str | None,
) -> int:  # fmt: skip
    """Ask for all requests of FILE, in OpenAI's batch format (custom_id, method, url, body: one JSON object a line).

    The same file again is the same batch: what is answered already is not run again, so a wait that was broken off is
    taken up by the same command. Exit code 1 when a request failed.
    """
    batch = read_batch(file)
    until = _until(deadline)
    with way(connection, given, False) as send:
        for first in range(0, len(batch.lines), BATCH):
            some = batch.lines[first : first + BATCH]
            send(requests_of(batch, some, until, priority, SystemClock().now()))
    if not wait:
        if output == "json":
            show_json({"batch": batch.name, "requests": len(batch.lines)})
        else:
            say(f"{len(batch.lines)} requests submitted as {batch.name}; the same command with --wait gets the answers")
        return 0
    good, bad = _gather(batch, _outcomes(connection, given))
    answers, errors = output_file or file.with_suffix(".output.jsonl"), error_file or file.with_suffix(".errors.jsonl")
    _write(answers, good)
    _write(errors, bad)
    if output == "json":
        show_json({
            "batch": batch.name, "requests": len(batch.lines), "completed": len(good), "failed": len(bad),
            "outputFile": str(answers), "errorFile": str(errors),
        })  # fmt: skip
    else:
        say(f"{len(good)} answered: {answers}; {len(bad)} failed: {errors}")
    return 1 if bad else 0


def _until(deadline: str | None) -> Instant | None:
    if deadline is None:
        return None
    try:
        return Instant(SystemClock().now() + parse_duration(deadline))
    except ValueError as error:
        raise click.UsageError(f"--deadline: {error}") from error


def _outcomes(connection: Connection, given: dict[str, str | None]) -> Iterator[dict[str, Any]]:
    """Results and dead letters: those that stand in the log, then as they come."""
    settings = settings_given(given)
    url = settings.events_url
    if settings.events and isinstance(url, KafkaEvents):
        from deploy.compose.outcomes import outcomes_on_kafka  # noqa: PLC0415 - the client takes a while to import

        try:
            yield from outcomes_on_kafka(settings, url.servers)
        except (EventLogError, SettingsRefused) as error:
            raise Refused("the answers cannot be read", why=str(error)) from error
        return
    query = {"topic": list(OUTCOMES), "from": "beginning", "follow": True}
    for line in connection.lines("/v1alpha1/events", query, follow=True):
        yield json.loads(line)
    raise Refused("the stream of answers was ended by relume", remedy="wait again with the same command")


def _gather(batch: Batch, events: Iterator[dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """All outcomes of a batch, in the order of its lines: (answers, errors)."""
    from rich.console import Console  # noqa: PLC0415 - only a wait needs it
    from rich.progress import Progress  # noqa: PLC0415 - as above

    missing = {batch.ident(line): line.custom_id for line in batch.lines}
    found: dict[str, tuple[Any, bool]] = {}
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        bar = progress.add_task("answers", total=len(missing))
        for event in events:
            data = event.get("data") or {}
            ident = str(event.get("cause"))
            ours = ident in missing and data.get("origin", {}).get("source") == SOURCE
            if ours and not str(event.get("type")).startswith("relume.inference.chunk."):
                custom_id = missing.pop(ident)
                found[custom_id] = line_out(custom_id, event)
                progress.advance(bar)
            if not missing:
                break
    ordered = [found[line.custom_id] for line in batch.lines]
    return [line for line, good in ordered if good], [line for line, good in ordered if not good]


def _write(file: Path, lines: list[Any]) -> None:
    """Whole or not at all."""
    partial = file.with_name(file.name + ".partial")
    try:
        partial.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
        partial.replace(file)
    except OSError as error:
        raise Refused(f"{file} cannot be written", why=str(error.strerror)) from error
