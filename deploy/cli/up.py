"""`relume up`: one option for each setting of the process, made of the settings themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import click
from pydantic_core import PydanticUndefined

from deploy.cli.commands import command
from deploy.cli.failing import Refused
from deploy.settings.settings import Settings, SettingsRefused, flag, load_settings, variable
from events.units import write_duration, write_quantity

FIRST: Final = ("data_dir", "gateway_port", "admin_port", "gpus", "events")
"""What is set most often stands first in the help."""


def _settings_options(function: Callable[..., Any]) -> Callable[..., Any]:
    names = [*FIRST, *[name for name in Settings.model_fields if name not in FIRST]]
    for name in reversed(names):
        field = Settings.model_fields[name]
        text = " ".join(str(field.description or "").split())
        notes = [f"[default: {default}]"] if (default := _default(name)) else []
        notes.append(f"[env: {variable(name)}]")
        option = click.option(flag(name), name, metavar="VALUE", help=f"{text}  {' '.join(notes)}")
        function = option(function)
    return function


def _default(name: str) -> str:
    """The default as it is written on the command line; empty where the text says it, or there is none."""
    value = Settings.model_fields[name].default
    if value is None or value is PydanticUndefined or value == "":
        return ""
    if isinstance(value, float):
        return write_duration(value)
    return write_quantity(value) if name.endswith("bytes") else str(value)


@command("up", (
    "relume up -f model.yaml",
    "relume up --data-dir ./data --gateway-port 9000 --admin-port 9001 --gpus 2",
    "relume up --events memory:             # keeps nothing; for trying things out",
))  # fmt: skip
@click.option(
    "-f", "--file", "files", multiple=True, metavar="FILE", help="Declare these models first; file or folder."
)
@_settings_options
def up(files: Sequence[str], **given: str | None) -> int:
    """Run relume in the foreground: gateway, autoscaler, allocator, local cluster and admin port in one process.

    Every option is also an environment variable; the command line stands before it. SIGTERM and Ctrl-C drain: held
    requests get 503, running streams finish within --drain-bound, then it ends with exit code 0.
    """
    try:
        settings = load_settings(given)
    except SettingsRefused as refused:
        raise click.UsageError("\n".join(str(problem) for problem in refused.problems)) from refused
    from deploy.compose.up import run  # noqa: PLC0415 - everything that runs; not for --help

    try:
        return run(settings, tuple(files))
    except SettingsRefused as refused:
        raise Refused("relume cannot start with these settings", why=str(refused)) from refused
