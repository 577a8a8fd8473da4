"""The command engine: placeholders, probes, abilities."""

from __future__ import annotations

import json
import sys

import pytest
from pydantic import ValidationError

from events.names import ModelName, ReplicaName
from runtime.adapters.command import Command, CommandOptions
from runtime.core.policy import Cancels
from runtime.ports import LaunchRequest


def wanted(weights: str = "/w", gpus: tuple[str, ...] = ("0", "3"), **options: object) -> LaunchRequest:
    return LaunchRequest(
        model=ModelName("llama"), replica=ReplicaName("llama-1"), host="127.0.0.1", port=4000, slots=8,
        weights=weights, gpus=gpus, options={"command": ["serve", "{port}"], **options},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("part", "filled"),
    [
        ("{host}:{port}", "127.0.0.1:4000"),
        ("--max-num-seqs={slots}", "--max-num-seqs=8"),
        ("{weights}/x", "/w/x"),
        ("{model}.{replica}", "llama.llama-1"),
        ("{gpus} of {gpu_count}", "0,3 of 2"),
        ("{python}", sys.executable),
        ("{{port}}", "{port}"),
        ('{"running":10}', '{"running":10}'),
        ("{}", "{}"),
        ("a b", "a b"),
    ],
)
def test_placeholders_are_filled_in_command_and_environment(part: str, filled: str) -> None:
    """JSON and doubled braces stay; no shell splits an argument."""
    launch = Command().launch(wanted(command=["serve", "{port}", part], env={"A": part}))
    assert launch.argv == ("serve", "4000", filled)
    assert launch.env == {"A": filled}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"command": ["serve", "{prt}", "{port}"]}, "did you mean {port}?"),
        ({"command": ["serve", "{port}"], "env": {"A": "{sluts}"}}, "did you mean {slots}?"),
        ({"command": ["serve", "{zzzzzz}", "{port}"]}, "there are host, port"),
        ({"command": ["serve"]}, "names no {port}"),
        ({"command": ["serve", "{{port}}"]}, "names no {port}"),
        ({"command": []}, "at least 1 item"),
        ({"command": [" ", "{port}"]}, "name is empty"),
        ({"command": "serve {port}"}, "tuple"),
        ({"command": ["serve", "{port}"], "healthPath": "health"}, "pattern"),
    ],
)
def test_wrong_options_say_what_and_how(options: dict[str, object], said: str) -> None:
    """With the nearest placeholder."""
    with pytest.raises(ValidationError) as caught:
        CommandOptions.model_validate(options)
    assert said in str(caught.value)


def test_the_port_may_come_by_environment_only() -> None:
    """Some servers read nothing else."""
    launch = Command().launch(wanted(command=["serve"], env={"PORT": "{port}"}))
    assert (launch.argv, launch.env) == (("serve",), {"PORT": "4000"})


def test_weights_that_the_command_names_must_be_declared() -> None:
    """An empty argument would be a puzzle."""
    with pytest.raises(ValueError, match=r"spec\.weights\.uri"):
        Command().launch(wanted(weights="", command=["serve", "{port}", "{weights}"]))


def test_the_probe_is_one_token_unless_told_otherwise() -> None:
    """Deterministic, in the model's own name."""
    probe = Command().probe(wanted())
    assert (probe.health_path, probe.warmup_path) == ("/health", "/v1/completions")
    assert json.loads(probe.warmup_body) == {"model": "llama", "prompt": "1", "max_tokens": 1, "temperature": 0}
    other = Command().probe(wanted(healthPath="/ready", warmupPath="/v1/embeddings", warmupBody={"input": "1"}))
    assert (other.health_path, other.warmup_path, json.loads(other.warmup_body)) == (
        "/ready",
        "/v1/embeddings",
        {"input": "1"},
    )


def test_abilities_are_what_the_user_says() -> None:
    """By default that streams are cancelled, and nothing of load."""
    assert Command().abilities(wanted()).cancels is Cancels.STREAMS
    told = Command().abilities(wanted(cancels="never", busyPath="/busy", metricsPath="/metrics"))
    assert (told.cancels, told.busy_path, told.metrics_path) == (Cancels.NEVER, "/busy", "/metrics")
