"""A simulated cluster as it is typed: `KEY=VALUE`, any number of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from deploy.simulation.setting import Service, Setting, Starting
from events.types.replicas import MAX_REPLICAS
from events.units import Seconds, parse_duration


class BadSetting(ValueError):
    """It cannot be read. The message says what would be right."""


def read_setting(pairs: Sequence[str], seed: int) -> Setting:
    """The setting that is meant; what is not said has its default. Raises BadSetting."""
    setting = Setting(seed=seed)
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or key not in KEYS:
            raise BadSetting(f"{pair!r} is no setting; write KEY=VALUE, with one of {', '.join(KEYS)}")
        try:
            setting = KEYS[key](setting, value)
        except ValueError as error:
            raise BadSetting(f"{pair!r}: {error}") from error
    return setting


def _duration(value: str, *, zero: bool = True) -> Seconds:
    seconds = parse_duration(value)
    if not zero and seconds <= 0:
        raise ValueError("it must be longer than nothing")
    return seconds


def _count(value: str, least: int, most: int) -> int:
    if not (value.isascii() and value.isdigit() and least <= int(value) <= most):
        raise ValueError(f"write a whole number from {least} to {most}")
    return int(value)


def _part(value: str, most: float) -> float:
    number = float(value)
    if not 0.0 <= number <= most:
        raise ValueError(f"write a number from 0 to {most:g}")
    return number


def _curve(value: str) -> tuple[tuple[int, float], ...]:
    """``1:1,8:1.4,16:3``: requests at once, and how many times as long each takes."""
    points = []
    for text in value.split(","):
        running, colon, slower = text.partition(":")
        if not colon:
            raise ValueError("write such as 1:1,8:1.4,16:3: requests at once, and how many times as long each takes")
        points.append((_count(running, 1, 10_000), float(slower)))
    rising = all(one[0] < other[0] for one, other in pairwise(points))
    if not rising or not all(0.1 <= slower <= 1000.0 for _, slower in points):
        raise ValueError("requests at once must rise from point to point, and times be from 0.1 to 1000")
    return tuple(points)


def _nodes(value: str) -> tuple[int, ...]:
    """``4x8``: four nodes of eight GPUs; several kinds with ``+``."""
    nodes: list[int] = []
    for text in value.split("+"):
        count, times, gpus = text.partition("x")
        if not times:
            raise ValueError("write such as 4x8, or 4x8+2x4: nodes, and the GPUs of each")
        nodes += [_count(gpus, 1, 1024)] * _count(count, 1, 10_000)
    return tuple(nodes)


def _switch(value: str) -> bool:
    if value not in ("on", "off"):
        raise ValueError("write on or off")
    return value == "on"


Change = Callable[[Setting, str], Setting]


def _service(field: str) -> Change:
    def change(setting: Setting, value: str) -> Setting:
        service: Service = replace(setting.service, **{field: _duration(value)})  # type: ignore[arg-type] # durations
        return replace(setting, service=service)

    return change


def _starting(field: str, read: Callable[[str], float]) -> Change:
    def change(setting: Setting, value: str) -> Setting:
        starting: Starting = replace(setting.starting, **{field: read(value)})  # type: ignore[arg-type] # numbers
        return replace(setting, starting=starting)

    return change


KEYS: Final[Mapping[str, Change]] = {
    "slots": lambda setting, value: replace(setting, slots=_count(value, 1, 10_000)),
    "maxReplicas": lambda setting, value: replace(setting, max_replicas=_count(value, 1, MAX_REPLICAS)),
    "gpus": lambda setting, value: replace(setting, gpus=_count(value, 1, 1_000_000)),
    "gpusEach": lambda setting, value: replace(setting, gpus_each=_count(value, 1, 64)),
    "slo": lambda setting, value: replace(setting, slo=_duration(value, zero=False)),
    "maxWait": lambda setting, value: replace(setting, max_wait=_duration(value, zero=False)),
    "settles": lambda setting, value: replace(setting, settles=_duration(value)),
    "base": _service("base"),
    "prefill": _service("prefill"),
    "decode": _service("decode"),
    "crowding": lambda setting, value: replace(setting, service=replace(setting.service, crowding=_part(value, 10.0))),
    "curve": lambda setting, value: replace(setting, service=replace(setting.service, curve=_curve(value))),
    "sharing": lambda setting, value: replace(setting, sharing=_switch(value)),
    "nodes": lambda setting, value: replace(setting, nodes=_nodes(value)),
    "neighbours": lambda setting, value: replace(setting, neighbours=_part(value, 10.0)),
    "start": _starting("seconds", _duration),
    "spread": _starting("spread", lambda value: _part(value, 2.0)),
    "fails": _starting("fails", lambda value: _part(value, 1.0)),
}
"""What may be set, and how."""
