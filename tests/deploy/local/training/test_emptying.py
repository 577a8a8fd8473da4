"""Whether cards are empty, by recorded answers of nvidia-smi; and notices to processes that catch no signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.training.emptying import Fact, Left, parse_apps, users_of, what_is_left
from deploy.local.training.notifying import catches
from events.units import Instant

A, B = "GPU-6c8f5f4e-1111-2222-3333-444455556666", "GPU-6c8f5f4e-aaaa-bbbb-cccc-ddddeeeeffff"
ANSWER = f"{A}, 4711\n{A}, 4712\n{B}, 815\n{A}, [N/A]\n"
"""As nvidia-smi 550 writes it, with a process whose pid it may not tell."""
LEFT = Left("/data", frozenset({"training/u1/1/tune-0"}), frozenset({A}), Instant(1000.0))


@pytest.mark.parametrize(("text", "cards", "wanted"), [
    (ANSWER, {A}, (4711, 4712)), (ANSWER, {B}, (815,)), (ANSWER, set(), ()), ("", {A}, ()),
    ("No running processes found\n", {A}, ()),
])  # fmt: skip
def test_who_is_on_the_cards(text: str, cards: set[str], wanted: tuple[int, ...]) -> None:
    """The pids on these cards."""
    assert parse_apps(text, cards) == wanted


@pytest.mark.parametrize(
    ("fact", "in_the_way"),
    [
        (Fact(2000.0, "training/u1/1/tune-0"), True),
        (Fact(2000.0, "training/u1/2/tune-0"), False),
        (Fact(2000.0, "echo-r1-0"), False),
        (Fact(900.0), False),
        (Fact(2000.0), True),
        (None, True),
    ],
    ids=["its own", "of its next run", "a replica's", "there before", "nobody knows whose", "ended, and still held"],
)
def test_who_is_in_the_way(fact: Fact | None, in_the_way: bool) -> None:
    """A process on a card of the run."""
    facts = {} if fact is None else {4711: fact}
    assert users_of([4711], facts, LEFT) == ((4711,) if in_the_way else ())


async def test_a_card_that_is_given_back_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nvidia-smi is asked on a machine with real cards, and what it says decides."""
    said = tmp_path / "said"
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\ncat "{said}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    said.write_text(f"{A}, 99999999\n")
    assert "99999999 are still on its cards" in await what_is_left(LEFT)
    said.write_text(f"{B}, 99999999\n")
    assert await what_is_left(LEFT) == ""
    program.write_text("#!/bin/sh\necho trouble; exit 9\n")
    assert "does not tell" in await what_is_left(LEFT)


@pytest.mark.needs("linux")
def test_who_catches_a_signal() -> None:
    """One that does neither handle nor ignore it would die of it."""
    program = (
        "import signal, sys; signal.signal(signal.SIGUSR1, lambda *_: None); print(1, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-S", "-c", program], stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert catches(process.pid, signal.SIGUSR1)
        assert not catches(process.pid, signal.SIGUSR2)
        process.kill()
    assert not catches(process.pid, signal.SIGUSR1)
