"""relume dies while training runs: training goes on, and the next relume takes it over where it is."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from deploy.local.stale import find_marked, kill_marked
from events.types.training import CheckpointCommitted, Ending, RunState, Stop, TrainingDeclared, TrainingObserved
from tests.support.local_cluster import alive, until_dead
from tests.support.training_relume import Relume
from tests.support.training_stage import JOB, TrainingStage, granted, notice_of, spec_of, trainer


def steps_of(data: Path, rank: int = 0) -> list[int]:
    """What a rank has trained, in order."""
    text = (data / "training" / "jobs" / JOB / "u1" / "work" / f"steps-{rank}.txt").read_text()
    return [int(line.split()[1]) for line in text.splitlines()]


async def said(stage: TrainingStage, times: int) -> None:
    """Wait until the trainer has written a line so often; fail when it does not, or more often."""
    for _ in range(400):
        lines = await stage.cluster.training_logs.tail("tune-0", 9) or ()
        if (count := sum(line == "told" for line in lines)) >= times:
            assert count == times
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"it was not told {times} times")


Start = Callable[[], Awaitable[Relume]]


@pytest.fixture
async def relume_of(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts a process on one data folder; whatever a test does, nothing of it is left running."""
    started: list[Relume] = []

    async def start() -> Relume:
        started.append(await Relume.start(tmp_path / "data"))
        return started[-1]

    yield start
    for one in started:
        await one.kill()
    await asyncio.to_thread(kill_marked, str(tmp_path / "data"))


@pytest.mark.slow
async def test_killed_training_goes_on_and_is_taken_over(tmp_path: Path, relume_of: Start) -> None:
    """After kill -9 the same processes train on, and the next relume knows them. Stopped in order, the next one finds
    that they have saved, and they go on at that step."""
    data = tmp_path / "data"
    spec = spec_of(*trainer("sdk", "--every", 20), members=2)
    first = await relume_of()
    first.say(TrainingDeclared(job=JOB, uid="u1", revision=1, generation=1, spec=spec))
    first.say(granted(members=2))
    pids = [one.pid for one in (await first.stepping()).members]
    await first.kill()
    second = await relume_of()
    state = await second.until(lambda one: one.state is RunState.RUNNING and one.checkpoint is not None)
    assert [one.pid for one in state.members] == pids
    assert await second.stop() == 0
    steps = len(steps_of(data))
    third = await relume_of()
    state = await third.until(lambda one: one.empty_at is not None)
    assert (state.ending, state.checkpoint is not None and state.checkpoint.step) == (Ending.SAVED, steps)
    third.say(granted(2, members=2))
    state = await third.until(lambda one: one.run == 2 and one.resumed_step is not None)
    assert state.resumed_step == steps


async def test_taken_over_and_told(stage: TrainingStage) -> None:
    """A gang is gone on with: same processes, and a notice that was given before is answered after; nothing is told
    twice with effect."""
    await stage.declare_job(spec_of(*trainer("sdk", "--save-seconds", 0.5), members=2))
    await stage.say(granted(members=2))
    pids = [one.pid for one in (await stage.stepping()).members]
    notice = notice_of(stage)
    await stage.say(granted(members=2, notice=notice))
    await stage.until_job(lambda one: one.notice is not None)
    await stage.revive()
    state = await stage.empty()
    assert ([one.pid for one in state.members], state.ending) == (pids, Ending.SAVED)
    assert state.checkpoint is not None
    assert state.notice is not None
    assert state.notice.saved_step == state.checkpoint.step == len(steps_of(stage.folder.path))
    told = {one.checkpoint.step for one in await stage.news() if isinstance(one, CheckpointCommitted)}
    assert told == {state.checkpoint.step}
    assert stage.cluster.training_stats().adopted == 1


async def test_a_notice_that_was_withdrawn_meanwhile(stage: TrainingStage) -> None:
    """The next relume takes it back, though it has not given it."""
    await stage.declare_job(spec_of(*trainer("sdk", "--save-seconds", 1.0)))
    await stage.say(granted())
    await stage.stepping()
    await stage.say(granted(notice=notice_of(stage)))
    await stage.until_job(lambda one: one.notice is not None and one.notice.heard_at is not None)
    await stage.die()
    await stage.say(granted())
    await stage.cluster.start()
    state = await stage.until_job(lambda one: one.notice is not None and one.notice.continued_at is not None)
    assert state.state is RunState.RUNNING


async def test_the_signal_is_sent_once(stage: TrainingStage) -> None:
    """A trainer that handles the signal itself is not told by it again by the next relume."""
    program = "import signal, time; signal.signal(signal.SIGUSR1, lambda *_: print('told', flush=True)); time.sleep(60)"
    program = program.replace("time.sleep(60)", "[time.sleep(0.05) for _ in range(2000)]")
    await stage.declare_job(spec_of("python3", "-S", "-c", program))
    notice = notice_of(stage)
    await stage.say(granted(notice=notice))
    await said(stage, 1)
    await stage.revive()
    await stage.until_job(lambda one: one.state is RunState.RUNNING)
    await stage.say(granted(notice=notice_of(stage, "n2")))  # this one is another
    await said(stage, 2)


