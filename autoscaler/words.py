"""Numbers, spans and instants as people read them."""

from __future__ import annotations

from events.units import format_duration, format_instant


def clock_time(instant: float, near: float) -> str:
    """``18:53:42 UTC``; with its date where that is another than that of `near`: ``2026-12-01 18:53:42 UTC``."""
    day, clock = format_instant(instant)[:10], format_instant(instant)[11:19] + " UTC"
    return clock if day == format_instant(near)[:10] else f"{day} {clock}"


def span(seconds: float) -> str:
    """A duration, to the millisecond below a second and the tenth above: ``250ms``, ``1.2s``, ``5m``."""
    return format_duration(round(seconds, 3 if seconds < 1 else 1))


def number(amount: float) -> str:
    """At most two decimals, none when there are none: ``4``, ``3.25``."""
    return f"{round(amount, 2):g}" if amount < 1e6 else f"{amount:.0f}"


def percent(part: float) -> str:
    """``12.3 %``; of less than one as many digits as tell it from none: ``0.0099 %``."""
    hundred = 100.0 * part
    return f"{hundred:.3g} %" if hundred >= 1.0 or not hundred else f"{hundred:.2g} %"


def replicas(count: int) -> str:
    """``1 replica``, ``3 replicas``."""
    return f"{count} replica" if count == 1 else f"{count} replicas"


def requests(count: int) -> str:
    """``1 request``, ``3 requests``."""
    return f"{count} request" if count == 1 else f"{count} requests"


def times(count: int) -> str:
    """``once``, ``3 times``."""
    return "once" if count == 1 else f"{count} times"
