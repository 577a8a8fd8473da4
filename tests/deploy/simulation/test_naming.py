"""Policies as they are typed."""

from __future__ import annotations

import pytest

from autoscaler.core.grains.histogram import HybridHistogram
from autoscaler.core.grains.peers import Concurrency, Hpa, Keda, KeepAlive, Knative
from autoscaler.core.grains.policy import Relume, RelumeByMemory
from deploy.simulation.budgeting import RelumeWithin
from deploy.simulation.naming import BadPolicy, Foreseeing, read_policy
from deploy.simulation.own import OwnPolicy
from events.units import Seconds


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("relume", RelumeByMemory()),
        ("relume:idleGb=28s", RelumeByMemory(Seconds(28.0))),
        ("relume:coldStartCost=300s", Relume(Seconds(300.0))),
        ("relume(5m)", Relume(Seconds(300.0))),
        ("relume:budget=0.96", RelumeWithin(0.96)),
        ("relume:budget=1", RelumeWithin(1.0, Seconds(60.0))),
        ("relume:budget=0.6,keepAlive=5m", RelumeWithin(0.6, Seconds(300.0))),
        ("keepalive(5m)", KeepAlive(Seconds(300.0))),
        ("keepalive:keep=1h30m", KeepAlive(Seconds(5400.0))),
        ("kpa", Knative()),
        ("kpa:stableWindow=2m,grace=0", Knative(Seconds(120.0), Seconds(0.0))),
        ("keda", Keda()),
        ("hpa", Hpa()),
        ("concurrency(1m)", Concurrency(Seconds(60.0))),
        ("hybrid-histogram", HybridHistogram()),
        ("oracle", Foreseeing()),
        ("my.own.module:hold", OwnPolicy("my.own.module:hold")),
    ],
)
def test_what_is_meant(text: str, meant: object) -> None:
    """A name, a value, options, or a path."""
    assert read_policy(text) == meant


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "NAME(value)"),
        ("nonsense", "no policy 'nonsense'; one of relume, keepalive"),
        ("keepalive", "write keepalive(5m)"),
        ("keepalive()", "'' is not a duration"),
        ("keepalive(5)", "'5' is not a duration"),
        ("oracle(5m)", "oracle takes no value"),
        ("relume:cost=5s", "no option 'cost'; it has coldStartCost, idleGb, budget, keepAlive"),
        ("relume:coldStartCost=5s,idleGb=5s", "leave the others out"),
        ("relume:budget=0.9,idleGb=5s", "leave the others out"),
        ("relume:budget=0.9,budget=1", "sets budget twice"),
        ("relume:budget=0", "a budget is a share"),
        ("relume:budget=5m", "'5m' is not a number such as 0.96"),
        ("relume:budget=-1", "'-1' is not a number"),
        ("relume:budget=inf", "'inf' is not a number"),
        ("relume:keepAlive=5m", "write relume:budget=0.6,keepAlive=5m"),
        ("kpa:grace=1s,grace=2s", "sets grace twice"),
        ("kpa:grace=1s,", "no option ''"),
        ("hybrid-histogram:bins=5m", "it has none"),
        ("my.module:", "module.path:function"),
    ],
)
def test_what_cannot_be_meant(text: str, said: str) -> None:
    """It says what would be right."""
    with pytest.raises(BadPolicy) as raised:
        read_policy(text)
    assert said in str(raised.value)
