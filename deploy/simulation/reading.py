"""Text, tables and numbers out of files that anybody may have written.

Nothing here trusts a file to be text, its lines to have a sane length, or its numbers to be numbers; every refusal says
where, what is there, and what was wanted.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import reprlib
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from math import isnan
from pathlib import Path
from typing import Final

LINE_MOST: Final = 16 << 20
"""Characters of one line: a row of minutes over a year is a fifth of it. Chosen."""

TIME_MOST: Final = 1e11
"""Seconds since 1970, in either direction: the year 5138. Milliseconds of today are above it."""


class BadTrace(ValueError):
    """The file is not the trace it is said to be. The message says what is missing."""


@contextmanager
def lines_of(path: Path) -> Iterator[Iterator[str]]:
    """The lines of a file, plain or gzipped by its first bytes; also of a pipe. Raises BadTrace, OSError."""
    with path.open("rb") as raw:
        zipped = raw.peek(2)[:2] == b"\x1f\x8b"
        plain = gzip.GzipFile(fileobj=raw) if zipped else raw
        with io.TextIOWrapper(plain, encoding="utf-8-sig", newline="") as text:
            try:
                yield _bounded(text, path)
            except UnicodeDecodeError as error:
                raise BadTrace(
                    f"{path} is not UTF-8 text: {error.reason} at byte {error.start}; write it anew as UTF-8"
                ) from error
            except (zlib.error, gzip.BadGzipFile, EOFError) as error:
                raise BadTrace(f"{path} is gzipped, and broken or cut off: {error}; fetch or write it anew") from error


def _bounded(text: io.TextIOWrapper, path: Path) -> Iterator[str]:
    number = 0
    while line := text.readline(LINE_MOST + 1):
        number += 1
        if len(line) > LINE_MOST:
            raise BadTrace(f"{path}, line {number} has more than {LINE_MOST} characters; is this the right file?")
        yield line


Row = tuple[int, list[str]]
"""The number of a line in its file, and its cells."""


def rows_of(lines: Iterator[str], path: Path) -> Iterator[Row]:
    """Of comma separated values, all that is not empty. Raises BadTrace."""
    table = csv.reader(lines, strict=True)
    while True:
        try:
            row = next(table, None)
        except csv.Error as error:
            raise BadTrace(f"{path}, line {table.line_num}: {error}; is a quotation mark missing?") from error
        if row is None:
            return
        if row and row != [""]:
            yield table.line_num, row


def table_of(lines: Iterator[str], path: Path) -> tuple[list[str], Iterator[Row]]:
    """The headings of a table, and its rows: each has a cell for each heading. Raises BadTrace."""
    rows = rows_of(lines, path)
    _, header = next(rows, (0, None))
    if header is None:
        raise BadTrace(f"{path} is empty")
    return header, _even(rows, len(header), path)


def _even(rows: Iterator[Row], count: int, path: Path) -> Iterator[Row]:
    for line, row in rows:
        if len(row) != count:
            raise BadTrace(f"{path}, line {line}: {len(row)} cells under {count} headings")
        yield line, row


def column(header: Sequence[str], title: str, path: Path) -> int:
    """Where this heading is. Raises BadTrace."""
    if title not in header:
        raise BadTrace(f"{path}: there is no column {title!r}; is this the right --format?")
    if header.count(title) > 1:
        raise BadTrace(f"{path}: there are several columns {title!r}; leave one")
    return header.index(title)


def json_object(line: str, path: Path, number: int) -> dict[str, object]:
    """A line of JSON. Raises BadTrace."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadTrace(f"{path}, line {number} is no JSON: {error}") from error
    if not isinstance(told, dict):
        raise BadTrace(f"{path}, line {number}: a JSON object is wanted, one a line")
    return told


def number_of(raw: object, name: str, where: str, most: float) -> float:
    """A number from 0 to `most`. `where`: the file and the line. Raises BadTrace."""
    try:
        number = float(str(raw))
    except ValueError:
        number = float("nan")
    if not 0.0 <= number <= most:
        kind = "negative" if number < 0.0 else "no number" if isnan(number) else "too much"
        raise BadTrace(f"{where}: {name} is {reprlib.repr(raw)}, which is {kind}; it must be from 0 to {most:,.0f}")
    return number


def time_of(raw: object, name: str, where: str, *, unit: float = 1.0) -> float:
    """Seconds, of a number of `unit` seconds each or of RFC 3339; without a zone it is UTC. Raises BadTrace."""
    text = str(raw).strip()
    try:
        seconds = float(text) * unit
    except ValueError:
        seconds = _instant(text)
    if not -TIME_MOST <= seconds <= TIME_MOST:
        each = "seconds" if unit == 1.0 else "milliseconds"
        raise BadTrace(f"{where}: {name} is {reprlib.repr(raw)}, which is no time; write {each}, or RFC 3339")
    return seconds


def _instant(text: str) -> float:
    """NaN: it is none."""
    try:
        read = datetime.fromisoformat(text)
        return (read if read.tzinfo is not None else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return float("nan")
