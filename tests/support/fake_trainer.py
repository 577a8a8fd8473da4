"""Trainers, good and bad, without any framework: ``python fake_trainer.py KIND [--flags]``.

Each appends a line ``RANK STEP`` to ``steps-RANK.txt`` in its folder for each step that it has trained.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from preemption.trainer import CheckpointGuard, FolderBoard, GuardSettings, Ranks, clock

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def say(kind: str, **values: object) -> None:
    """A report by hand."""
    with Path(os.environ["RELUME_REPORT_FILE"]).open("a") as file:
        file.write(json.dumps({"kind": kind, "time_unix": clock.unix_now(), **values}) + "\n")


def guard_of(args: argparse.Namespace) -> CheckpointGuard:
    def save(folder: Path) -> None:
        if args.save_fails:
            raise OSError(28, "No space left on device")
        (folder / f"rank-{RANK}.txt").write_text("x" * 1000)
        time.sleep(args.save_seconds)

    board = FolderBoard(Path(os.environ["RELUME_BOARD"])) if WORLD > 1 else None
    settings = GuardSettings(every_steps=args.every, patience=20.0)
    return CheckpointGuard(
        "checkpoints", save=save, load=lambda folder: None, settings=settings, ranks=Ranks(RANK, WORLD, board)
    )


def trained(step: int) -> None:
    with Path(f"steps-{RANK}.txt").open("a") as file:
        file.write(f"{RANK} {step}\n")


def sdk(args: argparse.Namespace) -> None:
    """As it should be: leaves with 75 when told, finishes when done."""
    guard = guard_of(args)
    for step in range(guard.resume(), args.steps):
        trained(step)
        time.sleep(args.pause)
        guard.step(step + 1)
        if args.crash_at == step + 1 and args.crash_rank == RANK:
            os._exit(3)
    if args.unfinished:
        sys.exit(0)  # a loop that ended early, say
    guard.finish()


def plain(args: argparse.Namespace) -> None:
    """Without the SDK: trains, and ends with 0."""
    for step in range(args.steps):
        trained(step)
        time.sleep(args.pause)


def handler(args: argparse.Namespace) -> None:
    """Without the SDK, but it handles the signal itself: saves somewhere, and leaves with 75."""
    signal.signal(signal.SIGUSR1, lambda *_: sys.exit(75))
    plain(args)


def ignores(args: argparse.Namespace) -> None:
    """Hears nothing, and does not mind SIGTERM."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    plain(args)


def acks(args: argparse.Namespace) -> None:
    """Says that it has heard, and then hangs."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    notice = Path(os.environ["RELUME_NOTICE_FILE"])
    say("step", step=1)
    while not notice.exists():
        time.sleep(0.02)
    told = json.loads(notice.read_text())
    say("ack", id=told["id"], epoch=told["epoch"], step=1, eta=2.5)
    time.sleep(600)


def half(args: argparse.Namespace) -> None:
    """Tells of a checkpoint that is none, and goes on."""
    notice = Path(os.environ["RELUME_NOTICE_FILE"])
    say("step", step=1)
    while not notice.exists():
        time.sleep(0.02)
    folder = Path("checkpoints/step-7")
    folder.mkdir(parents=True)
    (folder / "MANIFEST.json").write_text("{}")
    say("saved", id=json.loads(notice.read_text())["id"], step=7, path=str(folder), manifest="f00", bytes=3)
    time.sleep(600)


def forks(args: argparse.Namespace) -> None:
    """Starts a process that leaves its group and session, then ends as told."""
    child = "import time, os; os.fork() and os._exit(0); os.setsid(); time.sleep(600)"
    subprocess.run([sys.executable, "-S", "-c", child], check=True)
    plain(args)
    sys.exit(args.code)


def garbage(args: argparse.Namespace) -> None:
    """Writes anything into the report file, among some reports; then trains."""
    with Path(os.environ["RELUME_REPORT_FILE"]).open("ab") as file:
        file.write(b"\x00\xff not json\n[1, 2]\n" + b"x" * 200_000 + b'\n{"kind": 7}\n' + b'{"kind": "step"}\n')
        file.write(b'{"kind": "step", "step": -4}\n{"kind": "step", "step": 1e400}\n')
        file.write(b'{"kind": "saved", "step": 3, "path": "/dev/zero", "manifest": "0"}\n')
        file.write(b'{"kind": "step", "step": 41, "time_unix": "soon"}\n{"kind": "step", "step": 42')
    plain(args)


def floods(args: argparse.Namespace) -> None:
    """Thousands of reports."""
    with Path(os.environ["RELUME_REPORT_FILE"]).open("a") as file:
        lines = (
            json.dumps({"kind": "step", "step": step, "time_unix": clock.unix_now()}) for step in range(args.steps)
        )
        file.writelines(f"{line}\n" for line in lines)
    say("finished", step=args.steps)


KINDS = {one.__name__: one for one in (sdk, plain, handler, ignores, acks, half, forks, garbage, floods)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--pause", type=float, default=0.01)
    parser.add_argument("--every", type=int)
    parser.add_argument("--save-seconds", type=float, default=0.0)
    parser.add_argument("--save-fails", action="store_true")
    parser.add_argument("--crash-at", type=int, default=-1)
    parser.add_argument("--crash-rank", type=int, default=0)
    parser.add_argument("--unfinished", action="store_true")
    parser.add_argument("--code", type=int, default=0)
    args = parser.parse_args()
    KINDS[args.kind](args)


if __name__ == "__main__":
    main()
