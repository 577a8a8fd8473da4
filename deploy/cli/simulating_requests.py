"""`relume simulate` over a trace of single requests: the live policies on a simulated cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from deploy.cli.failing import Refused
from deploy.cli.output import say, show_json, show_table

if TYPE_CHECKING:
    from deploy.simulation.request_policies import Typed
    from deploy.simulation.request_replay import Outcome
    from deploy.simulation.requests import Part, RequestTrace
    from deploy.simulation.setting import Setting

FORMATS: Final = ("azure-llm", "mooncake", "servegen", "csv", "jsonl")


@dataclass(frozen=True, slots=True)
class Asked:
    """What was typed."""

    file: Path
    form: str
    policies: Sequence[str]
    settings: Sequence[str]
    seed: int
    jobs: int
    html: Path | None
    output: str
    part: Part


def simulate_requests(asked: Asked) -> int:
    """Replay and show."""
    setting, policies = read_setting(asked.settings, asked.seed), read_policies(asked.policies)
    check_policies(policies, setting)
    trace = read_trace(asked.file, asked.form, asked.seed, asked.part)
    outcomes = replayed(trace, policies, setting, asked.jobs)
    if asked.html is not None:
        from deploy.simulation.request_page import page_text  # noqa: PLC0415 - takes a fifth of a second to import

        write_page(asked.html, page_text(asked.file.name, outcomes))
    if asked.output == "json":
        show_json(_as_json(asked, trace, outcomes))
    else:
        show_table(*as_table(outcomes))
    return 0


def read_setting(pairs: Sequence[str], seed: int) -> Setting:
    """The simulated cluster; wrong use when it cannot be read."""
    from deploy.simulation import setting_text  # noqa: PLC0415 - the simulation takes a fifth of a second to import

    try:
        return setting_text.read_setting(pairs, seed)
    except setting_text.BadSetting as error:
        raise click.UsageError(f"--set {error}") from error


def read_policies(texts: Sequence[str]) -> list[Typed]:
    """The policies; wrong use when one cannot be read."""
    from deploy.simulation.naming import BadPolicy  # noqa: PLC0415 - as above
    from deploy.simulation.request_policies import read_typed  # noqa: PLC0415 - as above

    try:
        return [read_typed(text) for text in dict.fromkeys(texts)]
    except BadPolicy as error:
        raise click.UsageError(str(error)) from error


def check_policies(policies: Sequence[Typed], setting: Setting) -> None:
    """What the setting does not allow is wrong use, before anything is read; so is an own policy that is not there."""
    from autoscaler.own import OwnPolicyFailed, own_policy  # noqa: PLC0415 - as above
    from deploy.simulation.naming import BadPolicy  # noqa: PLC0415 - as above

    for typed in policies:
        try:
            typed.resolve(setting)
            with redirect_stdout(sys.stderr):  # what its module prints
                own_policy(typed.name)
        except BadPolicy as error:
            raise click.UsageError(str(error)) from error
        except OwnPolicyFailed as error:
            raise Refused(f"policy {error}", remedy="mend the function, or leave this --policy out") from error


def read_part(begin: str | None, length: str | None, thin: int) -> Part:
    """Of a trace; wrong use when it cannot be read."""
    from deploy.simulation.requests import Part  # noqa: PLC0415 - as above
    from events.units import parse_duration  # noqa: PLC0415 - as above

    try:
        return Part(
            begin=0.0 if begin is None else parse_duration(begin),
            length=None if length is None else parse_duration(length), thin=thin,
        )  # fmt: skip
    except ValueError as error:
        raise click.UsageError(f"--from, --for: {error}") from error


def read_trace(file: Path, form: str, seed: int, part: Part | None = None) -> RequestTrace:
    """The trace, or a refusal that says what is wrong with it."""
    from deploy.simulation.reading import BadTrace  # noqa: PLC0415 - as above
    from deploy.simulation.request_files import read_requests  # noqa: PLC0415 - as above
    from deploy.simulation.requests import WHOLE  # noqa: PLC0415 - as above

    try:
        return read_requests(file, form, seed, part or WHOLE)
    except BadTrace as error:
        raise Refused(str(error)) from error
    except OSError as error:
        raise unreadable(error) from error


def unreadable(error: OSError) -> Refused:
    """A file that the system does not give."""
    return Refused(f"{error.filename or 'the trace'} cannot be read: {error.strerror or error}")


@contextmanager
def replaying() -> Iterator[None]:
    """What users' own policies print while they are asked is no answer of ours: it goes to standard error. A process
    that was ended is said."""
    from deploy.simulation.spreading import ProcessDied  # noqa: PLC0415 - as above

    try:
        with redirect_stdout(sys.stderr):
            yield
    except ProcessDied as error:
        raise Refused(str(error), remedy="fewer --jobs need less memory; does a policy of your own end it?") from error


def replayed(trace: RequestTrace, policies: Sequence[Typed], setting: Setting, jobs: int) -> dict[str, Outcome]:
    """All policies, with a bar for people."""
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.progress import Progress  # noqa: PLC0415 - as above

    from deploy.simulation.request_replay import replay  # noqa: PLC0415 - as above

    console = Console(stderr=True)
    with replaying(), Progress(console=console, disable=not console.is_terminal, transient=True) as shown:
        bar = shown.add_task("requests", total=len(trace) * len(policies))
        outcomes = replay(trace, policies, setting, jobs, lambda more: shown.advance(bar, more))
    for name, one in outcomes.items():
        if one.figures.policy_failures:
            say(f"policy {name} failed {one.figures.policy_failures} times; its last wish stood, then relume decided")
    return outcomes


def as_table(outcomes: Mapping[str, Outcome]) -> tuple[list[str], list[list[str]]]:
    """A line a policy."""
    rows = []
    for name, outcome in outcomes.items():
        one = outcome.figures
        rows.append([
            name, f"{100 * one.within_slo:.2f} %", f"{one.gpu_seconds:.0f}", f"{one.idle_gpu_seconds:.0f}",
            f"{one.held_p99:.2f}", f"{one.activations}", f"{one.starts}", f"{one.most_replicas}", f"{one.flaps}",
            f"{one.decisions}",
        ])  # fmt: skip
    headers = [
        "POLICY",
        "WITHIN SLO",
        "GPU·s",
        "IDLE GPU·s",
        "HELD P99 s",
        "COLD",
        "STARTS",
        "MOST",
        "FLAPS",
        "DECISIONS",
    ]
    return headers, rows


def _as_json(asked: Asked, trace: RequestTrace, outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    from deploy.simulation.request_replay import as_json  # noqa: PLC0415 - as above

    return {"trace": trace_json(asked, trace), "policies": as_json(outcomes)}


def trace_json(asked: Asked, trace: RequestTrace) -> dict[str, Any]:
    """What was replayed."""
    return {
        "file": asked.file.name, "format": asked.form, "models": len(trace.names), "requests": len(trace),
        "seconds": round(trace.span, 3), "seed": asked.seed,
    }  # fmt: skip


def write_page(page: Path, text: str) -> None:
    """The page that was asked for."""
    try:
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Refused(f"{page} cannot be written: {error.strerror}", remedy="name another file") from error
    say(f"wrote {page}")
