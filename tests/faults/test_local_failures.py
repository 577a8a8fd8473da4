"""What goes wrong with replicas, with real processes: each failure has its reason, its back-off, its last lines."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from deploy.local import replica, starting
from deploy.local.addresses import Ports
from deploy.local.process import ReplicaProcess
from deploy.local.progress import StartDeadline
from events.log import LogUnavailable, Position
from events.types.phases import ReplicaDrained, ReplicaSuspected
from events.types.replicas import ReplicasObserved, ReplicaState
from events.types.shared import Resources
from events.units import Instant, Seconds
from tests.support.local_cluster import FAST, PATIENCE, Stage, alive, engine, states, until_dead

S = ReplicaState
HASTY = replace(FAST, start_deadline=StartDeadline(stall=Seconds(1.0), cap=Seconds(60.0)), warmup_bound=Seconds(2.0))


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """A started cluster that gives up early."""
    made = Stage(tmp_path / "data", HASTY)
    await made.cluster.start()
    yield made
    await made.close()


def failed(reason: str, times: int = 1) -> Callable[[ReplicasObserved], bool]:
    """Whether a model has failed so often, for this reason, and nothing of it is left."""
    return lambda state: state.failures >= times and state.reason == reason and not state.replicas


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        (engine("--exit", 3, "--say", "no such layer"), "ExitedWhileStarting", "exit code 3; last line: no such layer"),
        (engine("--silent"), "StartHung", "no sign of progress for 1 s in phase spawn"),
        (engine("--load", 600), "StartHung", "no sign of progress for 1 s in phase load"),
        (engine("--warmup-status", 400), "WarmupFailed", "POST /v1/completions was answered with 400"),
        (engine("--slots", 2, busyPath="/slots"), "SlotsMismatch", "runs 2 requests at a time"),
        (
            {"engine": {"type": "command", "options": {"command": ["/no/such", "{port}"]}}},
            "CommandNotFound",
            "cannot execute /no/such",
        ),
        (engine() | {"weights": {"uri": "/no/such.gguf"}}, "WeightsNotFound", "/no/such.gguf do not exist"),
        (
            engine() | {"weights": {"uri": "s3://b/k", "cache": False}},
            "InvalidSpec",
            "s3://b/k is not a local file",
        ),
        ({"engine": {"type": "command", "options": {"command": ["x"]}}}, "InvalidSpec", "port"),
    ],
    ids=["exits", "never listens", "never healthy", "refuses", "slots", "no command", "no weights", "s3", "options"],
)
async def test_start_fails(stage: Stage, spec: dict[str, object], reason: str, message: str) -> None:
    """A start that cannot succeed says why, is tried again later, and leaves nothing running."""
    await stage.declare(spec)
    await stage.grant(0)
    observed = await stage.until(failed(reason))
    assert message in observed.message
    assert observed.retry_at is not None
    assert stage.cluster.stats().failures >= (0 if reason == "InvalidSpec" else 1)


async def test_disk_hangs(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights on a disk that does not answer fail the start by the same deadline, though no process exists yet."""
    answered = threading.Event()
    monkeypatch.setattr(starting.os, "access", lambda *_: answered.wait(PATIENCE))
    await stage.declare(engine() | {"weights": {"uri": "/mnt/dead/x.gguf"}})
    await stage.grant(0)
    try:
        observed = await stage.until(failed("StartHung"))
        assert observed.replicas == ()
    finally:
        answered.set()


@pytest.mark.slow
async def test_crash_loop(stage: Stage) -> None:
    """A model that never starts is tried again after 1 s, 2 s, … while it is granted, with its last lines told."""
    await stage.declare(engine("--exit", 9, "--say", "out of luck"))
    await stage.grant(0)
    retries = []
    for times in (1, 2):
        observed = await stage.until(failed("ExitedWhileStarting", times))
        assert observed.log_tail == ("out of luck",)
        assert observed.retry_at is not None
        retries.append(observed.retry_at - stage.clock.now())
    assert retries[0] <= 1.0 < retries[1] <= 2.0
    await stage.grant()
    starts = stage.cluster.stats().starts
    await stage.until(lambda state: stage.clock.now() > (state.retry_at or 0) + 0.2)
    assert stage.cluster.stats().starts == starts


@pytest.mark.slow
async def test_starts_side_by_side_fail_once(stage: Stage) -> None:
    """Four replicas that fail for one cause are one failed start, not four."""
    await stage.declare(engine("--exit", 1))
    await stage.grant(0, 1, 2, 3)
    observed = await stage.until(lambda state: state.failures > 0 and not state.replicas)
    assert observed.failures == 1


