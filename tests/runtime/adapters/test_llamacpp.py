"""The llamacpp engine's command, probes and checks."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pydantic import ValidationError

from events.names import ModelName, ReplicaName
from runtime.adapters.llamacpp import LlamaCpp, LlamaCppOptions
from runtime.core.policy import Cancels
from runtime.engines.llamacpp_server import parser
from runtime.ports import LaunchRequest


def wanted(weights: str = "/w.gguf", slots: int = 2, gpus: tuple[str, ...] = (), **options: object) -> LaunchRequest:
    return LaunchRequest(
        model=ModelName("m"), replica=ReplicaName("m-1"), host="127.0.0.1", port=4000, slots=slots, weights=weights,
        gpus=gpus, options=options,
    )  # fmt: skip


def flags(request: LaunchRequest) -> dict[str, object]:
    """What the server program reads from the command."""
    argv = LlamaCpp().launch(request).argv
    return vars(parser().parse_args(argv[argv.index("runtime.engines.llamacpp_server") + 1 :]))


def test_the_server_program_understands_the_command() -> None:
    """With the defaults: 2048 tokens a slot, one thread a replica."""
    read = flags(wanted())
    assert (read["weights"], read["host"], read["port"], read["alias"]) == ("/w.gguf", "127.0.0.1", 4000, "m")
    assert (read["slots"], read["context_per_slot"], read["threads"]) == (2, 2048, 1)
    assert (read["pooling"], read["no_mmap"], read["prompt_cache_mib"]) == (None, False, 0)


@pytest.mark.parametrize(
    ("gpus", "option", "layers"), [((), None, 0), (("0",), None, None), (("0",), 5, 5), ((), 5, 5)]
)
def test_layers_go_to_gpus_that_the_model_has(gpus: tuple[str, ...], option: int | None, layers: int | None) -> None:
    """None to the server means as many as fit."""
    options: dict[str, object] = {} if option is None else {"gpuLayers": option}
    assert flags(wanted(gpus=gpus, **options))["gpu_layers"] == layers


@pytest.mark.parametrize(
    ("options", "path", "field"),
    [
        ({}, "/v1/completions", "prompt"),
        ({"embedding": True}, "/v1/embeddings", "input"),
        ({"embedding": True, "pooling": "rank"}, "/v1/rerank", "documents"),
    ],
    ids=["text", "embedding", "rank"],
)
def test_the_probe_asks_for_what_the_model_does(options: dict[str, object], path: str, field: str) -> None:
    """One token, one vector or one rank."""
    probe = LlamaCpp().probe(wanted(**options))
    assert (probe.health_path, probe.warmup_path) == ("/health", path)
    assert field in json.loads(probe.warmup_body)


def test_it_cancels_streams_only_and_tells_its_load() -> None:
    """As measured on llama.cpp."""
    abilities = LlamaCpp().abilities(wanted())
    assert (abilities.cancels, abilities.busy_path, abilities.metrics_path) == (Cancels.STREAMS, "/slots", "/metrics")


@pytest.mark.parametrize(
    ("request_", "said"),
    [(wanted(weights=""), "spec.weights.uri"), (wanted(slots=257), "at most 256"), (wanted(threads=0), "threads")],
)
def test_what_cannot_be_launched_names_its_field(request_: LaunchRequest, said: str) -> None:
    """Before a process is started."""
    with pytest.raises(ValueError, match=said):
        LlamaCpp().launch(request_)


def test_pooling_without_embedding_is_refused() -> None:
    """It would have no effect."""
    with pytest.raises(ValidationError, match="add embedding: true"):
        LlamaCppOptions.model_validate({"pooling": "cls"})


def test_weights_that_are_still_on_their_way() -> None:
    """The server hears where they and the adapters are; neither is in its command, which needs no weights then."""
    request = replace(wanted(weights=""), weights_from=7, adapters=(("one", ""),))
    read = flags(request)
    assert (read["weights"], read["weights_from"], read["lora"]) == (None, 7, [])
    assert LlamaCpp().abilities(request).awaits_weights
    assert LlamaCpp().probe(request) == LlamaCpp().probe(wanted())
