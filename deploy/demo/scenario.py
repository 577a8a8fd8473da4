"""The demo's story against a running relume: zero, a cold start, warm answers, a burst, back to zero."""

from __future__ import annotations

import asyncio
import itertools
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import psutil

from deploy.demo.chart import Mark
from deploy.demo.summary import Start, Summary, failures, first_tokens, percentiles, seconds
from deploy.demo.traffic import Answer, ChatClient
from deploy.demo.watch import PhaseChange, Watch
from events.clock import Clock

MODEL = "smollm2"
SLOTS = 2
REPLICAS = 3
KEEP_ALIVE = 8.0
BURST_CLIENTS = 12
BURST_SECONDS = 25.0
ZERO_DEADLINE = 90.0
PAUSE_AFTER_FAILURE = 1.0
"""Seconds a client of the burst waits after a failure: refusals are quick, and asking at once would only flood."""
QUESTIONS = (
    "Why is the sky blue?", "Write a haiku about a lamp.", "Name three uses of copper.",
    "Explain a tide in one sentence.", "What does a gardener do in spring?", "Tell me a short joke.",
)  # fmt: skip


class StoryFailed(Exception):
    """The story cannot be told: not even the first request was answered. The message says why."""


class Teller(Protocol):
    """How the story is told while it happens."""

    def chapter(self, title: str, text: str) -> None:
        """A new part begins."""

    def phase(self, change: PhaseChange) -> None:
        """A replica went on."""

    def text(self, piece: str) -> None:
        """A piece of an answer came."""

    def note(self, text: str) -> None:
        """Something worth a line."""

    def level(self, status: dict[str, Any]) -> None:
        """The model's status changed."""


def declaration(weights: Path) -> str:
    """The demo model as a user would write it; quick windows, so that a few minutes are enough."""
    return f"""\
apiVersion: relume.dev/v1alpha1
kind: Model
metadata: {{name: {MODEL}}}
spec:
  engine: {{type: llamacpp}}
  weights: {{uri: {weights.as_uri()!r}}}
  resources: {{cpu: 0.5, memory: 512Mi}}
  slots: {SLOTS}
  scaling:
    minReplicas: 0
    maxReplicas: {REPLICAS}
    keepAlive: {KEEP_ALIVE:.0f}s
    stableWindow: 10s
    panicWindow: 2s
  coldStart: {{sla: 3s}}
"""  # no heartbeat: it would send the head of an answer before the time in the queue, which we report, is known


