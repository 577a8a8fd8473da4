"""Models' own policies in their own process: whatever they do, the loop goes on and says what happened."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from autoscaler.adapters.own_process import OwnProcess
from autoscaler.asking import Question, answered, question_of
from autoscaler.core.decide import decide
from autoscaler.core.model import Decision, Memory, Reason
from autoscaler.core.policy import Mode
from autoscaler.loop import Autoscaler
from autoscaler.own import OwnPolicyFailed, own_policy
from autoscaler.record import replay
from autoscaler.settings import AutoscalerSettings
from events.adapters.memory import MemoryEventLog
from events.clock import SystemClock
from events.log import Query
from events.names import Topic
from events.types.decisions import WishDecided
from events.types.models import ModelDeclared
from events.units import Instant, Seconds
from events.writer import EventWriter
from tests.support.autoscaling import POLICY, T0, declared, seen, window

MODULE = """
import os
import subprocess
LEAKED = []
def three(snapshot, policy, now):
    print("what it prints is no answer")
    return 3
def never(snapshot, policy, now):
    while True:
        pass
def leaks(snapshot, policy, now):
    LEAKED.append(bytearray(64 << 20))
    return 3
def raises(snapshot, policy, now):
    raise RuntimeError("no")
def lies(snapshot, policy, now):
    return "many"
def leaves(snapshot, policy, now):
    os._exit(7)
def forks(snapshot, policy, now):
    os.fork()
    return 3
def leaves_a_child(snapshot, policy, now):
    if os.fork() == 0:
        while True:
            pass
    return 3
def starts(snapshot, policy, now):
    subprocess.Popen(["sleep", "600"])
    return 3
def closes(snapshot, policy, now):
    os.close(0)
    return 3
def floods(snapshot, policy, now):
    return [0] * 1_000_000
