"""Readers of published traces of requests, and of plain CSV and JSON lines."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, pairwise
from pathlib import Path
from typing import Final

from deploy.simulation.reading import BadTrace, column, json_object, lines_of, number_of, table_of, time_of
from deploy.simulation.requests import WHOLE, Part, RequestTrace, Rows, part_of
from events.names import DNS_LABEL_PATTERN

REQUESTS_MOST: Final = 20_000_000
"""Requests of one trace: about a gigabyte while they are read."""

TOKENS_MOST: Final = 1e8
"""Tokens of one request; the longest contexts there are take ten million."""

SECONDS_MOST: Final = 1e7
"""What one request may take: a third of a year."""

RATE_MOST: Final = 1e6
"""Requests a second of one client."""

DAYS_MOST: Final = 3660
"""The longest trace: ten years. Longer ones have times in several units, or a broken one."""

Reader = Callable[[Path, int], RequestTrace]
"""Of a file and a seed. Raises BadTrace, OSError."""


def read_requests(path: Path, form: str, seed: int, part: Part = WHOLE) -> RequestTrace:
    """A part of the trace in this file. Raises BadTrace, OSError, ValueError."""
    if form == SERVEGEN:  # of rates only what is asked for is drawn: a day has ninety million requests
        return read_servegen(path, seed, part)
    trace = part_of(FORMATS[form](path, seed), part, seed)
    if not len(trace):
        raise BadTrace(f"{path}: no request is left of it; ask for a longer part, or thin it less")
    return trace


def read_azure_llm(path: Path, _: int) -> RequestTrace:
    """Azure's LLM inference traces: TIMESTAMP, ContextTokens, GeneratedTokens. One model, named after the file."""
    rows, name = Rows.empty(), _name(path)
    with lines_of(path) as lines:
        header, table = table_of(lines, path)
        at, *sizes = (column(header, title, path) for title in ("TIMESTAMP", "ContextTokens", "GeneratedTokens"))
        for line, row in table:
            where = f"{path}, line {line}"
            tokens_in, tokens_out = (_tokens(row[size], header[size], where) for size in sizes)
            _add(rows, time_of(row[at], "TIMESTAMP", where), name, (tokens_in, tokens_out))
    return whole(rows, path)


def read_mooncake(path: Path, _: int) -> RequestTrace:
    """Mooncake: a JSON object a line with timestamp (ms), input_length, output_length."""
    rows, name = Rows.empty(), _name(path)
    with lines_of(path) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                told, where = json_object(line, path, number), f"{path}, line {number}"
                sizes = (_told_tokens(told, "input_length", where), _told_tokens(told, "output_length", where))
                _add(rows, time_of(told.get("timestamp"), "timestamp", where, unit=0.001), name, sizes)
    return whole(rows, path)


SERVEGEN_TOKENS: Final = (1000, 250)
"""The flattened rates of ServeGen say nothing of sizes; each request is taken to have so many tokens. Chosen."""


def read_servegen(path: Path, seed: int, part: Part = WHOLE) -> RequestTrace:
    """ServeGen's rates: t_s and a column of requests a second for each client, a model each here.

    Arrivals are Poisson within each window, by the seed; ServeGen's own paper finds many clients burstier. Of windows
    that begin in the part all is kept, at rates that are divided.
    """
    header, windows = _rates(path)
    rows, length = Rows.empty(), windows[1][0] - windows[0][0]
    windows = [window for window in windows if part.begin <= window[0] < part.end]
    expected = sum(sum(rates) for _, *rates in windows) * length / part.thin
    if expected > REQUESTS_MOST:
        raise BadTrace(
            f"{path}: its rates make {expected:.3g} requests, at most {REQUESTS_MOST} are read; ask for a part of it "
            "(--from, --for), or of its rates (--thin)"
        )
    for at, client in enumerate(header[1:], 1):
        draws = random.Random(f"{seed}/{client}")  # noqa: S311 - a simulation, not a secret
        name = _label(client)
        for window in windows:
            begin, rate = window[0], window[at] / part.thin
            arrives = begin + draws.expovariate(rate) if rate > 0 else begin + length
            while arrives < begin + length:
                _add(rows, arrives, name, SERVEGEN_TOKENS)
                arrives += draws.expovariate(rate)
    return whole(rows, path)