class Story:
    """One run of the demo; `tell` runs it and returns the figures."""

    def __init__(self, session: aiohttp.ClientSession, client: ChatClient, watch: Watch, teller: Teller) -> None:
        self._session = session
        self._client = client
        self._watch = watch
        self._teller = teller
        self._marks: list[Mark] = []
        self._answers: list[Answer] = []

    async def tell(self, clock: Clock, admin_url: str) -> Summary:
        """The whole story. A request that failed is counted and shown; StoryFailed when the first one did."""
        self._watch.on_change = self._teller.phase
        watchers = [
            asyncio.create_task(self._watch.sample_for_ever()),
            asyncio.create_task(self._watch.follow_phases()),
        ]
        try:
            cold = await self._wake(clock)
            warm = await self._warm()
            burst, grown = await asyncio.gather(self._burst(clock), self._why_grown(admin_url))
            why = {"Why it grew": grown} if grown else {}
            to_zero = await self._rest(clock)
            why["Why it went to zero"] = await self._explain(admin_url)
        finally:
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)
        return self._summary((cold, warm, burst), to_zero, why)

    def _mark(self, clock: Clock, text: str) -> None:
        self._marks.append(Mark(clock.now() - self._watch.began, text))

    async def _wake(self, clock: Clock) -> Answer:
        self._teller.chapter("Zero", "The model is declared and has no replica. One request comes.")
        await asyncio.sleep(1.0)
        self._mark(clock, "first request")
        answer = await self._client.ask(QUESTIONS[0], 40, self._teller.text)
        if not answer.ok:
            raise StoryFailed(f"the first request was not answered: {failures([answer])[0]}")
        self._answers.append(answer)
        return answer

    async def _warm(self) -> list[Answer]:
        self._teller.chapter("Warm", "The same client asks five times more.")
        answers = [await self._client.ask(question, 16) for question in QUESTIONS[1:6]]
        self._answers += answers
        median = seconds(percentiles(first_tokens(answers)).p50)
        self._teller.note(f"The first token comes after {median} (median).")
        return answers

    async def _burst(self, clock: Clock) -> list[Answer]:
        self._teller.chapter(
            "Burst",
            f"{BURST_CLIENTS} clients ask without a pause for {BURST_SECONDS:.0f} s; a replica has {SLOTS} slots.",
        )
        self._mark(clock, "burst")
        end = clock.now() + BURST_SECONDS
        answers: list[Answer] = []

        async def client(number: int) -> None:
            for turn in itertools.count(number):
                if clock.now() >= end:
                    return
                answer = await self._client.ask(QUESTIONS[turn % len(QUESTIONS)], 32)
                answers.append(answer)
                if not answer.ok:
                    await asyncio.sleep(PAUSE_AFTER_FAILURE)

        showing = asyncio.create_task(self._show_levels())
        try:
            await asyncio.gather(*(client(number) for number in range(BURST_CLIENTS)))
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)
        self._mark(clock, "burst ends")
        self._answers += answers
        return answers

    async def _rest(self, clock: Clock) -> float | None:
        self._teller.chapter("Rest", f"Nobody asks. After {KEEP_ALIVE:.0f} s of quiet the last replica goes.")
        began = clock.now()
        showing = asyncio.create_task(self._show_levels())
        try:
            gone = await self._watch.until(lambda status: status["replicas"] == 0, ZERO_DEADLINE)
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)
        if not gone:
            self._teller.note(f"The model did not go to zero within {ZERO_DEADLINE:.0f} s.")
            return None
        self._mark(clock, "zero")
        took = clock.now() - began
        await asyncio.sleep(1.0)
        return took

    async def _show_levels(self) -> None:
        while True:
            self._teller.level(await self._watch.status())
            await asyncio.sleep(0.5)

    async def _why_grown(self, admin_url: str) -> list[str]:
        """The explanation right after more than one replica was wished for; later ones tell other decisions."""
        more = await self._watch.until(lambda status: (status["wish"] or 0) > 1, BURST_SECONDS)
        return await self._explain(admin_url) if more else []

    async def _explain(self, admin_url: str) -> list[str]:
        async with self._session.get(f"{admin_url}/v1alpha1/models/{MODEL}/explain") as response:
            response.raise_for_status()
            return list((await response.json())["sentences"])

    def _summary(
        self, told: tuple[Answer, Sequence[Answer], Sequence[Answer]], to_zero: float | None,
        why: Mapping[str, Sequence[str]],
    ) -> Summary:  # fmt: skip
        cold, warm, burst = told
        samples = self._watch.samples
        return Summary(
            model="SmolLM2-135M-Instruct, Q4_1, llama.cpp",
            machine=f"{psutil.cpu_count()} cores, {platform.system()} {platform.machine()}",
            cold=cold,
            warm_first_token=percentiles(first_tokens(warm)),
            burst_first_token=percentiles(first_tokens(burst)),
            burst_held=percentiles([answer.held for answer in burst if answer.ok and answer.held is not None]),
            answered=sum(answer.ok for answer in self._answers),
            failed=sum(not answer.ok for answer in self._answers),
            starts=starts(self._watch.changes),
            most_replicas=max((sample.ready for sample in samples), default=0),
            most_held=max((sample.held for sample in samples), default=0),
            seconds_to_zero=to_zero,
            explanations=why,
            samples=samples,
            marks=self._marks,
            failures=failures(self._answers),
        )


def starts(changes: Sequence[PhaseChange]) -> list[Start]:
    """Each start from the changes of phase: a phase lasts until the next change of the same replica."""
    found: list[Start] = []
    open_since: dict[str, list[PhaseChange]] = {}
    for change in changes:
        seen = open_since.setdefault(change.replica, [])
        if change.state == "Starting":
            seen.append(change)
            continue
        if change.state == "Ready" and seen:
            phases: dict[str, float] = {}
            for here, following in itertools.pairwise([*seen, change]):
                phases[here.phase] = phases.get(here.phase, 0.0) + following.at - here.at
            found.append(Start(change.replica, phases, change.at - seen[0].at))
        open_since.pop(change.replica, None)
    return found
