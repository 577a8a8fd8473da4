"""Which engine serves a type of `runtime.spec.EngineType`, and the options each one takes."""

from __future__ import annotations

from collections.abc import Mapping

from events.spec import Spec
from runtime.adapters.command import Command, CommandOptions
from runtime.adapters.llamacpp import LlamaCpp, LlamaCppOptions
from runtime.adapters.simulated import Simulated, SimulatedOptions
from runtime.ports import Engine
from runtime.spec import EngineType

_ENGINES: Mapping[EngineType, tuple[Engine, type[Spec]]] = {
    EngineType.LLAMACPP: (LlamaCpp(), LlamaCppOptions),
    EngineType.SIMULATED: (Simulated(), SimulatedOptions),
    EngineType.COMMAND: (Command(), CommandOptions),
}


def engine_for(engine_type: EngineType) -> Engine:
    """The engine of that type; it has no state, so all models share it."""
    return _ENGINES[engine_type][0]


def options_model(engine_type: EngineType) -> type[Spec]:
    """The pydantic model of that engine's options: it checks them, and has their defaults and JSON Schema."""
    return _ENGINES[engine_type][1]
