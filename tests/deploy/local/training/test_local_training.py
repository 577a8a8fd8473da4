"""Training jobs as real processes: started, told, ended, and what is said of them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from events.types.training import CheckpointCommitted, Ending, NoticeMode, RunState, Stop, TrainingObserved
from events.units import Seconds
from tests.support.local_cluster import alive
from tests.support.training_stage import TrainingStage, granted, notice_of, spec_of, trainer


def work_of(stage: TrainingStage) -> Path:
    """Where the job's processes start."""
    return stage.folder.training / "jobs" / "tune" / "u1" / "work"


def steps_of(stage: TrainingStage, rank: int = 0) -> list[int]:
    """The steps that were trained, in order."""
    return [int(line.split()[1]) for line in (work_of(stage) / f"steps-{rank}.txt").read_text().splitlines()]


async def test_it_trains_to_its_end(stage: TrainingStage) -> None:
    """A granted run starts, trains, says that it has finished, its cards are seen empty; it begins no second time."""
    await stage.declare_job(spec_of(*trainer("sdk", "--steps", 5, "--every", 2)))
    await stage.say(granted(cards=1))
    state = await stage.empty()
    assert (state.ending, state.state, state.reports, state.failures) == (Ending.FINISHED, RunState.ENDED, True, 0)
    assert state.checkpoint is not None
    assert (state.checkpoint.step, state.checkpoint.verified, state.step) == (4, True, 5)
    assert [(one.member, one.gpus, one.exit_code) for one in state.members] == [("tune-0", ("virtual-0",), 0)]
    assert state.folder == str(work_of(stage))
    history = [one for one in await stage.history() if isinstance(one, TrainingObserved)]
    assert next(one.state for one in history) is RunState.STARTING
    assert steps_of(stage) == [0, 1, 2, 3, 4]
    await stage.say(granted(cards=1))
    assert await stage.job() == state


async def test_a_notice_is_obeyed_and_the_next_run_goes_on(stage: TrainingStage) -> None:
    """Told, it says that it heard, commits, leaves with 75; the next run begins at that very step, and no step is
    trained twice."""
    await stage.declare_job(spec_of(*trainer("sdk", "--steps", 150)))
    await stage.say(granted())
    await stage.stepping()
    notice = notice_of(stage)
    await stage.say(granted(notice=notice), epoch=7)
    state = await stage.empty()
    assert state.ending is Ending.SAVED
    assert state.notice is not None
    assert state.checkpoint is not None
    assert state.notice.id == "n1"
    assert state.notice.heard_at is not None
    assert state.notice.saved_step == state.checkpoint.step
    assert state.grant_epoch == 7
    told = [one for one in await stage.news() if isinstance(one, CheckpointCommitted)]
    assert [(one.notice, one.checkpoint.step, one.checkpoint.verified) for one in told] == [
        ("n1", state.checkpoint.step, True)
    ]
    await stage.say(granted(2), epoch=7)
    again = await stage.until_job(lambda one: one.run == 2 and one.ending is Ending.FINISHED)
    assert again.resumed_step == state.checkpoint.step
    assert steps_of(stage) == list(range(150))


async def test_two_ranks_leave_at_the_same_step(stage: TrainingStage) -> None:
    """A gang of two, each with its own card, agrees through its board; both leave with 75 at one step."""
    await stage.declare_job(spec_of(*trainer("sdk"), members=2))
    await stage.say(granted(members=2, cards=1))
    await stage.stepping()
    await stage.say(granted(members=2, cards=1, notice=notice_of(stage)))
    state = await stage.empty()
    assert state.ending is Ending.SAVED
    assert [one.exit_code for one in state.members] == [75, 75]
    assert len(steps_of(stage, 0)) == len(steps_of(stage, 1)) == (state.checkpoint.step if state.checkpoint else 0)


async def test_a_notice_is_withdrawn(stage: TrainingStage) -> None:
    """The trainer is told that it no longer holds; a step after that says that it went on."""
    await stage.declare_job(spec_of(*trainer("sdk", "--save-seconds", 1.0)))
    await stage.say(granted())
    await stage.stepping()
    await stage.say(granted(notice=notice_of(stage)))
    await stage.until_job(lambda one: one.notice is not None and one.notice.heard_at is not None)
    await stage.say(granted())
    state = await stage.until_job(lambda one: one.notice is not None and one.notice.continued_at is not None)
    assert state.state is RunState.RUNNING


