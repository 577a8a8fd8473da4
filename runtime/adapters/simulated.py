"""The simulated engine: real HTTP, no model. For trying relume, for its tests, and for load tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from events.spec import Duration, Spec
from runtime.adapters.programs import program
from runtime.adapters.sleeping import VLLM_SLEEPS
from runtime.adapters.slot_counts import mismatch
from runtime.core.policy import Cancels
from runtime.engines.simulated.settings import PROBE, FailStart, Mode
from runtime.ports import Abilities, Launch, LaunchRequest, Probe

_Percent = Annotated[float, Field(ge=0, le=100)]
_Failure = Literal[
    "rate_limit", "invalid_api_key", "context_length", "server_error", "invalid_request", "model_not_found"
]
_MAX_SPREAD = 0.3  # a standard deviation is at most 30 % of its mean, as in llm-d-inference-sim


class SimulatedOptions(Spec):
    """Options of the simulated engine."""

    start_time: Duration = 0.0
    """Process start to healthy."""
    start_jitter: Duration = 0.0
    """The start takes up to this much longer, drawn anew for each replica."""
    stop_time: Duration = 0.0
    """SIGTERM to exit."""
    time_to_first_token: Duration = 0.0
    """Mean time to the first token of an answer."""
    time_to_first_token_std_dev: Duration = 0.0
    """Its standard deviation, at most 30 % of it."""
    inter_token_latency: Duration = 0.0
    """Mean time between two tokens."""
    inter_token_latency_std_dev: Duration = 0.0
    """Its standard deviation, at most 30 % of it."""
    time_factor_under_load: Annotated[float, Field(ge=1, le=1000)] = 1.0
    """Times are this many times longer when all slots are busy, in proportion when some are."""
    mode: Mode = Mode.RANDOM
    """echo repeats the prompt; random draws words, the same for the same prompt and seed."""
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 16
    """Tokens of an answer whose request does not say."""
    context_length: Annotated[int, Field(ge=1, le=100_000_000)] = 8192
    """Most tokens of prompt and answer together; more is refused with 400."""
    kv_tokens: Annotated[int, Field(ge=0)] = 0
    """KV cache of the replica in tokens; what does not fit waits. 0: no limit."""
    max_waiting: Annotated[int, Field(ge=0, le=1_000_000)] = 1000
    """Requests that may wait in the engine beyond its slots; more are refused with 503."""
    dimensions: Annotated[int, Field(ge=1, le=65_536)] = 64
    """Length of embeddings."""
    seed: int | None = None
    """Makes times, faults and words repeatable; replicas differ by their names."""
    cancels: Cancels = Cancels.ALWAYS
    """Which requests stop when their client leaves: always, streams, never. To imitate other engines."""
    strict_model: bool = False
    """Refuse names of other models and adapters with 404, as vLLM does. (Aliases reach the engine as the client wrote
    them.)"""
    failure_rate: _Percent = 0.0
    """Per cent of requests that are answered with an error."""
    failure_types: Annotated[tuple[_Failure, ...], Field(min_length=1)] = ("server_error",)
    """Which errors; drawn evenly."""
    hang_rate: _Percent = 0.0
    """Per cent of requests that hold a slot and never get an answer."""
    break_rate: _Percent = 0.0
    """Per cent of streams that are cut in the middle."""
    crash_after: Annotated[int, Field(ge=0)] | None = None
    """The process ends when it begins the request after this many."""
    fail_start: FailStart = FailStart.NO
    """How the start fails: spawn (before it listens), load (after startTime), hang (never healthy), warmup (healthy,
    but answers nothing)."""
    sleep_time: Duration = 0.0
    """POST /sleep to asleep."""
    wake_time: Duration = 0.0
    """POST /wake_up to awake."""
    wakes_wrong: bool = False
    """After a wake it answers something else than before, as vLLM once did at level 2."""
    fail_start_while: str = ""
    """Path of a file: the start fails only as long as it exists."""
    exit_code: Annotated[int, Field(ge=0, le=255)] = 1
    """Of a crash or a failed start."""

    @model_validator(mode="after")
    def _spreads_are_small(self) -> SimulatedOptions:
        for mean, spread, name in (
            (self.time_to_first_token, self.time_to_first_token_std_dev, "timeToFirstToken"),
            (self.inter_token_latency, self.inter_token_latency_std_dev, "interTokenLatency"),
        ):
            if spread > _MAX_SPREAD * mean + 1e-9:
                raise ValueError(f"{name}StdDev is more than 30 % of {name}; make it smaller")
        return self


class Simulated:
    """The engine port over ``python -m runtime.engines.simulated_server``."""

    def launch(self, wanted: LaunchRequest) -> Launch:
        """The command; ValueError when an option is wrong."""
        options = SimulatedOptions.model_validate(dict(wanted.options))
        flags: dict[str, object] = {
            "host": wanted.host,
            "port": wanted.port,
            "model": wanted.model,
            "instance": wanted.replica,
            "max-num-seqs": wanted.slots,
            "startup-duration": _millis(options.start_time),
            "startup-jitter": _millis(options.start_jitter),
            "stop-duration": _millis(options.stop_time),
            "time-to-first-token": _millis(options.time_to_first_token),
            "time-to-first-token-std-dev": _millis(options.time_to_first_token_std_dev),
            "inter-token-latency": _millis(options.inter_token_latency),
            "inter-token-latency-std-dev": _millis(options.inter_token_latency_std_dev),
            "time-factor-under-load": options.time_factor_under_load,
            "mode": options.mode.value,
            "max-tokens": options.max_tokens,
            "max-model-len": options.context_length,
            "kv-tokens": options.kv_tokens,
            "max-waiting-queue-length": options.max_waiting,
            "dimensions": options.dimensions,
            "seed": options.seed,
            "cancels": options.cancels.value,
            "sleep-duration": _millis(options.sleep_time),
            "wake-duration": _millis(options.wake_time),
            "wakes-wrong": options.wakes_wrong,
            "strict-model": options.strict_model,
            "weights-from": wanted.weights_from,
        }
        launch = program("runtime.engines.simulated_server", flags | _faults(options))
        names = ["--served-model-name", wanted.model, *(name for name, _ in wanted.adapters)] if wanted.adapters else []
        return Launch((*launch.argv, "--failure-types", *options.failure_types, *names), launch.env)

    def probe(self, wanted: LaunchRequest) -> Probe:
        """Healthy after the start time; then one token."""
        body = {"model": wanted.model, "prompt": "1", "max_tokens": 1, "temperature": 0}
        return Probe(
            health_path="/health", warmup_path=f"/v1/completions?{PROBE}", warmup_body=json.dumps(body).encode()
        )

    def abilities(self, wanted: LaunchRequest) -> Abilities:
        """As the options say."""
        options = SimulatedOptions.model_validate(dict(wanted.options))
        return Abilities(
            cancels=options.cancels, busy_path="/running", metrics_path="/metrics", reads_weights=False,
            awaits_weights=True, sleeps=VLLM_SLEEPS,
        )  # fmt: skip

    def check_slots(self, health: Mapping[str, object], slots: int) -> str:
        """Compares with ``slots`` of ``/running``."""
        return mismatch(health, slots, "another program may be listening there")


def _faults(options: SimulatedOptions) -> dict[str, object]:
    return {
        "failure-injection-rate": options.failure_rate or None,
        "hang-rate": options.hang_rate or None,
        "break-rate": options.break_rate or None,
        "crash-after": options.crash_after,
        "fail-start": options.fail_start.value,
        "fail-start-while": options.fail_start_while or None,
        "exit-code": options.exit_code,
    }


def _millis(seconds: float) -> str:
    return f"{seconds * 1000:g}ms"
