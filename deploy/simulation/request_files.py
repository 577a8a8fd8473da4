"""Readers of published traces of requests, and of plain CSV and JSON lines."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from deploy.simulation.minutes import BadTrace, text_of
from deploy.simulation.requests import RequestTrace, Rows

REQUESTS_MOST: Final = 20_000_000
"""Requests of one trace: about a gigabyte while they are read."""

Reader = Callable[[Path, int], RequestTrace]
"""Of a file and a seed. Raises BadTrace, OSError."""


def read_azure_llm(path: Path, _: int) -> RequestTrace:
    """Azure's LLM inference traces 2023: TIMESTAMP, ContextTokens, GeneratedTokens. One model, named after the file."""
    rows, name = Rows.empty(), _name(path)
    with text_of(path) as file:
        table = csv.DictReader(file)
        _need(table, ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), path)
        for row in table:
            at = datetime.fromisoformat(row["TIMESTAMP"].strip()[:26] + "+00:00").timestamp()
            _add(rows, at, name, (int(row["ContextTokens"]), int(row["GeneratedTokens"])))
    return _whole(rows, path)


def read_mooncake(path: Path, _: int) -> RequestTrace:
    """Mooncake: a JSON object a line with timestamp (ms), input_length, output_length."""
    rows, name = Rows.empty(), _name(path)
    with text_of(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                told = _object(line, path, number)
                sizes = (_whole_number(told, "input_length", path, number),
                         _whole_number(told, "output_length", path, number))  # fmt: skip
                _add(rows, _number(told, "timestamp", path, number) / 1000, name, sizes)
    return _whole(rows, path)


SERVEGEN_TOKENS: Final = (1000, 250)
"""The flattened rates of ServeGen say nothing of sizes; each request is taken to have so many tokens. Chosen."""


def read_servegen(path: Path, seed: int) -> RequestTrace:
    """ServeGen's rates: t_s and a column of requests a second for each client, a model each here.

    Arrivals are Poisson within each window, by the seed; ServeGen's own paper finds many clients burstier.
    """
    rows = Rows.empty()
    with text_of(path) as file:
        table = csv.reader(file)
        header = next(table, [])
        if not header or header[0] != "t_s":
            raise BadTrace(f"{path}: the first column is not t_s; is this the right --format?")
        windows = [[float(cell) for cell in row] for row in table if row]
    if len(windows) < 2:
        raise BadTrace(f"{path}: there must be two windows at least, since their distance is their length")
    length = windows[1][0] - windows[0][0]
    for at, name in enumerate(header[1:], 1):
        draws = random.Random(f"{seed}/{name}")  # noqa: S311 - a simulation, not a secret
        for window in windows:
            begin, rate = window[0], window[at]
            arrives = begin + draws.expovariate(rate) if rate > 0 else begin + length
            while arrives < begin + length:
                _add(rows, arrives, name, SERVEGEN_TOKENS)
                arrives += draws.expovariate(rate)
    return _whole(rows, path)


def read_csv(path: Path, _: int) -> RequestTrace:
    """Columns time (seconds, or RFC 3339), and any of model, inputTokens, outputTokens, seconds. JSON lines with the
    same names are read too."""
    rows, name = Rows.empty(), _name(path)
    with text_of(path) as file:
        for number, told in _lines(file, path):
            seconds = _number(told, "seconds", path, number, float("nan"))
            tokens = (
                _whole_number(told, "inputTokens", path, number),
                _whole_number(told, "outputTokens", path, number),
            )
            _add(rows, _time(told, path, number), str(told.get("model") or name), tokens, seconds)
    return _whole(rows, path)


FORMATS: Final[Mapping[str, Reader]] = {
    "azure-llm": read_azure_llm, "mooncake": read_mooncake, "servegen": read_servegen, "csv": read_csv,
    "jsonl": read_csv,
}  # fmt: skip


def _lines(file: io.TextIOBase, path: Path) -> list[tuple[int, dict[str, object]]]:
    """By its first character: JSON lines, or a table."""
    text = file.read()
    if text.lstrip()[:1] == "{":
        lines = enumerate(text.splitlines(), 1)
        return [(number, _object(line, path, number)) for number, line in lines if line.strip()]
    table = csv.DictReader(io.StringIO(text))
    _need(table, ("time",), path)
    return [(table.line_num, dict(row)) for row in table]


def _add(rows: Rows, at: float, model: str, tokens: tuple[int, int], seconds: float = float("nan")) -> None:
    if len(rows.arrived) >= REQUESTS_MOST:
        raise BadTrace(f"there are more than {REQUESTS_MOST} requests; cut the trace")
    if min(tokens) < 0 or seconds < 0:
        raise BadTrace(f"request {len(rows.arrived) + 1} has a negative size; it cannot be replayed")
    rows.add(at, model, tokens, seconds)


def _whole(rows: Rows, path: Path) -> RequestTrace:
    if not rows.arrived:
        raise BadTrace(f"{path}: there is no request in it")
    return rows.trace()


def _name(path: Path) -> str:
    """A model's name after the file: a DNS label."""
    stem = path.name.split(".", 1)[0].lower()
    label = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in stem).strip("-")
    return label[:63].strip("-") or "model"


def _need(table: csv.DictReader[str], columns: tuple[str, ...], path: Path) -> None:
    lacks = next((one for one in columns if one not in (table.fieldnames or ())), None)
    if lacks is not None:
        raise BadTrace(f"{path}: there is no column {lacks!r}; is this the right --format?")


def _object(line: str, path: Path, number: int) -> dict[str, object]:
    try:
        told = json.loads(line)
    except ValueError as error:
        raise BadTrace(f"{path}, line {number}: {error}") from error
    if not isinstance(told, dict):
        raise BadTrace(f"{path}, line {number}: a JSON object is wanted")
    return told


def _number(told: Mapping[str, object], key: str, path: Path, number: int, missing: float | None = None) -> float:
    raw = told.get(key)
    if raw in (None, "") and missing is not None:
        return missing
    try:
        return float(str(raw))
    except ValueError:
        raise BadTrace(f"{path}, line {number}: {key} is {raw!r}, which is no number") from None


def _whole_number(told: Mapping[str, object], key: str, path: Path, number: int) -> int:
    return int(_number(told, key, path, number, 0.0))


def _time(told: Mapping[str, object], path: Path, number: int) -> float:
    raw = str(told.get("time"))
    try:
        return float(raw)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(raw).timestamp()
    except ValueError:
        raise BadTrace(f"{path}, line {number}: time is {raw!r}; write seconds, or RFC 3339") from None
