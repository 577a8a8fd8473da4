"""What the simulated engine is told: its flags, and the settings they become.

Flags that llm-d-inference-sim also has mean the same here (its docs/configuration.md); a duration without a unit is
milliseconds there, so also here.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from events.units import parse_duration
from runtime.core.policy import Cancels

PROBE = "probe"
"""The query of relume's own warm-up request: no fault hits it and no count counts it."""


class Mode(StrEnum):
    """What the answers say."""

    RANDOM = "random"  # words drawn from a list
    ECHO = "echo"  # the prompt again


class FailStart(StrEnum):
    """How a start fails, when it does."""

    NO = "no"
    SPAWN = "spawn"  # exits before it listens
    LOAD = "load"  # exits when the start time is over
    HANG = "hang"  # listens, and is never healthy
    WARMUP = "warmup"  # is healthy, and fails every request


FAILURES = ("rate_limit", "invalid_api_key", "context_length", "server_error", "invalid_request", "model_not_found")
"""Kinds of injected failures; llm-d-inference-sim's names."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. Drawn times stay within 30 % to 170 % of their mean."""

    start: float
    start_jitter: float
    first_token: float
    first_token_std: float
    next_token: float
    next_token_std: float
    load_factor: float  # times are this much longer when all slots are busy
    stop: float
    sleep: float
    wake: float


@dataclass(frozen=True, slots=True)
class Limits:
    """What one engine holds. `kv_tokens` 0: no limit."""

    slots: int
    waiting: int
    context: int
    kv_tokens: int
    answer_tokens: int


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong. Rates are 0 to 100 per cent; `crash_after` None: never."""

    failure_rate: float
    failure_types: tuple[str, ...]
    hang_rate: float
    break_rate: float
    crash_after: int | None
    fail_start: FailStart
    fail_start_while: str
    exit_code: int
    wakes_wrong: bool


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole."""

    host: str
    port: int
    names: tuple[str, ...]
    strict_model: bool
    instance: str
    seed: str | None
    mode: Mode
    cancels: Cancels
    dimensions: int
    timing: Timing
    limits: Limits
    faults: Faults
    weights_from: int | None = None
    """A descriptor over which it hears that its weights are there; before that it does nothing."""