async def test_save_and_continue(stage: TrainingStage) -> None:
    """It saves and goes on, over HTTP alone."""
    spec = spec_of(*trainer("sdk"), checkpoint={"channels": ["http"]})
    await stage.declare_job(spec)
    await stage.say(granted())
    await stage.stepping()
    await stage.say(granted(notice=notice_of(stage, mode=NoticeMode.SAVE_AND_CONTINUE)), epoch=3)
    state = await stage.until_job(lambda one: one.notice is not None and one.notice.continued_at is not None)
    assert state.notice is not None
    assert (state.state, state.notice.saved_step is not None) == (RunState.RUNNING, True)


async def test_a_trainer_that_handles_the_signal_itself(stage: TrainingStage) -> None:
    """Without the SDK it gets the declared signal, once it catches it, and code 75 says that it has saved."""
    await stage.declare_job(spec_of(*trainer("handler")))
    await stage.say(granted(notice=notice_of(stage)))  # from the start: before it catches the signal, it gets none
    state = await stage.empty()
    assert (state.ending, state.reports) == (Ending.SAVED, False)


async def test_terminated_without_a_checkpoint(stage: TrainingStage) -> None:
    """A plain trainer that is told to end has been told; that is no failure."""
    await stage.declare_job(spec_of(*trainer("plain")))
    await stage.say(granted())
    pid = (await stage.running()).members[0].pid
    await stage.say(granted(stop=Stop.TERMINATE))
    state = await stage.empty()
    assert (state.ending, state.members[0].exit_code, state.failures) == (Ending.TOLD, -15, 0)
    assert pid is not None
    assert not alive(pid)


async def test_no_members_mean_nothing_may_run(stage: TrainingStage) -> None:
    """It is asked to end, and one with the SDK saves first."""
    await stage.declare_job(spec_of(*trainer("sdk")))
    await stage.say(granted())
    await stage.stepping()
    await stage.say(granted(members=0))
    state = await stage.empty()
    assert (state.ending, state.checkpoint is not None) == (Ending.SAVED, True)


async def test_an_older_epoch_is_refused(stage: TrainingStage) -> None:
    """A leader that was deposed cannot end a run."""
    await stage.declare_job(spec_of(*trainer("sdk")))
    epoch = await stage.lead()
    newer = await stage.lead()
    await stage.say(granted(), epoch=newer)
    await stage.running()
    await stage.say(granted(members=0), epoch=epoch)
    await stage.say(granted(notice=notice_of(stage)), epoch=newer)
    assert (await stage.empty()).ending is Ending.SAVED
    assert stage.cluster.training_stats().refused_grants == 1


async def test_what_a_member_is_told_by_its_environment(stage: TrainingStage) -> None:
    """Ranks, cards, files and the job's own variables."""
    program = "import json, os; json.dump(dict(os.environ), open(f'env-{os.environ[\"RANK\"]}.json', 'w'))"
    spec = spec_of("python3", "-S", "-c", program, members=2)
    spec["environment"] = {"MINE": "1", "RANK": "9"}
    await stage.declare_job(spec)
    await stage.say(granted(members=2, cards=2))
    assert (await stage.empty()).ending is Ending.FINISHED
    one, two = (json.loads((work_of(stage) / f"env-{rank}.json").read_text()) for rank in (0, 1))
    assert (one["RANK"], two["RANK"], two["WORLD_SIZE"], two["LOCAL_RANK"]) == ("0", "1", "2", "0")
    assert one["MASTER_PORT"] == two["MASTER_PORT"]
    assert two["RELUME_GPUS"] == "virtual-2,virtual-3"
    assert two["CUDA_VISIBLE_DEVICES"] == ""
    assert (one["MINE"], one["RELUME_JOB"], one["RELUME_RUN"]) == ("1", "tune", "1")
    assert "RELUME_REPORT_FILE" in one
    assert "RELUME_REPORT_FILE" not in two
    assert one["RELUME_BOARD"].endswith("/runs/1/board")
    assert one["RELUME_NOTICE_FILE"] == two["RELUME_NOTICE_FILE"]


async def test_relume_stops_in_order(stage: TrainingStage) -> None:
    """Its runs are told to save and leave, and that is on record before it returns."""
    await stage.declare_job(spec_of(*trainer("sdk")))
    await stage.say(granted())
    await stage.stepping()
    await stage.cluster.stop(Seconds(0.0), Seconds(10.0))
    state = await stage.job()
    assert state is not None
    assert (state.ending, state.empty_at is not None) == (Ending.SAVED, True)
    assert state.notice is not None
    assert state.notice.saved_step is not None


async def test_its_log(stage: TrainingStage) -> None:
    """What a member writes is kept by its name, over its runs."""
    await stage.declare_job(spec_of("python3", "-S", "-c", "print('hello')"))
    await stage.say(granted())
    await stage.empty()
    await stage.say(granted(2))
    await stage.empty(2)
    lines = await stage.cluster.training_logs.tail("tune-0", 10)
    assert [line for line in lines or () if not line.startswith("===")] == ["hello", "hello"]
    assert [line async for line in stage.cluster.training_logs.follow("tune-0", 1)] == ["hello"]
    assert await stage.cluster.training_logs.tail("tune-1", 10) is None


