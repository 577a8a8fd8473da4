"""Trainers that do not do as they should: each ends within its bounds, and is told for what it is."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from events.types.shared import Resources
from events.types.training import CheckpointCommitted, CheckpointFailed, Ending, RunState, Stop
from events.units import Seconds
from tests.support.local_cluster import until_dead
from tests.support.training_stage import TrainingStage, granted, notice_of, spec_of, trainer

QUICKLY = {"ackTimeout": "1s", "saveTimeout": "2s", "grace": "500ms"}


async def test_one_that_ignores_everything(stage: TrainingStage) -> None:
    """It says nothing to a notice, does not end by SIGTERM, and is killed after the grace: it was told."""
    await stage.declare_job(spec_of(*trainer("ignores"), checkpoint=QUICKLY))
    await stage.say(granted())
    await stage.trained()
    notice = notice_of(stage)
    await stage.say(granted(notice=notice))
    await stage.until_job(lambda one: one.notice is not None and one.notice.id == "n1")
    await stage.say(granted(notice=notice, stop=Stop.TERMINATE))
    state = await stage.empty()
    assert (state.ending, state.members[0].exit_code, state.failures) == (Ending.TOLD, -9, 0)
    assert state.notice is not None
    assert (state.notice.heard_at, state.notice.saved_step) == (None, None)


async def test_one_that_hears_and_hangs(stage: TrainingStage) -> None:
    """Its word and its estimate are told; killed at once when that is ordered."""
    await stage.declare_job(spec_of(*trainer("acks")))
    await stage.say(granted(notice=notice_of(stage)))
    state = await stage.until_job(lambda one: one.notice is not None and one.notice.heard_at is not None)
    assert state.notice is not None
    assert state.notice.eta == 2.5
    await stage.say(granted(notice=notice_of(stage), stop=Stop.KILL))
    assert (await stage.empty()).ending is Ending.TOLD


async def test_one_whose_disk_is_full(stage: TrainingStage) -> None:
    """It says that it could not save, and why; that is told of the notice, and as news."""
    await stage.declare_job(spec_of(*trainer("sdk", "--save-fails")))
    await stage.say(granted())
    await stage.stepping()
    await stage.say(granted(notice=notice_of(stage)))
    state = await stage.until_job(lambda one: one.notice is not None and bool(one.notice.failed))
    assert state.notice is not None
    assert "No space left on device" in state.notice.failed
    assert (state.checkpoint, state.state) == (None, RunState.RUNNING)
    failed = [one for one in await stage.news() if isinstance(one, CheckpointFailed)]
    assert [(one.notice, one.run) for one in failed] == [("n1", 1)]


async def test_half_a_checkpoint(stage: TrainingStage) -> None:
    """What it tells of is looked at: without its mark it is no checkpoint, and the notice is not answered by it."""
    await stage.declare_job(spec_of(*trainer("half")))
    await stage.say(granted(notice=notice_of(stage)))
    state = await stage.until_job(lambda one: one.notice is not None and bool(one.notice.failed))
    assert state.notice is not None
    assert "COMMITTED" in state.notice.failed
    assert (state.checkpoint, state.notice.saved_step) == (None, None)
    assert not [one for one in await stage.news() if isinstance(one, CheckpointCommitted)]
    assert stage.cluster.training_stats().bad_checkpoints == 1


@pytest.mark.parametrize("told", [False, True], ids=["ends by itself", "is killed"])
async def test_children_that_keep_running(stage: TrainingStage, told: bool) -> None:
    """What a trainer started and left behind is ended too, and only then are its cards empty."""
    steps = [] if told else ["--steps", 50]
    await stage.declare_job(spec_of(*trainer("forks", *steps)))
    await stage.say(granted(cards=1))
    pid = (await stage.running()).members[0].pid
    assert pid is not None
    shim = psutil.Process(pid).parent()
    assert shim is not None
    await stage.trained()
    children = [one.pid for one in shim.children(recursive=True) if one.pid != pid]
    if told:
        await stage.say(granted(cards=1, stop=Stop.KILL))
    state = await stage.empty()
    assert state.ending is (Ending.TOLD if told else Ending.FINISHED)
    assert children
    await until_dead(children, 0.1)


async def test_code_0_before_the_end(stage: TrainingStage) -> None:
    """With the SDK, code 0 without a word that it has finished is a failure, with a back-off and the last lines."""
    await stage.declare_job(spec_of(*trainer("sdk", "--steps", 3, "--unfinished", "--pause", 0.3)))
    await stage.say(granted())
    state = await stage.empty()
    assert (state.ending, state.failures, state.reason) == (Ending.FAILED, 1, "Crashed")
    assert "did not say that it had finished" in state.message
    assert state.retry_at is not None
    assert state.ended_at is not None
    assert state.retry_at > state.ended_at


async def test_the_next_run_waits_for_its_time(stage: TrainingStage) -> None:
    """After two failures in a row a run that is granted begins at `retry_at`, not before."""
    await stage.declare_job(spec_of("python3", "-S", "-c", "import sys; print('no'); sys.exit(1)"))
    await stage.say(granted())
    assert (await stage.empty()).log_tail == ("no",)
    await stage.say(granted(2))
    first = await stage.empty(2)
    await stage.say(granted(3))
    second = await stage.empty(3)
    assert first.retry_at is not None
    assert second.started_at is not None
    assert second.started_at >= first.retry_at
    assert (first.failures, second.failures) == (2, 3)


async def test_a_member_that_crashes_ends_the_gang(stage: TrainingStage) -> None:
    """The other rank would wait for it for ever; the run has failed, by the one that crashed."""
    spec = spec_of(*trainer("sdk", "--crash-at", 20, "--crash-rank", 1), members=2, checkpoint=QUICKLY)
    await stage.declare_job(spec)
    await stage.say(granted(members=2))
    state = await stage.empty()
    assert (state.ending, state.failures) == (Ending.FAILED, 1)
    assert "tune-1 ended with exit code 3" in state.message


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (spec_of("no-such-program"), "CommandNotFound"),
        (spec_of("python3", folder="/no/such/folder"), "CannotStart"),
        ({"command": []}, "InvalidSpec"),
    ],
    ids=["no program", "no folder", "no declaration that can be run"],
)
async def test_what_cannot_be_started(stage: TrainingStage, spec: dict[str, object], reason: str) -> None:
    """Is a failed run, with its reason."""
    await stage.declare_job(spec | {"members": 2})
    await stage.say(granted(members=2))
    state = await stage.empty()
    assert (state.ending, state.reason, state.failures) == (Ending.FAILED, reason, 1)


async def test_too_much_memory(stage: TrainingStage) -> None:
    """A member above its limit ends the run."""
    await stage.declare_job(spec_of("python3", "-S", "-c", "import time; x = b'x' * (200 << 20); time.sleep(600)"))
    await stage.say(granted(resources=Resources(memory_bytes=100 << 20)))
    state = await stage.empty()
    assert (state.ending, state.reason) == (Ending.FAILED, "OOMKilled")


async def test_garbage_in_the_report_file(stage: TrainingStage) -> None:
    """What is no report is counted and left out; what is one counts; nothing breaks."""
    await stage.declare_job(spec_of(*trainer("garbage")))
    await stage.say(granted())
    state = await stage.until_job(lambda one: one.step == 41)
    assert (state.state, state.checkpoint) == (RunState.RUNNING, None)
    assert stage.cluster.training_stats().unreadable_reports == 4
    assert stage.cluster.training_stats().bad_checkpoints == 1


async def test_thousands_of_reports(stage: TrainingStage) -> None:
    """Are read in one look, and few of them become states."""
    await stage.declare_job(spec_of(*trainer("floods", "--steps", 50_000)))
    await stage.say(granted())
    state = await stage.empty()
    assert (state.step, state.ending) == (50_000, Ending.FINISHED)
    assert len(await stage.history()) < 15


async def test_a_shim_that_is_killed(stage: TrainingStage) -> None:
    """Its member dies with it; nobody knows how it would have ended. That is a failure, as far as the next try goes."""
    await stage.declare_job(spec_of(*trainer("plain")))
    await stage.say(granted())
    pid = (await stage.running()).members[0].pid
    assert pid is not None
    shim = psutil.Process(pid).ppid()
    os.kill(shim, signal.SIGKILL)
    state = await stage.empty()
    assert (state.ending, state.failures) == (Ending.LOST, 1)


async def test_relume_stops_and_one_does_not_mind(stage: TrainingStage) -> None:
    """One that says nothing within its time for a word gets SIGTERM, and soon SIGKILL: relume does not wait on."""
    await stage.declare_job(spec_of(*trainer("ignores"), checkpoint={"ackTimeout": "500ms"}))
    await stage.say(granted())
    await stage.trained()
    began = stage.clock.now()
    await stage.cluster.stop(Seconds(0.0), Seconds(60.0))
    assert 1.4 < stage.clock.now() - began < 20.0
    state = await stage.job()
    assert state is not None
    assert (state.ending, state.members[0].exit_code, state.failures) == (Ending.TOLD, -9, 0)


async def test_one_that_asks_to_be_started_again_for_no_reason(stage: TrainingStage) -> None:
    """Code 75 of its own accord, with nothing saved, is a failure: it waits before its next try, and gives up in the
    end. (It was started some twelve times a second otherwise, for ever.)"""
    await stage.declare_job(spec_of("sh", "-c", "exit 75"))
    await stage.say(granted())
    state = await stage.empty()
    assert (state.ending, state.members[0].exit_code, state.failures) == (Ending.FAILED, 75, 1)
    assert state.retry_at is not None
    assert "nobody had told it to go" in state.message


async def test_one_that_is_killed_with_its_shim(stage: TrainingStage) -> None:
    """Whoever does it, the next try waits, as after any failure: else it would be started as fast as it is killed."""
    await stage.declare_job(spec_of("sh", "-c", "sleep 1; kill -9 $PPID $$"))
    await stage.say(granted())
    state = await stage.empty()
    assert (state.ending, state.failures) == (Ending.LOST, 1)
    assert state.retry_at is not None
    assert "tune-0 was killed with its shim" in state.message
