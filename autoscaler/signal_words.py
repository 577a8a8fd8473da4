"""Numbers from outside in sentences, from what a decision saw of them."""

from __future__ import annotations

from typing import Final

from autoscaler.core.model import SignalSeen, Snapshot
from autoscaler.core.policy import LagPolicy, ScalingPolicy
from autoscaler.words import number, replicas, span

OLD: Final = 5.0
"""Seconds from which on the age of a number is told, chosen: what is asked for at the usual pace is not news."""


def signal_sentences(snapshot: Snapshot, policy: ScalingPolicy) -> tuple[str, ...]:
    """One sentence for each number, with what it was and what it needs."""
    lags = {signal.name: signal.lag for signal in policy.signals}
    return tuple(_sentence(seen, lags.get(seen.name)) for seen in snapshot.signals)


def strongest(snapshot: Snapshot) -> str:
    """The name of the number that needs most; empty when none needs any."""
    needing = [(seen.need, seen.name) for seen in snapshot.signals if seen.need]
    return max(needing)[1] if needing else ""


def unknown(snapshot: Snapshot) -> tuple[str, ...]:
    """The names of the numbers that are not known, in whole or in part."""
    return tuple(seen.name for seen in snapshot.signals if seen.need is None or (seen.lag and seen.lag.unknown))


def _sentence(seen: SignalSeen, lag: LagPolicy | None) -> str:
    why = f" ({seen.error.rstrip('.')})" if seen.error else ""
    if seen.value is None or seen.age is None:
        return f"Signal {seen.name} has never been told{why}."
    if seen.need is None:
        return f"Signal {seen.name} was {number(seen.value)} {span(seen.age)} ago and has run out{why}."
    if seen.lag is not None and lag is not None:
        return _lag_sentence(seen, lag, why)
    at = "" if seen.target is None else f", at {number(seen.target)} a replica"
    ago = f" {span(seen.age)} ago" if seen.age >= OLD else ""
    return f"Signal {seen.name} was {number(seen.value)}{ago}{at}: {_needs(seen.need)}{why}."


def _lag_sentence(seen: SignalSeen, policy: LagPolicy, why: str) -> str:
    lag, value = seen.lag, seen.value or 0.0
    assert lag is not None
    text = f"Signal {seen.name}: group {policy.group} was {_records(value)} behind"
    if lag.standing > value:
        text += f" and {_records(lag.standing - value)} in partitions that stand still"
    text += f", in {lag.with_lag} of {_partitions(lag.partitions)}"
    if lag.unknown:
        text += f" ({lag.unknown} told nothing)"
    if lag.produced is not None:
        text += f"; {number(lag.produced)} a second came"
    if lag.consumed is not None:
        text += f" and {number(lag.consumed)} a second were done"
    return f"{text}. {_sized(seen, policy)}{why}."


def _sized(seen: SignalSeen, policy: LagPolicy) -> str:
    lag = seen.lag
    assert lag is not None
    if not seen.need:
        return "That needs no replica"
    if lag.drained and policy.drain_within is not None:
        rate = number(lag.per_replica or 0.0)
        how = f"To work it off within {span(policy.drain_within)} at {rate} records a second a replica"
    else:
        how = f"At {number(policy.target)} a replica"
    text = f"{how} it needs {replicas_of(max(1.0, lag.wanted))}"
    if lag.most is not None and lag.wanted > lag.most:
        what = "partitions with lag" if policy.limit_to_partitions_with_lag else "partitions"
        return f"{text}; more than {lag.most} {what} can keep busy, so {replicas_of(seen.need)}"
    if seen.need > lag.wanted and policy.even_distribution:
        return f"{text}; {replicas_of(seen.need)} share {_partitions(lag.partitions)} evenly"
    return text


def _records(count: float) -> str:
    return f"{number(count)} record" if count == 1 else f"{number(count)} records"


def _partitions(count: int) -> str:
    return f"{count} partition" if count == 1 else f"{count} partitions"


def replicas_of(amount: float) -> str:
    """A need, which may be a part of one."""
    return replicas(int(amount)) if amount == int(amount) else f"{number(amount)} replicas"


def _needs(amount: float) -> str:
    return f"that needs {replicas_of(amount)}" if amount else "that needs no replica"
