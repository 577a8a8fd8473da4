"""The command line as a whole: help, versions, exit codes, quickness, pipes, Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from deploy.cli import asking
from deploy.cli.commands import LazyGroup
from deploy.cli.main import COMMANDS, cli
from events.types.replicas import MAX_REPLICAS
from tests.deploy.cli.conftest import LiveAdmin, Relume
from tests.support.admin import ECHO

ABSENT = ("gateway", "autoscaler", "cluster", "agent", "simulate", "plan", "cache", "train")
"""Commands of the plan that later issues build: they are wrong use until then."""


def all_commands(group: LazyGroup = cli, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, lazy in group.lazy.items():
        found.append((*prefix, name))
        command = lazy.load()
        if isinstance(command, LazyGroup):
            found += all_commands(command, (*prefix, name))
    return found


@pytest.mark.parametrize("names", all_commands(), ids=" ".join)
def test_every_command_has_help_with_examples(relume: Relume, names: tuple[str, ...]) -> None:
    """--help of each command works, says what it does, and ends with examples of itself."""
    if names == ("bench",):
        return  # its --help is the runner's
    ran = relume(*names, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert "Examples:" in ran.out
    assert f"relume {' '.join(names)}" in ran.out.split("Examples:")[1]


def test_the_table_of_commands_and_the_commands_agree() -> None:
    """Names and first sentences in the lazy table are those of the commands that it loads."""
    for name, lazy in COMMANDS.items():
        command = lazy.load()
        assert isinstance(command, click.Command)
        assert command.name == name
        assert lazy.help.endswith(".")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--version",), 0), (("--help",), 0), (("-h",), 0), ((), 2), (("get",), 2), (("get", "pods"), 2),
        (("get", "reclaims", "--admin", "http://127.0.0.1:9"), 1), (("train", "submit"), 2), (("train", "pause"), 2),
        (("reclaims", "explain"), 2), (("explain",), 2), (("scale", "m", "x", "--for", "1m"), 2),
        (("scale", "m", "1"), 2),
        (("scale", "m", "auto", "--for", "1m"), 2),
        (("scale", "m", "-1", "--for", "1m"), 2), (("scale", "m", "10001", "--for", "1m"), 2),
        (("scale", "m", "1", "--for", "soon"), 2), (("apply",), 2), (("nothing",), 2),
        (("events", "tail", "--from", "x", "--from-beginning"), 2), (("get", "models", "--admin", "ftp://x"), 2),
        (("get", "models", "--key", "/etc/hosts"), 2), (("get", "models", "-o", "xml"), 2), (("delete", "model"), 2),
        (("completion", "tcsh"), 2), (("up", "--gateway-port", "http"), 2), (("up", "--events", "kafka://x"), 2),
        (("up", "--admin-host", "0.0.0.0"), 2), (("top", "--interval", "5"), 2),
        (("validate", "-f", "/nowhere.yaml"), 1), (("get", "models", "--admin", "http://127.0.0.1:9"), 1),
        *[((name,), 2) for name in ABSENT],
    ],
)  # fmt: skip
def test_exit_codes(relume: Relume, arguments: tuple[str, ...], code: int) -> None:
    """0 done, 1 the answer is no, 2 wrong use; words go to standard error when it is not 0."""
    ran = relume(*arguments)
    assert ran.code == code
    if code:
        assert ran.out == ""
        assert ran.err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [(("gett",), "get"), (("aply",), "apply"), (("events", "tial"), "tail"), (("dead-leters",), "dead-letters")],
)
def test_an_unknown_command_is_answered_with_the_nearest(
    relume: Relume, arguments: tuple[str, ...], meant: str
) -> None:
    """Wrong use says what was meant."""
    ran = relume(*arguments)
    assert ran.code == 2
    assert f"Did you mean {meant}?" in ran.err


def test_a_refused_connection_says_what_to_do(relume: Relume) -> None:
    """What, why, remedy, in words; nothing on standard output."""
    ran = relume("get", "models", "-o", "json", "--admin", "http://127.0.0.1:9")
    assert (ran.code, ran.out) == (1, "")
    assert "cannot reach relume at http://127.0.0.1:9" in ran.err
    assert "Connection refused" in ran.err
    assert "relume up" in ran.err


def test_a_foreign_server_is_recognized(relume: Relume, live: LiveAdmin) -> None:
    """A port that answers something else is told apart from a relume that says no."""
    ran = relume("get", "models", "--admin", live.admin.url + "/somewhere")
    assert ran.code == 1
    assert "there is no /somewhere/v1alpha1/models" in ran.err


def test_token_from_option_environment_and_file(relume: Relume, live: LiveAdmin, tmp_path: Path) -> None:
    """All three ways are taken; a server that wants none does not mind. (Wrong ones are tested at the server.)"""
    file = tmp_path / "token"
    file.write_text("secret\n")
    assert relume("get", "models", "--token-file", str(file), live=live).code == 0
    assert relume("get", "models", "--token", "x", live=live).code == 0


def script(*arguments: str, **more: object) -> subprocess.Popen[bytes]:
    """The real entry point in a process of its own."""
    return subprocess.Popen(  # type: ignore[call-overload, no-any-return]  # tests name what they need
        [sys.executable, "-m", "deploy.cli.main", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more,
    )  # fmt: skip


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_quick_answers_import_little(argument: str) -> None:
    """Neither pydantic nor aiohttp nor rich is imported to print the version or the help: that keeps them quick."""
    code = (
        f"import sys; from deploy.cli.main import run; run([{argument!r}]); "
        "heavy = {'pydantic', 'aiohttp', 'rich', 'asyncio', 'ruamel', 'ssl', 'events.types.all'} & set(sys.modules); "
        "sys.exit(', '.join(sorted(heavy)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.stderr == b""
    assert done.returncode == 0


def test_ctrl_c_ends_quietly_with_130(live: LiveAdmin) -> None:
    """A followed stream is stopped by SIGINT: exit code 130, no words."""
    process = script("events", "tail", "--from-beginning", "-o", "json", "--admin", live.admin.url)
    assert process.stdout is not None
    assert process.stderr is not None
    live.do(live.admin.apply(ECHO))
    assert b"relume.model.declared.v1" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err.strip()) == (130, b"")


def test_a_reader_that_has_gone_is_no_traceback(live: LiveAdmin) -> None:
    """`relume get … | head -0`: the pipe is closed before we write."""
    live.do(live.admin.apply(ECHO))
    read, write = os.pipe()
    os.close(read)
    process = subprocess.Popen(
        [sys.executable, "-m", "deploy.cli.main", "get", "models", "-o", "json", "--admin", live.admin.url],
        stdout=write, stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(write)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (1, b"")


def test_the_reference_is_up_to_date() -> None:
    """docs/reference/cli.md is what the commands say."""
    from deploy.cli.reference import main  # noqa: PLC0415 - loads every command

    assert main(["--check"]) == 0


def test_a_followed_stream_that_relume_ends_is_no(live: LiveAdmin) -> None:
    """When relume shuts down, its followers end with 1 and its last word, on standard error."""
    process = script("events", "tail", "--from-beginning", "-o", "json", "--admin", live.admin.url)
    assert process.stdout is not None
    live.do(live.admin.apply(ECHO))
    assert b"relume.model.declared.v1" in process.stdout.readline()
    live.do(live.admin.server.close())
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (1, b"")
    assert b"relume is shutting down" in err


@pytest.mark.parametrize(
    "arguments", [("version",), ("schema",), ("simulate", "--help"), ("validate", "-o", "json", "-f", "-")]
)
def test_a_full_disk_is_said(arguments: tuple[str, ...]) -> None:
    """Exit code 1 and one line, whether the answer is long or short."""
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "deploy.cli.main", *arguments], input=ECHO.encode(), stdout=full,
            stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    assert ran.returncode == 1
    assert b"error: standard output cannot be written: No space left on device" in ran.stderr
    assert b"Traceback" not in ran.stderr
    assert b"Exception ignored" not in ran.stderr


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_closed_stream_is_no_place_for_a_file(tmp_path: Path, closed: int) -> None:
    """`relume … >&-`: no file that is opened later becomes a standard stream, into which children would write."""
    (tmp_path / "wordy.py").write_text("print('imported')\n\n\ndef hold(past):\n    return 1\n", encoding="utf-8")
    (tmp_path / "t.csv").write_text("HashApp,AverageMemUsage_MB,m1\na,1,1\n", encoding="utf-8")
    command = [sys.executable, "-m", "deploy.cli.main", "simulate", "--trace", "t.csv", "--format", "femux", "--policy"]
    ran = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}>&-', "sh", *command, "wordy:hold", "--html", "page.html"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}, capture_output=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!")
    assert b"Traceback" not in ran.stderr


def test_the_most_that_may_be_typed_is_the_most_that_may_be() -> None:
    """`relume scale` has the number by itself, for quickness."""
    assert asking.MOST == MAX_REPLICAS