def duration(text: str) -> float:
    """Seconds from ``100ms``, ``1.5s``, ``2m``, or from a bare number of milliseconds."""
    try:
        return float(text) / 1000.0
    except ValueError:
        pass
    try:
        return float(parse_duration(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _percent(text: str) -> float:
    value = float(text)
    if not 0.0 <= value <= 100.0:
        raise argparse.ArgumentTypeError(f"{text} is not a percentage; write a number from 0 to 100")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is too small; write a whole number from 1 up")
    return value


def parser() -> argparse.ArgumentParser:
    """All flags; the first group is llm-d-inference-sim's."""
    flags = argparse.ArgumentParser(
        prog="relume-simulated", description="An OpenAI-compatible server without a model.", allow_abbrev=False
    )
    _shared_flags(flags.add_argument_group("as in llm-d-inference-sim"))
    _own_flags(flags.add_argument_group("relume's own"))
    return flags


def _shared_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--port", type=int, default=8000)
    group.add_argument("--model", required=True)
    group.add_argument("--served-model-name", nargs="+", default=[], metavar="NAME")
    group.add_argument("--max-num-seqs", type=_positive, default=5, help="slots")
    group.add_argument("--max-waiting-queue-length", type=int, default=1000)
    group.add_argument("--max-model-len", type=_positive, default=1024, help="tokens of prompt and answer")
    group.add_argument("--mode", choices=[mode.value for mode in Mode], default=Mode.RANDOM.value)
    group.add_argument("--time-to-first-token", type=duration, default=0.0)
    group.add_argument("--time-to-first-token-std-dev", type=duration, default=0.0)
    group.add_argument("--inter-token-latency", type=duration, default=0.0)
    group.add_argument("--inter-token-latency-std-dev", type=duration, default=0.0)
    group.add_argument("--time-factor-under-load", type=float, default=1.0)
    group.add_argument("--startup-duration", type=duration, default=0.0)
    group.add_argument("--kv-cache-size", type=int, default=0, help="blocks of --block-size tokens; 0: no limit")
    group.add_argument("--block-size", type=_positive, default=16)
    group.add_argument("--seed", default=None)
    group.add_argument("--failure-injection-rate", type=_percent, default=0.0)
    group.add_argument("--failure-types", nargs="+", choices=FAILURES, default=list(FAILURES))


def _own_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--host", default="127.0.0.1")
    group.add_argument("--instance", default="0", help="mixed into the seed: replicas differ, each is repeatable")
    group.add_argument("--strict-model", action="store_true", help="404 for other models' names")
    group.add_argument("--max-tokens", type=_positive, default=16, help="length of an answer that asks for none")
    group.add_argument("--startup-jitter", type=duration, default=0.0, help="the start takes up to this much longer")
    group.add_argument("--stop-duration", type=duration, default=0.0, help="SIGTERM to exit")
    group.add_argument("--sleep-duration", type=duration, default=0.0, help="POST /sleep to asleep")
    group.add_argument("--wake-duration", type=duration, default=0.0, help="POST /wake_up to awake")
    group.add_argument("--wakes-wrong", action="store_true", help="after a wake it answers something else")
    group.add_argument("--kv-tokens", type=int, default=0, help="tokens of the KV cache, instead of --kv-cache-size")
    group.add_argument("--cancels", choices=[way.value for way in Cancels], default=Cancels.ALWAYS.value)
    group.add_argument("--dimensions", type=_positive, default=64, help="of embeddings")
    group.add_argument("--hang-rate", type=_percent, default=0.0, help="requests that never get an answer")
    group.add_argument("--break-rate", type=_percent, default=0.0, help="streams that are cut in the middle")
    group.add_argument("--crash-after", type=int, default=None, help="requests answered; the next one ends the process")
    group.add_argument("--fail-start", choices=[way.value for way in FailStart], default=FailStart.NO.value)
    group.add_argument("--fail-start-while", default="", help="the start fails only as long as this file exists")
    group.add_argument("--weights-from", type=int, metavar="DESCRIPTOR", help="a socket that tells of weights")
    group.add_argument("--exit-code", type=int, default=1, help="of crashes and failed starts")


def parse(argv: Sequence[str] | None = None) -> Settings:
    """Settings from flags; exits with 2 and a usage line when they are wrong."""
    args = parser().parse_args(argv)
    return Settings(
        host=args.host,
        port=args.port,
        names=tuple(args.served_model_name) or (args.model,),
        strict_model=args.strict_model,
        instance=args.instance,
        seed=args.seed,
        mode=Mode(args.mode),
        cancels=Cancels(args.cancels),
        dimensions=args.dimensions,
        timing=Timing(
            start=args.startup_duration,
            start_jitter=args.startup_jitter,
            first_token=args.time_to_first_token,
            first_token_std=args.time_to_first_token_std_dev,
            next_token=args.inter_token_latency,
            next_token_std=args.inter_token_latency_std_dev,
            load_factor=max(1.0, args.time_factor_under_load),
            stop=args.stop_duration,
            sleep=args.sleep_duration,
            wake=args.wake_duration,
        ),
        limits=Limits(
            slots=args.max_num_seqs,
            waiting=max(0, args.max_waiting_queue_length),
            context=args.max_model_len,
            kv_tokens=args.kv_tokens or args.kv_cache_size * args.block_size,
            answer_tokens=args.max_tokens,
        ),
        faults=Faults(
            failure_rate=args.failure_injection_rate,
            failure_types=tuple(args.failure_types),
            hang_rate=args.hang_rate,
            break_rate=args.break_rate,
            crash_after=args.crash_after,
            fail_start=FailStart(args.fail_start),
            fail_start_while=args.fail_start_while,
            exit_code=args.exit_code,
            wakes_wrong=args.wakes_wrong,
        ),
        weights_from=args.weights_from,
    )
