"""Options made of the settings of the process: one for each, with its words and its environment variable."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import click
from pydantic_core import PydanticUndefined

from deploy.settings.settings import Settings, SettingsRefused, flag, load_settings, variable
from events.units import write_duration, write_quantity

Function = Callable[..., Any]

KAFKA_OPTIONS: Final = tuple(
    name for name in Settings.model_fields if name.startswith("kafka_") and name != "kafka_clusters"
)
"""How the event log on Kafka is reached, and how its topics are made."""

KAFKA_ACCESS: Final = tuple(
    name for name in KAFKA_OPTIONS if name not in ("kafka_partitions", "kafka_replication", "kafka_create_topics")
)
"""How it is reached."""


def setting_options(names: Iterable[str]) -> Callable[[Function], Function]:
    """An option for each of these settings, in this order."""
    wanted = list(names)

    def add(function: Function) -> Function:
        for name in reversed(wanted):
            text = " ".join(str(Settings.model_fields[name].description or "").split())
            notes = [f"[default: {default}]"] if (default := _default(name)) else []
            notes.append(f"[env: {variable(name)}]")
            option = click.option(flag(name), name, metavar="VALUE", help=f"{text}  {' '.join(notes)}")
            function = option(function)
        return function

    return add


def settings_given(given: dict[str, str | None]) -> Settings:
    """The settings; click.UsageError tells every wrong one."""
    try:
        return load_settings(given)
    except SettingsRefused as refused:
        raise click.UsageError("\n".join(str(problem) for problem in refused.problems)) from refused


def _default(name: str) -> str:
    """The default as it is written on the command line; empty where the text says it, or there is none."""
    value = Settings.model_fields[name].default
    if value is None or value is PydanticUndefined or value == "":
        return ""
    if isinstance(value, float):
        return write_duration(value)
    return write_quantity(value) if name.endswith("bytes") else str(value)
