"""How answers look: JSON and YAML on standard output alone, tables that are sane when piped, durations for people."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click

UNKNOWN = "-"
"""What tables show for what is not known: it is not zero."""


def show_json(value: object) -> None:
    """Print a value as indented JSON."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def show_yaml(documents: Iterable[object]) -> None:
    """Print values as YAML documents."""
    from ruamel.yaml import YAML  # noqa: PLC0415 - only this form needs it

    yaml = YAML()
    yaml.default_flow_style = False
    yaml.indent(mapping=2, sequence=4, offset=2)
    texts = []
    for document in documents:
        stream = io.StringIO()
        yaml.dump(document, stream)
        texts.append(stream.getvalue())
    click.echo("---\n".join(texts), nl=False)


def show_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns. Whole cells always: a table that is piped is cut nowhere, so scripts can read it."""
    click.echo(table_text(headers, rows))


def table_text(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns, two spaces apart, as kubectl writes them."""
    cells = [list(headers), *[list(row) for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    lines = []
    for row in cells:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append(line.rstrip())
    return "\n".join(lines)


def say(text: str) -> None:
    """Words for people, on standard error."""
    click.echo(text, err=True)


def note(text: str, colour: str) -> str:
    """Coloured where a terminal reads it and NO_COLOR is not set (https://no-color.org)."""
    return click.style(text, fg=colour) if colours() else text


def colours() -> bool:
    """Whether standard output takes colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def number(value: Any) -> str:
    """A count, or that it is unknown."""
    return UNKNOWN if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def replicas(count: int) -> str:
    """``1 replica``, ``3 replicas``."""
    return counted(count, "replica")


def counted(count: int, thing: str) -> str:
    """``1 member``, ``3 members``."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def times(count: int) -> str:
    """``once``, ``3 times``."""
    return "once" if count == 1 else f"{count} times"


def seconds(value: float | None) -> str:
    """A duration for people."""
    if value is None:
        return UNKNOWN
    if value < 1:
        return f"{value * 1000:.0f}ms"
    if value < 60:
        return f"{value:.2f}s" if value < 10 else f"{value:.1f}s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")]
    return "".join(f"{count}{unit}" for count, unit in parts if count)[:8] or "0s"


def age(since: str | None, now: datetime | None = None) -> str:
    """How long ago an RFC 3339 time was."""
    if since is None:
        return UNKNOWN
    then = datetime.fromisoformat(since)
    return seconds(max(0.0, ((now or moment()) - then).total_seconds()))


def until(at: str) -> str:
    """How long from now an RFC 3339 time is."""
    return seconds(max(0.0, (datetime.fromisoformat(at) - moment()).total_seconds()))


def moment() -> datetime:
    """Now, by the clock of this machine."""
    from events.clock import SystemClock  # noqa: PLC0415 - only ages need it

    return datetime.fromtimestamp(SystemClock().now(), UTC)


def width() -> int:
    """Columns of the terminal; 100 where there is none."""
    return shutil.get_terminal_size((100, 24)).columns
