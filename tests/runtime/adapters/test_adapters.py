"""LoRA adapters as each engine is given them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from events.names import ModelName, ReplicaName
from runtime.adapters.registry import engine_for, options_model
from runtime.ports import LaunchRequest
from runtime.spec import EngineType

TWO = (("sql", "/w/sql.gguf"), ("chat", "/w/chat.gguf"))


def wanted(adapters: tuple[tuple[str, str], ...] = TWO, **options: object) -> LaunchRequest:
    return LaunchRequest(
        model=ModelName("m"), replica=ReplicaName("m-1"), host="127.0.0.1", port=4000, slots=2, weights="/w.gguf",
        options=options, adapters=adapters,
    )  # fmt: skip


def argv(engine: EngineType, request: LaunchRequest) -> tuple[str, ...]:
    return engine_for(engine).launch(request).argv


def test_a_command_gets_one_argument_each() -> None:
    """As vLLM's --lora-modules takes them, in the order of the declaration."""
    command = ["vllm", "--port", "{port}", "--enable-lora", "--lora-modules", "{adapters}", "--last"]
    assert argv(EngineType.COMMAND, wanted(command=command))[4:] == (
        "--lora-modules", "sql=/w/sql.gguf", "chat=/w/chat.gguf", "--last",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("command", "adapters", "said"),
    [
        (["s", "{port}"], TWO, "does not name {adapters}"),
        (["s", "{port}", "{adapters}"], (), "the model has none"),
    ],
    ids=["not given", "not there"],
)
def test_what_is_declared_and_what_is_named_agree(
    command: list[str], adapters: tuple[tuple[str, str], ...], said: str
) -> None:
    """Adapters that no engine gets are a fault, and so are names without any."""
    with pytest.raises(ValueError, match=said):
        argv(EngineType.COMMAND, wanted(adapters, command=command))


@pytest.mark.parametrize(
    "options",
    [{"command": ["s", "{port}", "--lora={adapters}"]}, {"command": ["s", "{port}"], "env": {"LORA": "{adapters}"}}],
    ids=["within a word", "in the environment"],
)
def test_several_arguments_are_no_part_of_one(options: dict[str, object]) -> None:
    """They would be glued together."""
    with pytest.raises(ValidationError, match="several arguments"):
        options_model(EngineType.COMMAND).model_validate(options)


def test_llamacpp_loads_them() -> None:
    """All of them, applied to all requests or to those that ask."""
    given = argv(EngineType.LLAMACPP, wanted())
    assert given[-4:] == ("--lora", "/w/sql.gguf", "--lora", "/w/chat.gguf")
    assert "--lora-on-request" not in given
    assert "--lora-on-request" in argv(EngineType.LLAMACPP, wanted(applyAdapters=False))
    assert "--lora" not in argv(EngineType.LLAMACPP, wanted(()))


def test_the_simulated_engine_answers_to_their_names() -> None:
    """Beside the model's own."""
    assert argv(EngineType.SIMULATED, wanted())[-4:] == ("--served-model-name", "m", "sql", "chat")
    assert "--served-model-name" not in argv(EngineType.SIMULATED, wanted(()))
