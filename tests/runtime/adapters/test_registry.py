"""Every engine type has an engine and options, and no option is dead."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pydantic import ValidationError

from events.names import ModelName, ReplicaName
from runtime.adapters.registry import engine_for, options_model
from runtime.ports import Engine, LaunchRequest
from runtime.spec import EngineType

BASE: Mapping[EngineType, Mapping[str, object]] = {
    EngineType.LLAMACPP: {},
    EngineType.SIMULATED: {"timeToFirstToken": "1s", "interTokenLatency": "1s"},
    EngineType.COMMAND: {"command": ["serve", "{port}"]},
}
CHANGES: Mapping[EngineType, Mapping[str, Mapping[str, object]]] = {
    EngineType.LLAMACPP: {
        "contextPerSlot": {"contextPerSlot": 512},
        "threads": {"threads": 3},
        "gpuLayers": {"gpuLayers": 7},
        "embedding": {"embedding": True},
        "pooling": {"embedding": True, "pooling": "cls"},
        "batchSize": {"batchSize": 64},
        "promptCache": {"promptCache": "64Mi"},
        "memoryMap": {"memoryMap": False},
        "chatTemplate": {"chatTemplate": "chatml"},
        "applyAdapters": {"applyAdapters": False},
        "ssePing": {"ssePing": 5},
        "logVerbosity": {"logVerbosity": 4},
    },
    EngineType.SIMULATED: {
        "startTime": {"startTime": "3s"},
        "startJitter": {"startJitter": "3s"},
        "stopTime": {"stopTime": "3s"},
        "timeToFirstToken": {"timeToFirstToken": "3s"},
        "timeToFirstTokenStdDev": {"timeToFirstTokenStdDev": "100ms"},
        "interTokenLatency": {"interTokenLatency": "3s"},
        "interTokenLatencyStdDev": {"interTokenLatencyStdDev": "100ms"},
        "timeFactorUnderLoad": {"timeFactorUnderLoad": 2},
        "mode": {"mode": "echo"},
        "maxTokens": {"maxTokens": 3},
        "contextLength": {"contextLength": 3},
        "kvTokens": {"kvTokens": 3},
        "maxWaiting": {"maxWaiting": 3},
        "dimensions": {"dimensions": 3},
        "seed": {"seed": 3},
        "cancels": {"cancels": "never"},
        "strictModel": {"strictModel": True},
        "failureRate": {"failureRate": 3},
        "failureTypes": {"failureTypes": ["rate_limit"]},
        "hangRate": {"hangRate": 3},
        "breakRate": {"breakRate": 3},
        "crashAfter": {"crashAfter": 0},
        "sleepTime": {"sleepTime": "3s"},
        "wakeTime": {"wakeTime": "3s"},
        "wakesWrong": {"wakesWrong": True},
        "failStart": {"failStart": "load"},
        "failStartWhile": {"failStartWhile": "/tmp/x"},
        "exitCode": {"exitCode": 3},
    },
    EngineType.COMMAND: {
        "command": {"command": ["other", "{port}"]},
        "env": {"env": {"A": "b"}},
        "healthPath": {"healthPath": "/ready"},
        "warmupPath": {"warmupPath": "/v1/embeddings"},
        "warmupBody": {"warmupBody": {"input": "1"}},
        "cancels": {"cancels": "never"},
        "busyPath": {"busyPath": "/busy"},
        "metricsPath": {"metricsPath": "/metrics"},
        "sleep": {"sleep": "vllm"},
    },
}


def wanted(options: Mapping[str, object]) -> LaunchRequest:
    return LaunchRequest(
        model=ModelName("m"), replica=ReplicaName("m-1"), host="127.0.0.1", port=4000, slots=2, weights="/w.gguf",
        options=options,
    )  # fmt: skip


def resolved(engine: Engine, options: Mapping[str, object]) -> tuple[object, ...]:
    request = wanted(options)
    return engine.launch(request), engine.probe(request), engine.abilities(request)


@pytest.mark.parametrize(
    ("engine_type", "option"), [(kind, name) for kind, changes in CHANGES.items() for name in changes]
)
def test_each_option_changes_something_that_is_resolved(engine_type: EngineType, option: str) -> None:
    """No dead knob."""
    engine, base = engine_for(engine_type), BASE[engine_type]
    changed = {**base, **CHANGES[engine_type][option]}
    assert resolved(engine, changed) != resolved(engine, base)


@pytest.mark.parametrize("engine_type", EngineType)
def test_the_changes_above_name_every_option(engine_type: EngineType) -> None:
    """So a new option cannot be forgotten there."""
    aliases = {field.alias for field in options_model(engine_type).model_fields.values()}
    assert aliases == set(CHANGES[engine_type])


@pytest.mark.parametrize("engine_type", EngineType)
def test_each_option_is_described_in_the_schema(engine_type: EngineType) -> None:
    """`relume schema` and editors show the text."""
    schema = options_model(engine_type).model_json_schema()
    assert all(part.get("description") for part in schema["properties"].values())


@pytest.mark.parametrize("engine_type", EngineType)
def test_unknown_options_are_refused_with_their_path(engine_type: EngineType) -> None:
    """Not passed over in silence."""
    with pytest.raises(ValidationError) as caught:
        options_model(engine_type).model_validate({**BASE[engine_type], "treads": 1})
    assert [error["loc"] for error in caught.value.errors()] == [("treads",)]


@pytest.mark.parametrize("engine_type", EngineType)
def test_checked_options_launch(engine_type: EngineType) -> None:
    """What validates can be launched, with all there is about it in a command line."""
    options_model(engine_type).model_validate(BASE[engine_type])
    launch = engine_for(engine_type).launch(wanted(BASE[engine_type]))
    assert all(isinstance(part, str) for part in launch.argv)
    assert "4000" in launch.argv