async def test_a_run_that_must_end_before_it_began(stage: TrainingStage) -> None:
    """Nothing of it is started, and that is told, so that nobody waits for its cards."""
    await stage.declare_job(spec_of(*trainer("plain")))
    await stage.say(granted(stop=Stop.TERMINATE))
    state = await stage.empty()
    assert (state.ending, state.members, state.failures) == (Ending.TOLD, (), 0)


async def test_a_deleted_job(stage: TrainingStage) -> None:
    """Its end is told, then it is forgotten; the same name declared anew begins with nothing of it."""
    await stage.declare_job(spec_of(*trainer("sdk", "--every", 5)))
    await stage.say(granted())
    await stage.until_job(lambda one: one.checkpoint is not None)
    await stage.declare_job({}, generation=2, deleted=True)
    await stage.say(granted(members=0))
    state = await stage.empty()
    assert state.checkpoint is not None
    assert not stage.cluster._training._jobs.jobs
    await stage.declare_job(spec_of(*trainer("sdk", "--steps", 3)), uid="u2")
    await stage.say(granted(uid="u2"))
    again = await stage.until_job(lambda one: one.uid == "u2" and one.empty_at is not None)
    assert (again.run, again.ending, again.checkpoint) == (1, Ending.FINISHED, None)


async def test_declared_anew_while_it_runs(stage: TrainingStage) -> None:
    """What runs of the old declaration goes on until it is told, saves when it is, and only then the new one begins."""
    await stage.declare_job(spec_of(*trainer("sdk")))
    await stage.say(granted())
    before = await stage.stepping()
    await stage.declare_job({}, generation=2, deleted=True)
    await stage.declare_job(spec_of(*trainer("sdk", "--steps", 3)), uid="u2")
    await stage.until_job(lambda one: (one.step or 0) > (before.step or 0) and one.state is RunState.RUNNING)
    await stage.say(granted(notice=notice_of(stage)))
    saved = await stage.empty()
    assert (saved.uid, saved.ending) == ("u1", Ending.SAVED)
    assert saved.notice is not None
    assert saved.checkpoint is not None
    assert saved.notice.saved_step == saved.checkpoint.step
    await stage.say(granted(2, uid="u2"))
    again = await stage.until_job(lambda one: one.uid == "u2" and one.empty_at is not None)
    assert (again.run, again.ending, again.resumed_step) == (2, Ending.FINISHED, 0)


async def test_failures_are_forgiven(stage: TrainingStage) -> None:
    """Those of runs up to the one that the declaration names: the next run begins at once, and its failure is the first
    of a new row. Another relume goes on from that."""
    spec = spec_of("python3", "-S", "-c", "raise SystemExit(3)")
    await stage.declare_job(spec)
    for run in (1, 2):
        await stage.say(granted(run))
        state = await stage.empty(run)
    assert (state.failures, state.retry_at is not None) == (2, True)
    await stage.declare_job(spec, generation=2, forgiven=2)
    state = await stage.until_job(lambda one: not one.failures)
    assert (state.run, state.retry_at) == (2, None)
    await stage.say(granted(3))
    assert (await stage.empty(3)).failures == 1
    await stage.revive()
    await stage.say(granted(4))
    assert (await stage.empty(4)).failures == 2


@pytest.mark.parametrize("purge", [False, True])
async def test_what_a_deleted_job_leaves(stage: TrainingStage, purge: bool) -> None:
    """Its own folder stays with its checkpoints, unless its user wants it to go; and then not before it has ended. That
    of the next job of the name stays."""
    await stage.declare_job(spec_of(*trainer("sdk", "--every", 2)))
    await stage.say(granted())
    await stage.until_job(lambda one: one.checkpoint is not None)
    await stage.declare_job({}, generation=2, deleted=True, purge=purge)
    await stage.declare_job(spec_of(*trainer("sdk", "--steps", 3)), uid="u2")
    await stage.say(granted(notice=notice_of(stage)))
    saved = await stage.empty()
    assert saved.ending is Ending.SAVED  # it could still write
    await stage.say(granted(2, uid="u2"))
    await stage.until_job(lambda one: one.uid == "u2" and one.empty_at is not None)
    root = stage.folder.training / "jobs" / "tune"
    async with asyncio.timeout(30):
        while (root / "u1").exists() and purge:  # noqa: ASYNC110 - it is removed in a thread
            await asyncio.sleep(0.05)
    assert sorted(one.name for one in root.iterdir()) == (["u2"] if purge else ["u1", "u2"])