"""

NOW = Instant(T0)
BUSY = seen(wished=1, running=9, ready=1, demand={"stable": 9.0, "panic": 9.0, "last_active_at": T0})
WITHIN = 60.0


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user's module beside the working folder."""
    (tmp_path / "their_policies.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    return "their_policies"


@asynccontextmanager
async def process(answer_most: float = 20.0, memory_most: int = 1 << 30) -> AsyncIterator[OwnProcess]:
    """A process with these bounds, ended at the end."""
    made = OwnProcess(Seconds(answer_most), Seconds(WITHIN), memory_most)
    try:
        yield made
    finally:
        await made.close()


async def ask(made: OwnProcess, path: str) -> Decision | OwnPolicyFailed:
    """What the policy answers."""
    told: asyncio.Future[Decision | OwnPolicyFailed] = asyncio.get_running_loop().create_future()
    question = question_of(BUSY, replace(POLICY, name=path), NOW)
    assert question is not None
    made.ask(question, told.set_result)
    async with asyncio.timeout(WITHIN):
        return await told


async def test_it_answers_as_in_place(module: str) -> None:
    """The same decision as when it is called here, and taken again from its record; one process for all."""
    path = f"{module}:three"
    async with process() as made:
        answer = await ask(made, path)
        assert isinstance(answer, Decision)
        policy = replace(POLICY, name=path)
        whole = answered(BUSY, policy, NOW, answer)
        assert whole == decide(BUSY, policy, NOW, own_policy(path))
        assert await ask(made, path) == answer
        assert made.started == 1


@pytest.mark.parametrize(("function", "says"), [
    ("raises", "RuntimeError: no"), ("lies", "whole number"), ("leaves", "ended with status 7"),
    ("absent", "no function"), ("floods", "whole number"),
])  # fmt: skip
async def test_what_is_broken_says_how_and_harms_nobody(module: str, function: str, says: str) -> None:
    """An error, garbage, a process that goes: the next question is answered."""
    async with process() as made:
        answer = await ask(made, f"{module}:{function}")
        assert isinstance(answer, OwnPolicyFailed)
        assert says in str(answer)
        assert isinstance(await ask(made, f"{module}:three"), Decision)


def children() -> set[psutil.Process]:
    """Of this process: other tests may have left services running."""
    return set(psutil.Process().children())


async def test_one_that_never_returns_is_ended(module: str) -> None:
    """Its process is gone, and another answers the next question."""
    before = children()
    async with process(answer_most=1.0) as made:
        answer = await ask(made, f"{module}:never")
        assert isinstance(answer, OwnPolicyFailed)
        assert "within 1 s" in str(answer)
        assert children() <= before
    async with process() as made:
        assert isinstance(await ask(made, f"{module}:three"), Decision)


async def test_one_that_leaks_meets_its_bound_and_not_the_machine(module: str) -> None:
    """64 MiB more each time, of 400: it fails within a few questions, its process goes, and a new one begins empty."""
    async with process(memory_most=400 << 20) as made:
        answers = [await ask(made, f"{module}:leaks") for _ in range(8)]
        failed = [index for index, one in enumerate(answers) if isinstance(one, OwnPolicyFailed)]
        assert failed
        assert "memory" in str(answers[failed[0]])
        assert isinstance(answers[failed[0] + 1], Decision | OwnPolicyFailed)
        assert isinstance(await ask(made, f"{module}:three"), Decision)
        assert made.started >= 2


@pytest.mark.parametrize("function", ["leaks", "closes", "leaves"])
async def test_what_one_policy_breaks_is_no_failure_of_the_next(module: str, function: str) -> None:
    """Failures are counted by policy: whoever is asked of a process that is about to go is asked again of a new one."""
    async with process(memory_most=200 << 20) as made:
        for _ in range(3):
            await ask(made, f"{module}:{function}")
            assert isinstance(await ask(made, f"{module}:three"), Decision)


def theirs(process: psutil.Process) -> bool:
    """Whether it is a process of policies, or what one of them started."""
    words = " ".join(process.cmdline())
    return f"own_worker {os.getpid()}" in words or words == "sleep 600"


@pytest.mark.parametrize("function", ["forks", "leaves_a_child", "starts"])
async def test_what_a_policy_starts_ends_with_its_process(module: str, function: str) -> None:
    """It takes no question and holds up no end."""
    made = OwnProcess(Seconds(20.0), Seconds(WITHIN))
    try:
        for _ in range(3):
            assert isinstance(await ask(made, f"{module}:{function}"), Decision)
        started = [one for one in psutil.Process().children(recursive=True) if theirs(one)]
        assert started
        assert isinstance(await ask(made, f"{module}:three"), Decision)
    finally:
        async with asyncio.timeout(WITHIN):
            await made.close()
    assert not psutil.wait_procs(started, timeout=WITHIN)[1]


async def test_it_ends_with_whoever_asks(module: str) -> None:
    """Closed while a policy spins: no process is left."""
    made = OwnProcess(Seconds(WITHIN), Seconds(WITHIN))
    question = question_of(BUSY, replace(POLICY, name=f"{module}:never"), NOW)
    assert question is not None
    before = children()
    made.ask(question, lambda _: None)
    await _until(lambda: children() - before)
    (child,) = children() - before
    await made.close()
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


async def _until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(WITHIN):
        while not holds():  # noqa: ASYNC110 - another process makes it so
            await asyncio.sleep(0.05)


def test_what_is_not_asked() -> None:
    """A paused or deleted model asks nothing; in the mode recommend it is asked as if what it said were wished."""
    own = replace(POLICY, name="a:b")
    assert question_of(BUSY, replace(own, mode=Mode.PAUSED), NOW) is None
    assert question_of(replace(BUSY, deleted=True), own, NOW) is None
    would = replace(BUSY, memory=Memory(recommended=5))
    asked = question_of(would, replace(own, mode=Mode.RECOMMEND), NOW)
    assert asked == Question("a:b", replace(would, wished=5), replace(own, mode=Mode.RECOMMEND), NOW)


@asynccontextmanager
async def _world(
    policies: OwnProcess, *declarations: ModelDeclared
) -> AsyncIterator[tuple[MemoryEventLog, EventWriter]]:
    clock = SystemClock()
    log, settings = MemoryEventLog(clock), AutoscalerSettings(reasons_every=Seconds(0.2))
    writer = EventWriter("relume/gateway/g", clock)
    await log.append([writer.envelope(one) for one in declarations])
    autoscaler = Autoscaler(log, clock, EventWriter("relume/autoscaler/a", clock), settings, policies)
    await autoscaler.start()
    try:
        yield log, writer
    finally:
        await autoscaler.close()


async def _wishes(log: MemoryEventLog, model: str) -> list[WishDecided]:
    found = [record.envelope.data async for record in log.read(Query(Topic.DECISIONS, 0))]
    return [one for one in found if isinstance(one, WishDecided) and one.model == model]


async def test_the_loop_goes_on_beside_one_that_never_returns(module: str) -> None:
    """Three models wait at zero. One has a policy that spins, one a good one of its own, one relume's: all wake, the
    first by what stands when a policy fails, and after some failures relume decides for it."""
    models = {"bad": f"{module}:never", "good": f"{module}:three", "ours": "relume"}
    declarations = [declared(name, f"u-{name}", policy=policy) for name, policy in models.items()]
    async with _world(OwnProcess(Seconds(0.5), Seconds(WITHIN)), *declarations) as (log, writer):
        clock = SystemClock()

        def tell() -> None:
            for name in models:
                now = clock.now()
                edge = window(now - 0.01, now, 0, 1, model=name, uid=f"u-{name}", arrivals=1, edge=True)
                assert log.offer(writer.envelope(edge))

        async def wished(model: str, replicas: int) -> WishDecided:
            async with asyncio.timeout(WITHIN):
                while not (wishes := await _wishes(log, model)) or wishes[-1].replicas != replicas:
                    tell()  # what was told once is unknown after some seconds, and a process may take longer to start
                    await asyncio.sleep(0.2)
            return wishes[-1]

        tell()
        await wished("ours", 1)
        assert replay(await wished("good", 3)).replicas == 3
        assert Reason.POLICY_FAILED.value in (await wished("bad", 1)).reasons
        async with asyncio.timeout(WITHIN):
            while Reason.POLICY_REPLACED.value not in (await _wishes(log, "bad"))[-1].reasons:
                await asyncio.sleep(0.5)
                tell()
