"""Lines of one or several streams of the admin port, printed as they come, each with whose it is."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import click

from deploy.cli.connection import Connection
from deploy.cli.failing import Refused
from deploy.cli.output import say

MOST_FOLLOWED: Final = 32
"""Streams that are followed at the same time, a thread and a connection each."""

WAITING_LINES: Final = 1000
"""Lines that wait to be printed; a reader that is slower than its streams slows them."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Where lines come from: a path, and what its query says besides ``tail`` and ``follow``."""

    path: str
    query: Mapping[str, object] = field(default_factory=dict)


def lines_of(connection: Connection, stream: Stream, tail: int, *, follow: bool) -> Iterator[str]:
    """The last lines, and with `follow` each new one."""
    query = {**stream.query, "tail": tail, "follow": follow}
    for line in connection.lines(stream.path, query, follow=follow):
        yield line.decode("utf-8", "replace")


def print_streams(connection: Connection, streams: Mapping[str, Stream], tail: int, *, follow: bool) -> None:
    """Print what each stream says; with several, each line with the stream's name. Follows until all have ended."""
    if len(streams) == 1:
        (only,) = streams.values()
        for line in lines_of(connection, only, tail, follow=follow):
            click.echo(line)
    elif not follow:
        for name, stream in streams.items():
            for line in lines_of(connection, stream, tail, follow=False):
                click.echo(f"{name} | {line}")
    else:
        _follow_all(connection, streams, tail)


def _follow_all(connection: Connection, streams: Mapping[str, Stream], tail: int) -> None:
    """Follow several at once until all have ended."""
    followed = list(streams)[:MOST_FOLLOWED]
    if len(followed) < len(streams):
        say(f"following the first {MOST_FOLLOWED} of {len(streams)}")
    lines: queue.Queue[str | None] = queue.Queue(WAITING_LINES)

    def read(name: str) -> None:
        try:
            for line in lines_of(connection, streams[name], tail, follow=True):
                lines.put(f"{name} | {line}")
        except Refused as refused:
            lines.put(f"{name} | [{refused.what}]")
        finally:
            lines.put(None)

    for name in followed:
        threading.Thread(target=read, args=(name,), daemon=True).start()
    left = len(followed)
    while left:
        line = lines.get()
        if line is None:
            left -= 1
        else:
            click.echo(line)
