"""Any OpenAI-compatible server, started by a command that the user writes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from events.spec import Spec
from runtime.adapters.sleeping import VLLM_SLEEPS
from runtime.adapters.slot_counts import mismatch
from runtime.core.golden import is_steady
from runtime.core.policy import Cancels
from runtime.ports import Abilities, Launch, LaunchRequest, Probe, Sleep

PLACEHOLDERS = ("host", "port", "slots", "weights", "model", "replica", "gpus", "gpu_count", "python", "adapters")
"""What a command may name in braces. `gpus` is a list with commas; `python` is the interpreter that runs relume;
`adapters` becomes an argument ``NAME=PATH`` for each LoRA adapter."""

_ADAPTERS = "{adapters}"

# Only a lower-case word in braces is a placeholder, so JSON in an argument stays as it is; {{word}} is {word}.
_PLACEHOLDER = re.compile(r"\{\{([a-z_]+)\}\}|\{([a-z_]+)\}")

_Path = Annotated[str, Field(pattern=r"^/\S*$")]


def _names(text: str) -> list[str]:
    return [match[2] for match in _PLACEHOLDER.finditer(text) if match[2]]


def _check(text: str) -> str:
    for name in _names(text):
        if name not in PLACEHOLDERS:
            near = get_close_matches(name, PLACEHOLDERS, n=1)
            hint = f"did you mean {{{near[0]}}}?" if near else f"there are {', '.join(PLACEHOLDERS)}."
            raise ValueError(f"{{{name}}} is not a placeholder; {hint} (write {{{{{name}}}}} for the word in braces)")
    return text


class Sleeping(StrEnum):
    """How the server of a command sleeps."""

    NONE = "none"
    VLLM = "vllm"
    PARKED = "parked"


class CommandOptions(Spec):
    """Options of the command engine."""

    command: Annotated[tuple[str, ...], Field(min_length=1)]
    """Program and arguments, without a shell. Placeholders: {host} {port} {slots} {weights} {model} {replica} {gpus}
    {gpu_count} {python}; {adapters}, alone in an argument, becomes one NAME=PATH for each of weights.adapters (vLLM:
    --enable-lora --lora-modules {adapters}). The server must listen on {host} and {port}."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables, with the same placeholders."""
    health_path: _Path = "/health"
    """Answers 200 once the model is loaded."""
    warmup_path: _Path = "/v1/completions"
    """Where the one request goes that shows that the model answers."""
    warmup_body: dict[str, object] | None = None
    """Its JSON body; unset: a completion of one token."""
    cancels: Cancels = Cancels.STREAMS
    """Which requests the server stops when their connection closes: always, streams, never. When unsure, say less."""
    busy_path: _Path | None = None
    """A path that tells how many requests run: {"running": n}, or a list of slots as llama.cpp gives."""
    metrics_path: _Path | None = None
    """Prometheus metrics with the names of llama.cpp, vLLM, SGLang, TensorRT-LLM, Triton or TGI."""

    sleep: Sleeping = Sleeping.NONE
    """How the server can sleep (coldStart.sleep): vllm (it has /sleep, /wake_up and /is_sleeping, which vLLM has with
    --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1; with weights.adapters at level 1 only), parked (without a GPU: its
    process stays as it is), none."""

    @field_validator("command")
    @classmethod
    def _known_in_command(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        if not command[0].strip():
            raise ValueError("the program's name is empty")
        for part in command:
            if "adapters" in _names(part) and part != _ADAPTERS:
                raise ValueError("{adapters} becomes several arguments; let it stand alone in one")
        return tuple(_check(part) for part in command)

    @field_validator("env")
    @classmethod
    def _known_in_env(cls, env: dict[str, str]) -> dict[str, str]:
        if any("adapters" in _names(text) for text in env.values()):
            raise ValueError("{adapters} becomes several arguments; name it in the command")
        return {name: _check(text) for name, text in env.items()}

    @model_validator(mode="after")
    def _port_is_given(self) -> CommandOptions:
        if not any("port" in _names(text) for text in (*self.command, *self.env.values())):
            raise ValueError("command names no {port}: relume chooses it, so the command or env must pass it on")
        return self

    @model_validator(mode="after")
    def _gives_memory_back(self) -> CommandOptions:
        """Without its flag vLLM answers that it sleeps, and keeps all memory of the card that another is given then."""
        words = [part.rpartition("/")[2] for part in self.command]
        plain = "vllm" in words or any(word.startswith("vllm.entrypoints.") for word in words)
        if self.sleep is Sleeping.VLLM and plain and not {"--enable-sleep-mode", "--config"} & set(words):
            raise ValueError("sleep: vllm needs --enable-sleep-mode in the command; else vLLM keeps the card's memory")
        return self


class Command:
    """The engine port over a user's command."""

    def launch(self, wanted: LaunchRequest) -> Launch:
        """The command with its placeholders filled; ValueError when an option is wrong."""
        options = CommandOptions.model_validate(dict(wanted.options))
        if not wanted.weights and any("weights" in _names(text) for text in (*options.command, *options.env.values())):
            raise ValueError("the command names {weights}, but the model has none; set spec.weights.uri")
        if (_ADAPTERS in options.command) is not bool(wanted.adapters):
            said = "the model has adapters and the command does not name {adapters}"
            lacks = "the command names {adapters}, but the model has none; set spec.weights.adapters"
            raise ValueError(said if wanted.adapters else lacks)
        values = {
            "host": wanted.host,
            "port": str(wanted.port),
            "slots": str(wanted.slots),
            "weights": wanted.weights,
            "model": str(wanted.model),
            "replica": str(wanted.replica),
            "gpus": ",".join(wanted.gpus),
            "gpu_count": str(len(wanted.gpus)),
            "python": sys.executable,
        }

        def fill(text: str) -> str:
            return _PLACEHOLDER.sub(lambda match: f"{{{match[1]}}}" if match[1] else values[match[2]], text)

        def words(part: str) -> list[str]:
            return [f"{name}={path}" for name, path in wanted.adapters] if part == _ADAPTERS else [fill(part)]

        return Launch(
            argv=tuple(word for part in options.command for word in words(part)),
            env={name: fill(text) for name, text in options.env.items()},
        )

    def probe(self, wanted: LaunchRequest) -> Probe:
        """The user's paths; by default one token of a completion."""
        options = CommandOptions.model_validate(dict(wanted.options))
        body = options.warmup_body or {"model": wanted.model, "prompt": "1", "max_tokens": 1, "temperature": 0}
        return Probe(
            health_path=options.health_path, warmup_path=options.warmup_path, warmup_body=json.dumps(body).encode()
        )

    def abilities(self, wanted: LaunchRequest) -> Abilities:
        """What the user says of the server."""
        options = CommandOptions.model_validate(dict(wanted.options))
        return Abilities(
            sleeps=_sleeps(options, wanted),
            cancels=options.cancels,
            busy_path=options.busy_path or "",
            metrics_path=options.metrics_path or "",
        )

    def check_slots(self, health: Mapping[str, object], slots: int) -> str:
        """Compares when `busy_path` tells; most servers do not."""
        return mismatch(health, slots, "pass {slots} to the server in its command")


def _sleeps(options: CommandOptions, wanted: LaunchRequest) -> tuple[Sleep, ...]:
    """None where nobody could tell after a wake whether it still answers as before."""
    steady = options.warmup_body is None or is_steady(json.dumps(options.warmup_body).encode())
    if not steady or options.sleep is Sleeping.NONE:
        return ()
    if options.sleep is Sleeping.VLLM:
        # At level 2 adapters are lost with the weights, and one token of the model itself does not show it.
        return tuple(way for way in VLLM_SLEEPS if way.level == 1 or not wanted.adapters)
    return () if wanted.gpus else (Sleep(level=1),)