def _rates(path: Path) -> tuple[list[str], list[list[float]]]:
    """The headings, and of each window its begin and the rates."""
    with lines_of(path) as lines:
        header, table = table_of(lines, path)
        if header[0] != "t_s":
            raise BadTrace(f"{path}: the first column is not t_s; is this the right --format?")
        for title in header:
            if not title:
                raise BadTrace(f"{path}: a column has no heading; name each client")
            column(header, title, path)
        windows = []
        for line, row in table:
            where = f"{path}, line {line}"
            begin = time_of(row[0], "t_s", where)
            windows.append(
                [begin, *(number_of(*one, where, RATE_MOST) for one in zip(row[1:], header[1:], strict=True))]
            )
    if len(windows) < 2:
        raise BadTrace(f"{path}: there must be two windows at least, since their distance is their length")
    fallen = next((later for (before, *_), (later, *_) in pairwise(windows) if later <= before), None)
    if fallen is not None:
        raise BadTrace(f"{path}: t_s must rise from line to line, and {fallen:g} is not above what stands before it")
    return header, windows


def read_csv(path: Path, _: int) -> RequestTrace:
    """Columns time (seconds, or RFC 3339; without a zone it is UTC), and any of model, inputTokens, outputTokens,
    seconds. JSON lines with the same names are read too."""
    rows, name = Rows.empty(), _name(path)
    with lines_of(path) as lines:
        for number, told in _told(lines, path):
            where = f"{path}, line {number}"
            tokens = (_told_tokens(told, "inputTokens", where), _told_tokens(told, "outputTokens", where))
            model = _model(told.get("model"), where) or name
            _add(rows, time_of(told.get("time"), "time", where), model, tokens, _seconds(told.get("seconds"), where))
    return whole(rows, path)


SERVEGEN: Final = "servegen"
FORMATS: Final[Mapping[str, Reader]] = {
    "azure-llm": read_azure_llm, "mooncake": read_mooncake, SERVEGEN: read_servegen, "csv": read_csv,
    "jsonl": read_csv,
}  # fmt: skip


def _told(lines: Iterator[str], path: Path) -> Iterator[tuple[int, Mapping[str, object]]]:
    """By its first character: JSON lines, or a table."""
    blank, first = 0, ""
    for first in lines:
        if first.strip():
            break
        blank += 1
    if first.lstrip()[:1] in ("{", "["):
        for number, line in enumerate(chain([first], lines), blank + 1):
            if line.strip():
                yield number, json_object(line, path, number)
        return
    header, table = table_of(chain([first] if first.strip() else [], lines), path)
    column(header, "time", path)
    for title in ("model", "inputTokens", "outputTokens", "seconds"):
        if title in header:
            column(header, title, path)
    for number, row in table:
        yield blank + number, dict(zip(header, row, strict=True))


def _add(rows: Rows, at: float, model: str, tokens: tuple[int, int], seconds: float = float("nan")) -> None:
    if len(rows.arrived) >= REQUESTS_MOST:
        raise BadTrace(f"there are more than {REQUESTS_MOST} requests; cut the trace")
    rows.add(at, model, tokens, seconds)


def whole(rows: Rows, path: Path | str) -> RequestTrace:
    """What was gathered, if it can be replayed. Raises BadTrace, which names `path`."""
    if not rows.arrived:
        raise BadTrace(f"{path}: there is no request in it")
    days = (max(rows.arrived) - min(rows.arrived)) / 86_400
    if days > DAYS_MOST:
        raise BadTrace(
            f"{path}: its requests span {days:.0f} days, at most {DAYS_MOST} are replayed; is a time wrong, or in "
            "another unit?"
        )
    return rows.trace()


_IS_LABEL: Final = re.compile(DNS_LABEL_PATTERN).fullmatch


def _name(path: Path) -> str:
    """A model's name after the file."""
    return _like(path.name.split(".", 1)[0]) or "model"


def _model(raw: object, where: str) -> str:
    """A model's name as the trace has it; empty: not told."""
    if raw is None:
        return ""
    if isinstance(raw, bool) or not isinstance(raw, str | int):
        raise BadTrace(f"{where}: model is {raw!r:.80}, which is no name; write text")
    return _label(str(raw))


def _label(text: str) -> str:
    """What models are called here is a DNS label. What is none becomes one, with a mark by which no two become one."""
    if not text or _IS_LABEL(text):
        return text
    mark = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{_like(text)[:54].strip('-') or 'model'}-{mark}"


def _like(text: str) -> str:
    label = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in text.lower()).strip("-")
    return label[:63].strip("-")


def _tokens(raw: object, name: str, where: str) -> int:
    return int(number_of(raw, name, where, TOKENS_MOST))


def _told_tokens(told: Mapping[str, object], key: str, where: str) -> int:
    """0: not told."""
    raw = told.get(key)
    return 0 if raw in (None, "") else _tokens(raw, key, where)


def _seconds(raw: object, where: str) -> float:
    """NaN: not told."""
    return float("nan") if raw in (None, "") else number_of(raw, "seconds", where, SECONDS_MOST)
