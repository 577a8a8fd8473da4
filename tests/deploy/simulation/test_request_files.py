"""Readers of traces of requests: what they read, and in which words they refuse."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from deploy.simulation.minutes import BadTrace
from deploy.simulation.request_files import FORMATS, SERVEGEN_TOKENS
from deploy.simulation.requests import RequestTrace, first_seconds, joined
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
    ("csv", "time,seconds\n1,-2\n", "negative"),
    ("csv", "time,inputTokens\n1,many\n", "inputTokens is 'many'"),
]


@pytest.mark.parametrize(("form", "text", "words"), BAD)
def test_what_is_refused(tmp_path: Path, form: str, text: str, words: str) -> None:
    """With the file, the line and the word."""
    with pytest.raises(BadTrace, match=words):
        read(tmp_path, form, text)


@pytest.mark.needs("traces")
def test_the_published_traces() -> None:
    """As many requests as their notes say."""
    folder = traces_folder()
    code = FORMATS["azure-llm"](folder / "AzureLLMInferenceTrace_code.csv", 0)
    moon = FORMATS["mooncake"](folder / "mooncake_conversation_trace.jsonl.gz", 0)
    assert (len(code), len(moon)) == (8819, 12031)
    assert 56 * 60 < code.span < 58 * 60
