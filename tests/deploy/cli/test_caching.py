"""`relume cache`: what scripts read, what people are told, and exit codes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coldstart.cache import holding
from coldstart.cache.layout import Layout
from tests.deploy.cli.conftest import Ran
from tests.support.flaky_origin import Origin, served

CONTENT = bytes(range(256)) * 3000
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


@pytest.fixture
def origin() -> Iterator[Origin]:
    """It serves CONTENT."""
    with served(Origin(CONTENT)) as running:
        yield running


@pytest.fixture
def cache(relume: Callable[..., Ran], tmp_path: Path) -> Callable[..., Ran]:
    """`relume cache …` on a folder of its own."""
    return lambda *arguments: relume("cache", *arguments, "--data-dir", str(tmp_path / "data"))


def test_fetch_prints_what_the_surface_promises(cache: Callable[..., Ran], origin: Origin) -> None:
    """Six keys, on standard output alone; the second time it is a hit at the same path."""
    ran = cache("fetch", origin.url, "--digest", DIGEST, "-o", "json")
    assert (ran.code, ran.err) == (0, "")
    told = json.loads(ran.out)
    assert set(told) == {"path", "bytes", "digest", "seconds", "hit", "source"}
    assert (told["bytes"], told["digest"], told["hit"], told["source"]) == (len(CONTENT), DIGEST, False, origin.url)
    assert Path(told["path"]).read_bytes() == CONTENT
    assert told["seconds"] > 0
    again = json.loads(cache("fetch", origin.url, "-o", "json").out)
    assert (again["hit"], again["path"]) == (True, told["path"])


def test_fetch_for_people(cache: Callable[..., Ran], origin: Origin) -> None:
    """The path alone on standard output, so that `$(…)` works."""
    ran = cache("fetch", origin.url)
    assert Path(ran.out.strip()).read_bytes() == CONTENT
    assert DIGEST in ran.err


def test_fetch_says_no(cache: Callable[..., Ran], origin: Origin) -> None:
    """Wrong content, no such thing, no room: exit code 1, why, what to do, and nothing on standard output."""
    wrong = f"sha256:{'0' * 64}"
    for arguments, why in (
        ((origin.url, "--digest", wrong), "was asked for"),
        ((origin.url, "--capacity", "1Ki"), f"{len(CONTENT)} bytes are needed, and the cache holds 1024 bytes"),
        (("file:///no/such/file",), "No such file"),
    ):
        ran = cache("fetch", *arguments, "-o", "json")
        assert (ran.code, ran.out) == (1, "")
        assert why in ran.err
        assert "try: " in ran.err
    origin.faults = lambda _: "forbidden"
    assert "403" in cache("fetch", origin.url).err


@pytest.mark.parametrize("arguments", [
    ("gopher://x/y",), ("model.gguf",), ("file:///x", "--digest", "sha256:1"), ("file:///x", "--capacity", "much"),
    ("file:///x", "--timeout", "soon"), ("file:///x", "--timeout", "0"),
    ("http://127.0.0.1:1/x", "--header-env", "Authorization"), ("http://127.0.0.1:1/x", "--header-env", "A=NO_SUCH"),
    (),
])  # fmt: skip
def test_wrong_use(cache: Callable[..., Ran], arguments: tuple[str, ...]) -> None:
    """Exit code 2 before anything is asked."""
    ran = cache("fetch", *arguments)
    assert (ran.code, ran.out) == (2, "")


def test_a_header_comes_from_the_environment(
    cache: Callable[..., Ran], origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its value is never typed and never printed."""
    monkeypatch.setenv("MODELS_AUTH", "Bearer hush")
    ran = cache("fetch", origin.url, "--header-env", "Authorization=MODELS_AUTH", "-o", "json")
    assert origin.headers[-1]["Authorization"] == "Bearer hush"
    assert "hush" not in ran.out + ran.err


def test_list_and_usage(cache: Callable[..., Ran], origin: Origin) -> None:
    """What is there, and how much it takes."""
    assert json.loads(cache("ls", "-o", "json").out) == {"items": []}
    cache("fetch", origin.url)
    (item,) = json.loads(cache("ls", "-o", "json").out)["items"]
    assert (item["source"], item["bytes"], item["digest"]) == (origin.url, len(CONTENT), DIGEST)
    assert (item["pinned"], item["inUse"]) == (False, False)
    assert origin.url in cache("ls").out
    used = json.loads(cache("du", "--capacity", "10Mi", "-o", "json").out)
    assert len(CONTENT) <= used["usedBytes"] < 2 * len(CONTENT)
    assert used["capacityBytes"] == 10 << 20
    assert " of 10Mi" in cache("du", "--capacity", "10Mi").out


def test_pin_and_evict(cache: Callable[..., Ran], origin: Origin) -> None:
    """Pinned weights stay until they are not; what is not there is not cached."""
    cache("fetch", origin.url)
    assert cache("pin", origin.url).code == 0
    refused = cache("evict", DIGEST)
    assert refused.code == 1
    assert "is pinned" in refused.err
    assert "--off" in refused.err
    assert cache("pin", "--off", DIGEST[:20]).code == 0
    assert cache("evict", origin.url).code == 0
    assert json.loads(cache("ls", "-o", "json").out) == {"items": []}
    assert "not in the cache" in cache("evict", origin.url).err


