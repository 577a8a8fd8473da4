"""The guard in one process: staged saves, notices told twice, checkpoints that nobody can load, what it reports."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from preemption.trainer import CheckpointGuard, GuardSettings, Preempted, RestoreFailed

Made = Callable[..., CheckpointGuard]


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, object]]]:
    """What a guard made from here on has reported."""
    file = tmp_path / "reports.jsonl"
    monkeypatch.setenv("RELUME_REPORT_FILE", str(file))
    monkeypatch.setenv("RELUME_NOTICE_FILE", str(tmp_path / "notice.json"))
    return lambda: [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Made]:
    """Makes guards, and closes them."""
    made: list[CheckpointGuard] = []

    def new(**arguments: object) -> CheckpointGuard:
        chosen = {"save": write, "load": lambda folder: None, **arguments}
        guard = CheckpointGuard(tmp_path / "checkpoints", **chosen)  # type: ignore[arg-type] # as the tests say
        made.append(guard)
        return guard

    yield new
    for guard in made:
        guard.close()


def write(folder: Path) -> None:
    (folder / "state").write_text("x")


def train(guard: CheckpointGuard, first: int = 0, most: int = 20_000) -> int:
    """Steps of a millisecond, until told to go; the step at which it went."""
    for step in range(first, most):
        time.sleep(0.001)
        try:
            guard.step(step + 1)
        except Preempted:
            return step + 1
    raise AssertionError("nobody told it")


def kinds(found: list[dict[str, object]]) -> list[object]:
    return [report["kind"] for report in found]


def test_told_at_once_by_all_channels_it_saves_once(make: Made, reports: Callable, tmp_path: Path) -> None:
    """Two signals and a file in the same moment are one save, and one leaving."""
    guard = make()
    guard.step(1)
    (tmp_path / "notice.json").write_text('{"id": "a", "epoch": 3}')
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGTERM)
    train(guard, 1)
    assert kinds(reports()).count("saved") == 1
    assert kinds(reports())[0] == "started"
    assert kinds(reports())[-1] == "leaving"


def test_the_same_notice_again_is_not_obeyed_again(make: Made, reports: Callable, tmp_path: Path) -> None:
    """A controller that was started anew sends what it had sent; only another id asks for another save."""
    guard = make()
    notice = tmp_path / "notice.json"
    steps = itertools.count(1)
    for text in (
        '{"id": "a", "mode": "save_and_continue"}',
        '{"id": "a", "mode": "save_and_continue" }',
        '{"id": "b"}',
    ):
        notice.write_text(text)
        wanted = 1 if '"a"' in text else 2
        with pytest.raises(Preempted) if "b" in text.split(",")[0] else nothing():
            for _ in range(600):
                time.sleep(0.001)
                guard.step(next(steps))
        assert kinds(reports()).count("saved") == wanted


class nothing:  # noqa: N801 - reads like pytest.raises beside it
    """A context in which nothing is expected."""

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


class Slow:
    """A save that stages at once, and is written when the test lets it."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.trouble: Exception | None = None

    def __call__(self, folder: Path) -> Future[None]:
        upload: Future[None] = Future()

        def run() -> None:
            assert self.go.wait(30)
            if self.trouble is not None:
                upload.set_exception(self.trouble)
                return
            write(folder)
            upload.set_result(None)

        threading.Thread(target=run, daemon=True).start()
        return upload


def test_a_planned_save_that_is_staged_is_written_while_training_goes_on(make: Made, reports: Callable) -> None:
    """Steps pass before the upload ends; it is committed afterwards, for the step at which it was staged."""
    save = Slow()
    guard = make(save=save, settings=GuardSettings(every_steps=5))
    for step in range(9):
        guard.step(step + 1)
    assert guard.newest is None
    save.go.set()
    guard.finish()
    assert [(found["kind"], found["step"]) for found in reports()[1:]] == [("saved", 5), ("finished", 9)]


def test_told_to_go_it_waits_for_what_is_still_being_written(make: Made, reports: Callable) -> None:
    """The memory that the stage is in ends with the process: nobody leaves before the upload is committed."""
    save = Slow()
    guard = make(save=save, settings=GuardSettings(every_steps=5))
    for step in range(5):
        guard.step(step + 1)
    os.kill(os.getpid(), signal.SIGUSR1)
    threading.Timer(0.3, save.go.set).start()
    left = train(guard, 5)
    found = [(report["kind"], report["step"]) for report in reports() if report["kind"] in ("saved", "leaving")]
    assert found == [("saved", 5), ("saved", left), ("leaving", left)]


def test_an_upload_that_fails_is_reported_and_the_next_save_stands(make: Made, reports: Callable) -> None:
    """A full disk behind a staged save ends no training, and commits nothing."""
    save = Slow()
    save.trouble = OSError(28, "No space left on device")
    save.go.set()
    guard = make(save=save, settings=GuardSettings(every_steps=5))
    for step in range(9):
        guard.step(step + 1)
    guard._settle()
    assert guard.newest is None
    save.trouble = None
    guard.step(10)
    guard.finish()
    assert kinds(reports()) == ["started", "save_failed", "saved", "finished"]
    assert "No space left" in str(reports()[1]["message"])


def test_checkpoints_that_cannot_be_loaded_stop_the_run(make: Made, reports: Callable) -> None:
    """Beginning anew beside whole checkpoints would lose all of them in the end, silently."""

    def load(folder: Path) -> None:
        raise ValueError("of another model")

    make(settings=GuardSettings(every_steps=2)).step(2)
    with pytest.raises(RestoreFailed, match="step 2: rank 0: ValueError: of another model"):
        make(load=load).resume()
    assert kinds(reports())[-2:] == ["restore_bad", "aborted"]


def test_one_checkpoint_that_cannot_be_loaded_is_passed_over(make: Made) -> None:
    """The one before is taken."""
    guard = make(settings=GuardSettings(every_steps=2))
    for step in range(4):
        guard.step(step + 1)

    def load(folder: Path) -> None:
        if folder.name.endswith("4"):
            raise ValueError("damaged")

    assert make(load=load).resume() == 2


@pytest.mark.parametrize("done", [0, 7])
def test_the_first_step_is_said_at_once(
    make: Made, reports: Callable, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    """Who waits for it to be back need not wait for the next report that is due."""
    monkeypatch.setattr("preemption.trainer.watcher.HEARTBEAT", 3600.0)
    guard = make()
    guard.resumed(done)
    guard.step(done + 1)
    for _ in range(6000):
        if "step" in kinds(reports()):
            break
        time.sleep(0.01)
    assert reports()[-1]["step"] == done + 1


@pytest.mark.slow
def test_while_steps_pass_and_while_it_saves_it_says_how_far_it_is(make: Made, reports: Callable) -> None:
    """Every two seconds: the step, when it is another one, or the bytes of a save on a slow storage."""

    def save(folder: Path) -> None:
        (folder / "part").write_bytes(b"x" * 1000)
        time.sleep(2.6)
        write(folder)

    guard = make(save=save)
    for step in itertools.count(1):
        guard.step(step)
        time.sleep(0.01)
        if "step" in kinds(reports()):
            break
    guard.step(step + 1)
    time.sleep(4.5)  # the one step is told; after it nothing passes, and nothing is said
    guard.save()
    assert kinds(reports()) == ["started", "step", "step", "progress", "saved"]
    assert reports()[2]["step"] == step + 1
    assert reports()[3]["bytes"] == 1000
