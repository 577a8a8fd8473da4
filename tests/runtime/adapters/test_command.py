"""The command engine: placeholders, probes, abilities."""

from __future__ import annotations

import json
import sys

import pytest
from pydantic import ValidationError

from events.names import ModelName, ReplicaName
from runtime.adapters.command import Command, CommandOptions, Sleeping
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


SERVE = ["/opt/env/bin/vllm", "serve", "{weights}", "--port", "{port}"]


@pytest.mark.parametrize("command", [SERVE, ["{python}", "-m", "vllm.entrypoints.openai.api_server", "{port}"]])
def test_a_vllm_that_sleeps_must_give_its_memory_back(command: list[str]) -> None:
    """Without the flag it would say that it sleeps, and keep the memory; a file or a script may have the flag."""
    with pytest.raises(ValidationError, match="--enable-sleep-mode"):
        CommandOptions(command=tuple(command), sleep=Sleeping.VLLM)
    for more in (["--enable-sleep-mode"], ["--config", "vllm.yaml"]):
        assert CommandOptions(command=(*command, *more), sleep=Sleeping.VLLM)
    assert CommandOptions(command=tuple(command))
    assert CommandOptions(command=("sh", "serve.sh", "{port}"), sleep=Sleeping.VLLM)


@pytest.mark.parametrize(("adapters", "levels"), [((), [1, 2]), ((("sql", "/w/sql"),), [1])])
def test_adapters_are_not_lost_in_sleep(adapters: tuple[tuple[str, str], ...], levels: list[int]) -> None:
    """Level 2 would drop them with the weights, and the one token of the model would not show it."""
    options = {"command": [*SERVE, "--enable-sleep-mode", "{adapters}"], "sleep": "vllm"}
    wanted = LaunchRequest(
        ModelName("m"), ReplicaName("m-1"), "127.0.0.1", 4000, 2, options=options, adapters=adapters
    )  # fmt: skip
    assert [way.level for way in Command().abilities(wanted).sleeps] == levels