async def test_crash_is_restarted(stage: Stage) -> None:
    """A ready replica that is killed goes, with the signal told, and is started anew."""
    await stage.declare(engine())
    await stage.grant(0)
    pid = (await stage.ready()).replicas[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    observed = await stage.until(failed("Crashed"))
    assert "SIGKILL" in observed.message
    again = (await stage.ready()).replicas[0]
    assert again.pid != pid


@pytest.mark.slow
async def test_new_revision_starts_at_once(stage: Stage) -> None:
    """A mended declaration does not wait for the back-off of the broken one."""
    await stage.declare(engine("--exit", 1))
    await stage.grant(0)
    await stage.until(failed("ExitedWhileStarting", 2))
    await stage.declare(engine(), revision=2, generation=2)
    await stage.grant(0, revision=2)
    observed = await stage.ready()
    assert (observed.replicas[0].replica, observed.failures, observed.reason) == ("echo-r2-0", 0, "")


async def test_too_much_memory(stage: Stage) -> None:
    """A replica that uses more memory than it was granted is killed, and the reason names both numbers."""
    await stage.declare(engine("--eat", 200))
    await stage.grant(0, resources=Resources(memory_bytes=100 << 20))
    observed = await stage.until(failed("OOMKilled"))
    assert "resources.memory allows 104857600" in observed.message


@pytest.mark.slow
async def test_unresponsive_is_replaced(stage: Stage) -> None:
    """A suspected replica that answers is left alone; one that does not is killed and started anew."""
    await stage.declare(engine())
    await stage.grant(0)
    pid = (await stage.ready()).replicas[0].pid
    assert pid is not None
    suspicion = ReplicaSuspected(model="echo", replica="echo-r1-0", reason="request past its deadline")
    await stage.say(suspicion)
    os.kill(pid, signal.SIGSTOP)
    await stage.say(suspicion)
    observed = await stage.until(failed("Unresponsive"))
    assert "request past its deadline" in observed.message
    await until_dead([pid], 1.0)
    assert (await stage.ready()).replicas[0].pid != pid


async def test_a_start_with_a_bug(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that breaks in a way nobody thought of is a failed start of that model; all others go on."""

    async def broken(order: object) -> ReplicaProcess:
        raise RuntimeError("a bug")

    await stage.declare(engine(), model="other")
    await stage.grant(0, model="other")
    await stage.ready(model="other")
    with monkeypatch.context() as patched:
        patched.setattr(starting, "start_process", broken)
        await stage.declare(engine())
        await stage.grant(0)
        observed = await stage.until(failed("CannotStart"))
        assert "a bug" in observed.message
    await stage.ready()
    assert (await stage.observed("other")).replicas[0].state is S.READY


async def test_suspect_that_crashed(stage: Stage) -> None:
    """A replica that is suspected because it crashed fails with its end, not as one that does not answer."""
    await stage.declare(engine())
    await stage.grant(0)
    pid = (await stage.ready()).replicas[0].pid
    assert pid is not None
    suspicion = ReplicaSuspected(model="echo", replica="echo-r1-0", reason="could not be reached")
    os.kill(pid, signal.SIGKILL)
    await stage.say(suspicion)
    observed = await stage.until(lambda state: state.failures == 1)
    assert observed.reason == "Crashed"
    assert "SIGKILL" in observed.message


async def test_suspect_that_answers_stays(stage: Stage) -> None:
    """A suspicion alone kills nobody."""
    await stage.declare(engine())
    await stage.grant(0)
    pid = (await stage.ready()).replicas[0].pid
    for _ in range(3):
        await stage.say(ReplicaSuspected(model="echo", replica="echo-r1-0", reason="connection reset"))
    await stage.say(ReplicaSuspected(model="echo", replica="echo-r1-7", reason="never was"))
    await stage.declare(engine(), model="other")
    await stage.grant(0, model="other")
    await stage.ready(model="other")  # long enough for three checks
    assert (await stage.observed()).replicas[0].pid == pid


async def test_port_is_taken(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that finds its port taken is started on another one at once, which counts as no failure."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        given = iter([port])
        choose = Ports.choose
        monkeypatch.setattr(Ports, "choose", lambda ports: next(given, None) or choose(ports))
        await stage.declare(engine())
        await stage.grant(0)
        observed = await stage.ready()
    assert observed.failures == 0
    assert observed.replicas[0].address != f"127.0.0.1:{port}"
    assert stage.cluster.stats().starts == 1


async def test_stuck_shim_is_cleared_away(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica whose shim is stopped, so that it hears no order, is stopped all the same."""
    monkeypatch.setattr(replica, "ABANDON", 0.1)
    await stage.declare(engine())
    await stage.grant(0)
    pid = (await stage.ready()).replicas[0].pid
    assert pid is not None
    shim = psutil.Process(pid).parent()
    assert shim is not None
    shim.suspend()
    await stage.grant(0, drain=(0,))
    await stage.until(lambda state: states(state) == [S.DRAINING])
    await stage.say(ReplicaDrained(model="echo", replica="echo-r1-0"))
    await stage.gone()
    assert not alive(pid)
    assert not alive(shim.pid)


@pytest.mark.slow
async def test_one_models_trouble_is_its_own(stage: Stage) -> None:
    """While more starts hang than may go on at once, another model still gets up."""
    hanging = replace(HASTY, start_places=2, start_place_bound=Seconds(0.3))
    await stage.cluster.stop(Seconds(0.0))
    other = Stage(stage.folder.path.with_name("other"), hanging)
    await other.cluster.start()
    try:
        await other.declare(engine("--silent"), model="stuck")
        await other.grant(*range(4), model="stuck")
        await other.declare(engine())
        await other.grant(0)
        await other.ready()
        assert S.STARTING in states(await other.observed("stuck")) or (await other.observed("stuck")).failures
    finally:
        await other.close()


async def test_stale_processes_are_killed_first(tmp_path: Path, stage: Stage) -> None:
    """A start after kill -9 of everything but an engine finds that engine and kills it before it starts another."""
    await stage.declare(engine("--children", tmp_path / "pids"))
    await stage.grant(0)
    engine_pid = (await stage.ready()).replicas[0].pid
    pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
    assert engine_pid in pids
    survivors = [pid for pid in pids if alive(pid)]
    assert len(survivors) == 3
    second = Stage(tmp_path / "elsewhere")
    second.cluster._folder = replace(second.folder, path=stage.folder.path)  # as if it had the folder of the first
    await second.cluster.start()
    try:
        assert second.cluster.stats().stale_killed >= 4
        assert not any(alive(pid) for pid in pids)
    finally:
        await second.close()


@pytest.mark.slow
async def test_healthy_but_generates_nothing(tmp_path: Path) -> None:
    """A suspect that is healthy, has slots free and does not answer one token is replaced; a busy one is left alone."""
    stage = Stage(tmp_path / "data", replace(HASTY, suspect_token_bound=Seconds(0.5)))
    await stage.cluster.start()
    stuck, running = tmp_path / "stuck", tmp_path / "running"
    running.write_text("4")
    try:
        await stage.declare(engine("--stuck-when", stuck, "--running", running, busyPath="/running"))
        await stage.grant(0)
        pid = (await stage.ready()).replicas[0].pid
        stuck.touch()
        suspicion = ReplicaSuspected(model="echo", replica="echo-r1-0", reason="a request used up its total time")
        await stage.say(suspicion)
        await stage.clock.sleep_until(Instant(stage.clock.now() + 1.0))
        assert (await stage.observed()).replicas[0].pid == pid
        running.write_text("1")
        await stage.say(suspicion)
        observed = await stage.until(failed("Unresponsive"))
        assert "no answer to a one-token request within 0.5 s" in observed.message
    finally:
        await stage.close()


@pytest.mark.slow
async def test_log_cannot_be_written_for_a_while(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the log is full replicas serve and crashed ones are started again; afterwards all is told."""
    await stage.declare(engine())
    await stage.grant(0)
    pid = (await stage.ready()).replicas[0].pid
    assert pid is not None

    async def full(_: object) -> tuple[Position, ...]:
        raise LogUnavailable("disk full")

    with monkeypatch.context() as broken:
        broken.setattr(stage.log, "append", full)
        os.kill(pid, signal.SIGKILL)
        while stage.cluster.stats().starts < 2 or not stage.cluster.stats().ready:
            await stage.clock.sleep_until(Instant(stage.clock.now() + 0.02))
        assert stage.cluster.stats().failed_appends > 0
        assert (await stage.observed()).replicas[0].pid == pid  # nobody could be told
    observed = await stage.until(lambda state: bool(state.replicas) and state.replicas[0].pid != pid)
    assert states(observed) == [S.READY]