async def test_what_it_said_and_how_it_ended_meanwhile_is_known(stage: TrainingStage) -> None:
    """A run that obeyed its notice while no relume was there has saved, and begins no second time."""
    await stage.declare_job(spec_of(*trainer("sdk", "--save-seconds", 0.3)))
    await stage.say(granted())
    await stage.stepping()
    await stage.say(granted(notice=notice_of(stage)))
    state = await stage.until_job(lambda one: one.notice is not None and one.notice.heard_at is not None)
    await stage.die()
    await until_dead([one.pid for one in state.members if one.pid is not None], 20)
    await stage.cluster.start()
    state = await stage.empty()
    assert (state.run, state.ending, state.members[0].exit_code) == (1, Ending.SAVED, 75)
    assert state.notice is not None
    assert state.checkpoint is not None
    assert state.notice.saved_step == state.checkpoint.step == len(steps_of(stage.folder.path))


@pytest.mark.parametrize(("code", "ending"), [(0, Ending.FINISHED), (75, Ending.SAVED), (3, Ending.FAILED)])
async def test_the_word_that_a_trainer_without_the_sdk_leaves(stage: TrainingStage, code: int, ending: Ending) -> None:
    """Its exit code, though nobody was there to hear it."""
    await stage.declare_job(spec_of(*trainer("forks", "--steps", 30, "--code", code)))
    await stage.say(granted())
    state = await stage.running()
    await stage.die()
    await until_dead([one.pid for one in state.members if one.pid is not None], 20)
    await stage.cluster.start()
    state = await stage.empty()
    assert (state.ending, state.members[0].exit_code, state.failures) == (ending, code, int(ending is Ending.FAILED))
    assert find_marked(stage.folder.mark) == []


async def test_in_the_middle_of_an_end(stage: TrainingStage) -> None:
    """One that ignores SIGTERM is taken over while its grace runs, and killed at its end; it was told, all the same."""
    await stage.declare_job(spec_of(*trainer("ignores"), checkpoint={"grace": "1s"}))
    await stage.say(granted())
    await stage.trained()
    pid = (await stage.running()).members[0].pid
    await stage.say(granted(stop=Stop.TERMINATE))
    await stage.until_job(lambda one: one.message == "told to end")
    await stage.die()
    assert pid is not None
    assert alive(pid)
    await stage.cluster.start()
    state = await stage.empty()
    assert (state.ending, state.members[0].exit_code, state.failures) == (Ending.TOLD, -9, 0)


async def test_one_that_hears_and_hangs(stage: TrainingStage) -> None:
    """What it said before is known after, and it is killed when that is ordered."""
    await stage.declare_job(spec_of(*trainer("acks")))
    notice = notice_of(stage)
    await stage.say(granted(notice=notice))
    before = await stage.until_job(lambda one: one.notice is not None and one.notice.heard_at is not None)
    await stage.revive()
    await stage.say(granted(notice=notice, stop=Stop.KILL))
    state = await stage.empty()
    assert (state.notice, state.ending) == (before.notice, Ending.TOLD)


async def test_a_gang_that_lost_a_member_meanwhile(stage: TrainingStage) -> None:
    """It is taken over, and ended as a whole: nobody knows how the lost one ended."""
    await stage.declare_job(spec_of(*trainer("plain"), members=2))
    await stage.say(granted(members=2))
    pids = [one.pid for one in (await stage.running()).members if one.pid is not None]
    await stage.die()
    os.kill(psutil.Process(pids[1]).ppid(), signal.SIGKILL)
    await until_dead([pids[1]], 10)
    await stage.cluster.start()
    assert (await stage.empty()).ending is Ending.LOST
    await until_dead(pids, 0.1)


async def test_a_job_that_was_declared_anew(stage: TrainingStage) -> None:
    """What is of another declaration is ended, and that is told before the new one begins."""
    await stage.declare_job(spec_of(*trainer("plain")))
    await stage.say(granted())
    pids = [one.pid for one in (await stage.running()).members if one.pid is not None]
    await stage.die()
    await stage.declare_job(spec_of(*trainer("sdk")), uid="u2")
    await stage.say(granted(uid="u2"))
    await stage.cluster.start()
    state = await stage.until_job(lambda one: one.uid == "u2" and one.reports)
    assert state.run == 1
    await until_dead(pids, 10)
    history = [one for one in await stage.history() if isinstance(one, TrainingObserved)]
    states = [(one.uid, one.state) for one in history]
    assert states.index(("u1", RunState.ENDED)) < states.index(("u2", RunState.STARTING))


async def test_before_its_processes_were_known(stage: TrainingStage) -> None:
    """A run that was on record as about to start, and of which nothing is there, was lost; it does not begin again."""
    await stage.declare_job(spec_of(*trainer("plain")))
    await stage.say(granted())
    state = await stage.running()
    await stage.say(granted(members=0))
    await stage.empty()
    await stage.die()
    starting = {"state": RunState.STARTING, "ending": None, "ended_at": None, "empty_at": None, "run": 2}
    await stage.say(type(state)(**{name: getattr(state, name) for name in state.__slots__} | starting))
    await stage.say(granted(2))
    await stage.cluster.start()
    assert (await stage.empty(2)).ending is Ending.LOST
