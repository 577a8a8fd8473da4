"""The simulated engine's command."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from events.names import ModelName, ReplicaName
from runtime.adapters.simulated import Simulated, SimulatedOptions
from runtime.core.policy import Cancels
from runtime.engines.simulated.settings import FailStart, Mode, Settings, parse
from runtime.ports import LaunchRequest


def wanted(**options: object) -> LaunchRequest:
    return LaunchRequest(
        model=ModelName("m"), replica=ReplicaName("m-1"), host="127.0.0.1", port=4000, slots=3, options=options
    )


def settings(**options: object) -> Settings:
    """What the server program reads from the command."""
    argv = Simulated().launch(wanted(**options)).argv
    return parse(argv[argv.index("runtime.engines.simulated_server") + 1 :])


def test_options_arrive_as_settings() -> None:
    """All the way through the command line."""
    read = settings(
        startTime="1.5s", startJitter="250ms", stopTime="1s", timeToFirstToken="20ms", timeToFirstTokenStdDev="2ms",
        interTokenLatency="5ms", interTokenLatencyStdDev="1ms", timeFactorUnderLoad=2, mode="echo", maxTokens=9,
        contextLength=100, kvTokens=50, maxWaiting=7, dimensions=3, seed=5, cancels="streams", strictModel=True,
        failureRate=10, failureTypes=["rate_limit", "server_error"], hangRate=1, breakRate=2, crashAfter=4,
        failStart="load", failStartWhile="/tmp/x", exitCode=7,
    )  # fmt: skip
    timing, limits, faults = read.timing, read.limits, read.faults
    assert (read.host, read.port, read.names, read.instance) == ("127.0.0.1", 4000, ("m",), "m-1")
    assert (read.mode, read.cancels, read.seed, read.strict_model) == (Mode.ECHO, Cancels.STREAMS, "5", True)
    assert (timing.start, timing.start_jitter, timing.stop, timing.load_factor) == (1.5, 0.25, 1.0, 2.0)
    assert (timing.first_token, timing.first_token_std) == (0.02, 0.002)
    assert (timing.next_token, timing.next_token_std) == (0.005, 0.001)
    assert (limits.slots, limits.context, limits.kv_tokens, limits.waiting, limits.answer_tokens) == (3, 100, 50, 7, 9)
    assert (faults.failure_rate, faults.failure_types) == (10.0, ("rate_limit", "server_error"))
    assert (faults.hang_rate, faults.break_rate, faults.crash_after, faults.exit_code) == (1.0, 2.0, 4, 7)
    assert (faults.fail_start, faults.fail_start_while) == (FailStart.LOAD, "/tmp/x")


def test_defaults_are_the_same_on_both_sides() -> None:
    """An option that is not given is as if its default were written."""
    assert settings() == settings(maxTokens=16, contextLength=8192, maxWaiting=1000, dimensions=64, cancels="always")
    assert settings().faults.crash_after is None


def test_the_probe_is_known_to_the_engine_as_relumes_own() -> None:
    """So faults and counts leave it out."""
    probe = Simulated().probe(wanted())
    assert probe.warmup_path == "/v1/completions?probe"
    assert json.loads(probe.warmup_body)["max_tokens"] == 1


@pytest.mark.parametrize("name", ["timeToFirstToken", "interTokenLatency"])
def test_spreads_above_a_third_are_refused(name: str) -> None:
    """As llm-d-inference-sim does."""
    SimulatedOptions.model_validate({name: "100ms", f"{name}StdDev": "30ms"})
    with pytest.raises(ValidationError, match="30 %"):
        SimulatedOptions.model_validate({name: "100ms", f"{name}StdDev": "31ms"})
