"""Readers of traces of requests: what they read, and in which words they refuse."""

from __future__ import annotations

import gzip
import os
import re
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from deploy.simulation.reading import LINE_MOST, BadTrace
from deploy.simulation.request_files import FORMATS, SERVEGEN_TOKENS, read_requests
from deploy.simulation.requests import Part, RequestTrace, first_seconds, joined
from events.names import DNS_LABEL_PATTERN
from tests.support.needs import traces_folder

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:03.9799600,4808,10
"""
MOONCAKE = """{"timestamp": 500, "input_length": 12, "output_length": 3, "hash_ids": [0]}

{"timestamp": 2500, "input_length": 7, "output_length": 4, "hash_ids": []}
"""
TABLE = """time,model,seconds
2026-01-01T00:00:10+00:00,b,1.5
2026-01-01T00:00:00Z,a,0.5
"""
LINES = '{"time": 3, "inputTokens": 5, "outputTokens": 6}\n{"time": 1.5}\n'


def read(folder: Path, form: str, text: str, *, zipped: bool = False) -> RequestTrace:
    """The trace of a file with this text."""
    file = folder / "My_Trace.v1.csv"
    file.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    return FORMATS[form](file, 7)


@pytest.mark.parametrize("zipped", [False, True])
def test_azure_llm(tmp_path: Path, zipped: bool) -> None:
    """In order of arrival from zero, named after the file."""
    trace = read(tmp_path, "azure-llm", AZURE, zipped=zipped)
    assert trace.names == ("my-trace",)
    assert trace.arrived == pytest.approx([0.0, 0.052])
    assert trace.tokens_in.tolist() == [4808, 3180]
    assert trace.tokens_out.tolist() == [10, 8]
    assert np.isnan(trace.seconds).all()


def test_mooncake(tmp_path: Path) -> None:
    """Milliseconds become seconds; empty lines are nothing."""
    trace = read(tmp_path, "mooncake", MOONCAKE)
    assert trace.arrived.tolist() == [0.0, 2.0]
    assert trace.tokens_in.tolist() == [12, 7]


def test_a_plain_table_with_seconds(tmp_path: Path) -> None:
    """Instants or seconds, several models, times instead of tokens."""
    trace = read(tmp_path, "csv", TABLE)
    assert [trace.names[at] for at in trace.model] == ["a", "b"]
    assert trace.arrived.tolist() == [0.0, 10.0]
    assert trace.seconds.tolist() == [0.5, 1.5]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_json_lines(tmp_path: Path, form: str) -> None:
    """What is not told is no token; either format reads either."""
    trace = read(tmp_path, form, LINES)
    assert trace.arrived.tolist() == [0.0, 1.5]
    assert (trace.tokens_in.tolist(), trace.tokens_out.tolist()) == ([0, 5], [0, 6])


def test_servegen_is_poisson_by_the_seed(tmp_path: Path) -> None:
    """A model a client, as many requests as the rates say, and the same again."""
    text = "t_s,c0,c1,c2\n0,2.0,0.0,0.5\n600,0.0,1.0,0.5\n"
    trace = read(tmp_path, "servegen", text)
    counts = {name: int((trace.model == at).sum()) for at, name in enumerate(trace.names)}
    assert set(counts) == {"c0", "c1", "c2"}
    assert counts["c0"] == pytest.approx(1200, abs=120)
    assert counts["c1"] == pytest.approx(600, abs=90)
    assert (int(trace.tokens_in[0]), int(trace.tokens_out[0])) == SERVEGEN_TOKENS
    assert read(tmp_path, "servegen", text).arrived.tolist() == trace.arrived.tolist()


def test_joined_and_cut(tmp_path: Path) -> None:
    """Several traces begin together; a cut keeps the beginning."""
    both = joined([read(tmp_path, "csv", TABLE), read(tmp_path, "mooncake", MOONCAKE)])
    assert len(both) == 4
    assert both.names == ("a", "b", "my-trace")
    assert len(first_seconds(both, 2.0)) == 3


BAD = [
    ("azure-llm", "a,b\n1,2\n", "no column 'TIMESTAMP'"),
    ("azure-llm", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "there is no request"),
    ("mooncake", '{"timestamp": 1}\n{oops\n', "line 2"),
    ("mooncake", "[1]\n", "a JSON object is wanted"),
    ("mooncake", '{"timestamp": "x", "input_length": 1, "output_length": 1}\n', "timestamp is 'x'"),
    ("servegen", "time,c0\n0,1\n", "first column is not t_s"),
    ("servegen", "t_s,c0\n0,1\n", "two windows at least"),
    ("csv", "when,model\n1,a\n", "no column 'time'"),
    ("csv", "time,model\nyesterday,a\n", "write seconds, or RFC 3339"),
    ("csv", "time,seconds\n1,-2\n", "line 2: seconds is '-2', which is negative; it must be from 0 to 10,000,000"),
    ("csv", "", "is empty"),
    ("csv", "time\nnan\n1\n", "line 2: time is 'nan', which is no time; write seconds"),
    ("csv", "time\n1\ninf\n", "line 3: time is 'inf'"),
    ("csv", "time\n1\n1700000000000\n", "line 3: time is '1700000000000', which is no time"),
    ("csv", "time\n2026-01-01\n5\n", "span 20454 days, at most 3660"),
    ("csv", "time,seconds\n1,nan\n", "seconds is 'nan', which is no number"),
    ("csv", "time,seconds\n1,inf\n", "seconds is 'inf', which is too much"),
    ("csv", "time,inputTokens\n1,inf\n", "inputTokens is 'inf', which is too much"),
    ("csv", "time,inputTokens\n1,-1\n", "inputTokens is '-1', which is negative"),
    ("csv", "time,outputTokens\n1," + "9" * 40 + "\n", "outputTokens is .*too much; it must be from 0 to 100,000,000"),
    ("csv", "time,model\n1\n", "line 2: 1 cells under 2 headings"),
    ("csv", "time\n\n1,2,3\n", "line 3: 3 cells under 1 headings"),
    ("csv", "time,time\n1,2\n", "several columns 'time'"),
    ("csv", 'time,model\n1,"a\n', "unexpected end of data; is a quotation mark missing"),
    ("csv", "time,model\n1," + "x" * 200_000 + "\n", "line 2: field larger than"),
    ("jsonl", '\n{"time": 1}\n{"time": null}\n', "line 3: time is None"),
    ("jsonl", '{"time": 1, "model": {"a": 1}}\n', "line 1: model is .*no name"),
    ("jsonl", '[{"time": 1}]\n', "a JSON object is wanted, one a line"),
    ("mooncake", '{"timestamp": NaN, "input_length": 1}\n', "timestamp is nan, which is no time; write milliseconds"),
    ("mooncake", '{"timestamp": 1, "input_length": Infinity}\n', "input_length is inf, which is too much"),
    ("mooncake", '{"input_length": 1}\n', "timestamp is None"),
    ("mooncake", '{"timestamp": ' + "[" * 100_000 + "\n", "line 1 is no JSON"),
    ("azure-llm", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03\n", "line 2: 1 cells under 3"),
    ("azure-llm", "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n", "TIMESTAMP is 'yesterday'"),
    ("azure-llm", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,,1\n", "ContextTokens is ''"),
    ("servegen", "t_s,c0\n0,inf\n60,1\n", "line 2: c0 is 'inf', which is too much"),
    ("servegen", "t_s,c0\n0,nan\n60,1\n", "c0 is 'nan', which is no number"),
    ("servegen", "t_s,c0\n0,-1\n60,1\n", "c0 is '-1', which is negative"),
    ("servegen", "t_s,c0\n0,1000000\n60,1\n", "make 6e.07 requests, at most 20000000"),
    ("servegen", "t_s,c0,c1\n0,1\n60,1\n", "line 2: 2 cells under 3 headings"),
    ("servegen", "t_s,c0,c0\n0,1,1\n60,1,1\n", "several columns 'c0'"),
    ("servegen", "t_s,\n0,1\n60,1\n", "has no heading"),
    ("servegen", "t_s,c0\n60,1\n0,1\n", "must rise from line to line, and 0 is not above"),
    ("csv", "time,inputTokens\n1,many\n", "inputTokens is 'many'"),
]


@pytest.mark.parametrize(("form", "text", "words"), BAD)
def test_what_is_refused(tmp_path: Path, form: str, text: str, words: str) -> None:
    """With the file, the line and the word."""
    with pytest.raises(BadTrace, match=words):
        read(tmp_path, form, text)


BROKEN = [
    (b"\xff\xfe" + "time\n1\n".encode("utf-16-le"), "not UTF-8 text: invalid start byte at byte 0"),
    (gzip.compress(b"\n" * 9999)[:-9], "gzipped, and broken or cut off"),
    (gzip.compress(b"\n" * 9999)[:12] + b"\xff" * 40, "gzipped, and broken or cut off"),
    (b"\x1f\x8b", "gzipped, and broken or cut off"),
    (b"\x1f\x8bplain", "gzipped, and broken or cut off"),
]


@pytest.mark.parametrize(("raw", "words"), BROKEN, ids=["utf-16", "cut off", "flipped", "nothing", "no header"])
@pytest.mark.parametrize("form", FORMATS)
def test_what_is_no_text(tmp_path: Path, form: str, raw: bytes, words: str) -> None:
    """Each reader says so, and with what to do."""
    (tmp_path / "t").write_bytes(raw)
    with pytest.raises(BadTrace, match=words):
        FORMATS[form](tmp_path / "t", 7)


def test_a_line_without_end(tmp_path: Path) -> None:
    """It is not read to its end: neither memory nor patience is bounded by a file."""
    (tmp_path / "t.gz").write_bytes(gzip.compress(b"t" * (LINE_MOST + 1), 1))
    for reader in FORMATS.values():
        with pytest.raises(BadTrace, match=f"line 1 has more than {LINE_MOST} characters"):
            reader(tmp_path / "t.gz", 7)


@pytest.mark.parametrize("zipped", [False, True])
def test_a_pipe_is_read_once(tmp_path: Path, zipped: bool) -> None:
    """As `--trace <(zcat …)` gives one: nothing that was looked at is lost."""
    raw = gzip.compress(TABLE.encode()) if zipped else TABLE.encode()
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(raw,))
    writer.start()
    trace = FORMATS["csv"](tmp_path / "pipe", 7)
    writer.join()
    assert trace.arrived.tolist() == [0.0, 10.0]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("form", "text"), [("csv", TABLE), ("csv", LINES), ("azure-llm", AZURE), ("mooncake", MOONCAKE)]
)
def test_marks_and_ends_of_lines_of_other_systems(tmp_path: Path, form: str, text: str, end: str, mark: str) -> None:
    """A byte order mark and carriage returns change nothing."""
    plain, other = read(tmp_path, form, text), read(tmp_path, form, mark + text.replace("\n", end))
    assert (other.names, other.arrived.tolist()) == (plain.names, plain.arrived.tolist())
    assert other.tokens_in.tolist() == plain.tokens_in.tolist()


def test_any_name_is_a_models(tmp_path: Path) -> None:
    """Names of models that no declaration could have are replayed too, each by itself."""
    names = ["llama", "Llama", "LLAMA", "meta-llama/Llama-3", "meta_llama/llama 3", "\u6a21\u578b", "x" * 99, "x" * 98]
    trace = read(tmp_path, "csv", "time,model\n" + "".join(f"{at},{name}\n" for at, name in enumerate(names)))
    assert trace.names[0] == "llama"
    assert len(trace.names) == len(names)
    assert all(re.fullmatch(DNS_LABEL_PATTERN, name) for name in trace.names), trace.names


def test_an_instant_without_a_zone_is_utc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is read: also where a clock skips an hour that night."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        trace = read(tmp_path, "csv", "time\n2026-03-29T01:30:00\n2026-03-29 03:30:00\n2026-03-29T03:30:00Z\n")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert trace.arrived.tolist() == [0.0, 7200.0, 7200.0]


def test_later_azure_traces(tmp_path: Path) -> None:
    """Those of 2024 tell the zone, and no fraction where there is none."""
    head = AZURE.splitlines()[0]
    trace = read(
        tmp_path, "azure-llm", f"{head}\n2024-05-10 00:00:00+00:00,1,2\n2024-05-10 00:00:00.009930+00:00,1,2\n"
    )
    assert trace.arrived == pytest.approx([0.0, 0.00993], abs=1e-6)


@pytest.mark.needs("traces")
def test_the_published_traces() -> None:
    """As many requests as their notes say."""
    folder = traces_folder()
    code = FORMATS["azure-llm"](folder / "AzureLLMInferenceTrace_code.csv", 0)
    moon = FORMATS["mooncake"](folder / "mooncake_conversation_trace.jsonl.gz", 0)
    assert (len(code), len(moon)) == (8819, 12031)
    assert 56 * 60 < code.span < 58 * 60


def test_a_part_of_a_trace(tmp_path: Path) -> None:
    """From an instant on, for so long, and of it one of so many, by the seed; what is left begins at zero."""
    file = tmp_path / "t.csv"
    file.write_text("time,model\n" + "".join(f"{at},{'ab'[at >= 50]}\n" for at in range(100)))
    part = read_requests(file, "csv", 0, Part(begin=60.0, length=20.0))
    assert part.names == ("b",)
    assert part.arrived.tolist() == list(range(20))
    thin = [read_requests(file, "csv", seed, Part(thin=4)).arrived.tolist() for seed in (0, 0, 1)]
    assert thin[0] == thin[1] != thin[2]
    assert 10 <= len(thin[0]) <= 40
    with pytest.raises(BadTrace, match="no request is left"):
        read_requests(file, "csv", 0, Part(begin=100.0))


def test_of_rates_only_what_is_asked_for_is_drawn(tmp_path: Path) -> None:
    """A day of ServeGen's has more requests than may be replayed: a part of it at a part of its rates has few."""
    file = tmp_path / "rps.csv"
    file.write_text("t_s,c0,c1\n" + "".join(f"{at * 600},{1e6 if at != 2 else 1000.0},0.0\n" for at in range(6)))
    part = read_requests(file, "servegen", 0, Part(begin=1200.0, length=600.0, thin=1000))
    assert part.names == ("c0",)
    assert 500 <= len(part) <= 700
    assert part.span < 600.0
