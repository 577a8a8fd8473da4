"""`relume gateway`, `autoscaler` and `cluster`: what they refuse, and which options they take."""

from __future__ import annotations

import click
import pytest

from deploy.cli.main import run
from deploy.cli.parts import autoscaler, cluster, gateway
from deploy.cli.up import up
from deploy.settings.settings import Settings

PARTS = {"gateway": gateway, "autoscaler": autoscaler, "cluster": cluster}


@pytest.mark.parametrize("role", PARTS)
@pytest.mark.parametrize("events", [None, "memory:", "sqlite:/tmp/x.db"])
def test_a_log_of_one_process_is_refused(
    role: str, events: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong use, with what to give instead, and that one process does it all with such a log."""
    monkeypatch.delenv("RELUME_EVENTS", raising=False)
    assert run([role] if events is None else [role, "--events", events]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"relume {role} is one process of several" in told
    assert "give --events kafka://HOST:PORT or set RELUME_EVENTS" in told
    assert "relume up" in told
    assert (events or "--events is not given") in told


def test_the_environment_is_read_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As everywhere."""
    monkeypatch.setenv("RELUME_EVENTS", "memory:")
    assert run(["gateway"]) == 2
    assert "--events is memory:" in capsys.readouterr().err


def options(command: click.Command) -> set[str]:
    return {str(parameter.name) for parameter in command.params if isinstance(parameter, click.Option)} - {"help"}


def test_each_takes_its_own_options_and_those_of_all() -> None:
    """Together they take what `relume up` takes, and nothing else; a port that a part has not it does not take."""
    taken = {role: options(command) for role, command in PARTS.items()}
    assert set.union(*taken.values()) - {"files"} == set(Settings.model_fields) == options(up) - {"files"}
    shared = set.intersection(*taken.values())
    assert shared >= {"events", "node_name", "data_dir", "admin_port", "log_level", "kafka_partitions", "events_age"}
    only = {
        name: {role for role in PARTS if name in taken[role]} for name in ("inference_reply_topics", "kafka_clusters")
    }
    assert only == {"inference_reply_topics": {"gateway"}, "kafka_clusters": {"autoscaler"}}, (
        "what has no effect is not taken"
    )
    assert taken["gateway"] >= {"gateway_port", "hold_max_requests", "drain_bound", "access_log"}
    assert taken["cluster"] >= {"gpus", "cpu", "memory", "adopt_within", "drain_bound", "files"}
    assert not taken["autoscaler"] & {"gateway_port", "gpus", "drain_bound", "access_log", "adopt_within"}
    assert not taken["gateway"] & {"gpus", "adopt_within"}
    assert not taken["cluster"] & {"gateway_port", "access_log"}


@pytest.mark.parametrize("role", PARTS)
def test_help_has_examples(role: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Which run as they are."""
    assert run([role, "--help"]) == 0
    assert f"relume {role} --events kafka://" in capsys.readouterr().out
