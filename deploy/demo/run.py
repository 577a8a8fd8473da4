"""`relume demo`: runs the story on a real model, tells it in the terminal, writes the report."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
from rich.console import Console
from rich.table import Table

from deploy.demo import lending, report
from deploy.demo.model import ModelUnavailable, cached_path, ensure_model
from deploy.demo.scenario import MODEL, Story, StoryFailed, declaration
from deploy.demo.server import Server, ServerFailed
from deploy.demo.summary import Lent, Summary, phase_names, seconds
from deploy.demo.traffic import ChatClient
from deploy.demo.watch import PhaseChange, Watch
from events.clock import SystemClock

DEADLINE = 600.0
"""Seconds that the whole demo may take, the download of the model not counted."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Where the report goes, and which model (None: the small one, fetched when needed)."""

    out: Path
    weights: Path | None = None


def run(options: DemoOptions) -> int:
    """Run the demo; 0 when all was answered, the model grew and went back to zero, and training lost no step."""
    console = Console(highlight=False)
    if importlib.util.find_spec("xllamacpp") is None:
        return _give_up("llama.cpp is not installed; install it with: pip install 'relume[llamacpp]'")
    try:
        weights = options.weights or _small_model(console)
        summary = asyncio.run(_run(console, weights.resolve()))
    except (ModelUnavailable, ServerFailed, StoryFailed) as error:
        return _give_up(str(error))
    except TimeoutError:
        return _give_up(f"not done within {DEADLINE:.0f} s")
    _show(console, summary)
    page = report.write(summary, options.out)
    console.print(f"\nReport: [bold]{page}[/bold] (chart.svg and summary.json beside it)", soft_wrap=True)
    whole = summary.failed == 0 and summary.seconds_to_zero is not None and summary.most_replicas > 1
    kept = summary.lent is not None and summary.lent.same_curve
    return 0 if whole and kept else 1


def _give_up(why: str) -> int:
    Console(stderr=True).print(f"relume demo: {why}", style="red", markup=False, highlight=False, soft_wrap=True)
    return 1


def _small_model(console: Console) -> Path:
    if not cached_path().is_file():
        console.print(f"The small model (98 MB) is fetched once, to {cached_path()} …", markup=False, soft_wrap=True)
    return ensure_model(sys.stdout if console.is_terminal else None)


async def _run(console: Console, weights: Path) -> Summary:
    """Both acts, each on a relume of its own."""
    clock, terminal = SystemClock(), _Terminal(console)
    async with asyncio.timeout(DEADLINE):
        async with _relume(console, lambda _: declaration(weights)) as (server, session, _):
            client = ChatClient(session, server.gateway_url, MODEL, clock)
            watch = Watch(session, server.admin_url, MODEL, clock)
            summary = await Story(session, client, watch, terminal).tell(clock, server.admin_url)
        declared = functools.partial(lending.declarations, weights)
        async with _relume(console, declared, "--gpus", "1") as (server, session, folder):
            client = ChatClient(session, server.gateway_url, MODEL, clock)
            lent = await lending.Lending(client, session, server.admin_url, terminal).tell(folder)
    return replace(summary, lent=lent)


@asynccontextmanager
async def _relume(
    console: Console, declared: Callable[[Path], str], *more: str
) -> AsyncIterator[tuple[Server, aiohttp.ClientSession, Path]]:
    """A running relume with what is declared in a folder of its own, and a session to ask it with."""
    folder = Path(tempfile.mkdtemp(prefix="relume-demo-"))
    manifest = folder / "declared.yaml"
    manifest.write_text(declared(folder), encoding="utf-8")
    server = Server(folder, ("-f", str(manifest), *more))
    try:
        await server.start()
        console.print(f"gateway {server.gateway_url}   admin {server.admin_url}", style="dim")
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            yield server, session, folder
    finally:
        await server.stop()
        shutil.rmtree(folder, ignore_errors=True)


class _Terminal:
    """Tells the story line by line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._in_text = False
        self._last_level = ""

    def chapter(self, title: str, text: str) -> None:
        self._end_text()
        self._console.print(f"\n[bold]{title}.[/bold] {text}")

    def phase(self, change: PhaseChange) -> None:
        self._end_text()
        what = f"{change.state.lower()}{f', {change.phase}' if change.phase else ''}"
        self._console.print(f"  {change.at:6.2f} s  {change.replica:<16} {what}", style="cyan", highlight=False)

    def text(self, piece: str) -> None:
        if not self._in_text:
            self._console.print("  ", end="")
            self._in_text = True
        self._console.print(piece, end="", markup=False, highlight=False, soft_wrap=True)

    def note(self, text: str) -> None:
        self._end_text()
        self._console.print(f"  {text}", style="yellow")

    def level(self, status: dict[str, Any]) -> None:
        line = (
            f"{status['runningRequests'] or 0} running, {status['heldRequests'] or 0} held, "
            f"{status['readyReplicas']} ready, {status['startingReplicas']} starting (wish {status['wish']})"
        )
        if line != self._last_level:
            self._last_level = line
            self._console.print(f"            {line}", style="dim", highlight=False)

    def _end_text(self) -> None:
        if self._in_text:
            self._console.print()
            self._in_text = False


def _show(console: Console, summary: Summary) -> None:
    clients = Table("", "requests", "p50", "p95", "p99", "worst", title="\nWhat clients saw", title_justify="left")
    for name, row in (
        ("first token, warm", summary.warm_first_token),
        ("first token, burst", summary.burst_first_token),
        ("held, burst", summary.burst_held),
    ):
        clients.add_row(name, str(row.count), *(seconds(value) for value in (row.p50, row.p95, row.p99, row.worst)))
    console.print(clients)
    names = phase_names(summary.starts)
    table = Table("replica", *names, "in all", title="Starts, by phase", title_justify="left")
    for start in summary.starts:
        table.add_row(start.replica, *(seconds(start.phases.get(name)) for name in names), seconds(start.total))
    console.print(table)
    console.print(
        f"From zero to the first token: [bold]{seconds(summary.cold.first_token)}[/bold]. "
        f"{summary.answered} requests answered, {summary.failed} failed; at most {summary.most_replicas} replicas and "
        f"{summary.most_held} held; back to zero {seconds(summary.seconds_to_zero)} after the last answer.",
        soft_wrap=True,
    )
    if summary.lent is not None:
        _show_lent(console, summary.lent)
    for title, sentences in summary.explanations.items():
        console.print(f"\n[bold]{title}[/bold]")
        for sentence in sentences:
            console.print(f"  {sentence}", style="dim", markup=False, soft_wrap=True)
    for failure in summary.failures:
        console.print(f"  failed: {failure}", style="red", markup=False, soft_wrap=True)


def _show_lent(console: Console, lent: Lent) -> None:
    curve = "the same losses as an uninterrupted run" if lent.same_curve else "NOT the losses of an uninterrupted run"
    console.print(
        f"The only GPU, taken from training: first token after [bold]{seconds(lent.first_token)}[/bold]; saved at step "
        f"{lent.saved_step}, went on at step {lent.resumed_step}, {curve}.",
        soft_wrap=True,
    )
    for sentence in lent.sentences:
        console.print(f"  {sentence}", style="dim", markup=False, soft_wrap=True)