def test_verify(cache: Callable[..., Ran], origin: Origin) -> None:
    """Exit code 1 when something was wrong; the next fetch has it anew."""
    path = Path(json.loads(cache("fetch", origin.url, "-o", "json").out)["path"])
    assert cache("verify").code == 0
    path.chmod(0o644)
    path.write_bytes(CONTENT[:-1] + b"?")
    ran = cache("verify", "-o", "json")
    assert (ran.code, json.loads(ran.out)) == (1, {"verified": 0, "quarantined": [DIGEST]})
    assert not json.loads(cache("fetch", origin.url, "-o", "json").out)["hit"]
    assert path.read_bytes() == CONTENT
    assert cache("verify", origin.url).code == 0


def test_collect(cache: Callable[..., Ran], origin: Origin) -> None:
    """Above the high watermark it evicts."""
    cache("fetch", origin.url)
    told = json.loads(cache("gc", "--capacity", "800Ki", "-o", "json").out)
    assert told["evicted"] == [DIGEST]
    assert told["bytes"] >= len(CONTENT)
    assert "0 evicted" in cache("gc").err


def test_another_writer_is_named(cache: Callable[..., Ran], origin: Origin, tmp_path: Path) -> None:
    """The pid of the process that writes to the folder; first it is waited for, as long as was said."""
    with holding.writing(Layout(tmp_path / "data" / "weights")):
        ran = cache("fetch", origin.url, "--timeout", "300ms")
        assert cache("gc").code == 1
    assert ran.code == 1
    assert ran.err.count("is written by process") == 2
    assert "waiting for it to end" in ran.err


def command(*arguments: str, error: int = subprocess.PIPE) -> subprocess.Popen[str]:
    """`relume cache fetch` in a process of its own."""
    line = (sys.executable, "-m", "deploy.cli.main", "cache", "fetch", *arguments)
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=error, text=True)


def test_commands_fetch_one_after_the_other(origin: Origin, tmp_path: Path) -> None:
    """Two at once on one folder without a relume: the second waits, and what both want comes once."""
    origin.open_gate.clear()
    wanted = (origin.url, "--data-dir", str(tmp_path), "-o", "json")
    first, second = command(*wanted), command(*wanted)
    assert first.stderr is not None
    assert second.stderr is not None
    waits = {first.stderr: second, second.stderr: first}
    (told,), _, _ = select.select(list(waits), [], [], 60)
    assert "waiting for it to end" in told.readline()
    origin.open_gate.set()
    answers = [json.loads(one.communicate(timeout=60)[0]) for one in (first, second)]
    assert [one.returncode for one in (first, second)] == [0, 0]
    assert sorted(one["hit"] for one in answers) == [False, True]
    assert len({one["path"] for one in answers}) == 1
    assert origin.sent == len(CONTENT)


def test_people_see_a_bar(origin: Origin, tmp_path: Path) -> None:
    """On a terminal: how much has come of how much, and how fast; what scripts read is the path alone."""
    origin.content = CONTENT * 40  # several chunks
    origin.rate = len(origin.content) / 4
    ours, theirs = pty.openpty()
    try:
        process = command(origin.url, "--data-dir", str(tmp_path), error=theirs)
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # its end, on Linux
            while piece := os.read(ours, 4096):
                shown += piece
        out = process.communicate(timeout=60)[0]
    finally:
        os.close(ours)
    assert Path(out.strip()).read_bytes() == origin.content
    assert b"/30.7 MB" in shown
    assert b"MB/s" in shown
    assert b"fetched in" in shown


def test_a_folder_is_fetched_as_one(cache: Callable[..., Ran], tmp_path: Path) -> None:
    """Its path, the bytes of all, and what include and exclude leave; `ls` says how many files."""
    folder = tmp_path / "model"
    (folder / "deep").mkdir(parents=True)
    for name, content in (("a.bin", CONTENT), ("deep/b.bin", b"b"), ("c.txt", b"c")):
        (folder / name).write_bytes(content)
    told = json.loads(cache("fetch", folder.as_uri(), "--include", "*.bin", "--exclude", "a*", "-o", "json").out)
    assert [path.name for path in Path(told["path"]).rglob("*.bin")] == ["b.bin"]
    told = json.loads(cache("fetch", folder.as_uri(), "-o", "json").out)
    assert told["bytes"] == len(CONTENT) + 2
    assert sorted(item["files"] for item in json.loads(cache("ls", "-o", "json").out)["items"]) == [1, 3]
    none = cache("fetch", folder.as_uri(), "--include", "*.gguf")
    assert (none.code, none.out) == (1, "")
    assert "weights.include" in none.err


def test_credentials_are_references(cache: Callable[..., Ran], origin: Origin) -> None:
    """A secret in their place is refused, and not printed."""
    ran = cache("fetch", origin.url, "--credentials", "hush-hush")
    assert ran.code == 1
    assert "env:NAME" in ran.err
    assert "hush" not in ran.err + ran.out
