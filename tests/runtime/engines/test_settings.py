"""The simulated engine's flags."""

from __future__ import annotations

import pytest

from runtime.core.policy import Cancels
from runtime.engines.simulated.settings import FailStart, Mode, parse

LLM_D = [
    "--port", "9000", "--model", "llama", "--served-model-name", "a", "b", "--max-num-seqs", "7",
    "--max-waiting-queue-length", "3", "--max-model-len", "512", "--mode", "echo", "--time-to-first-token", "100ms",
    "--time-to-first-token-std-dev", "20", "--inter-token-latency", "15", "--inter-token-latency-std-dev", "1ms",
    "--time-factor-under-load", "2.5", "--startup-duration", "2s", "--kv-cache-size", "10", "--block-size", "32",
    "--seed", "42", "--failure-injection-rate", "30", "--failure-types", "rate_limit", "server_error",
]  # fmt: skip


def test_flags_of_llm_d_inference_sim_mean_the_same() -> None:
    """Durations without a unit are milliseconds, the KV cache is blocks times block size."""
    settings = parse(LLM_D)
    timing, limits = settings.timing, settings.limits
    assert (settings.port, settings.names, settings.seed, settings.mode) == (9000, ("a", "b"), "42", Mode.ECHO)
    assert (timing.first_token, timing.first_token_std) == (0.1, 0.02)
    assert (timing.next_token, timing.next_token_std) == (0.015, 0.001)
    assert (timing.load_factor, timing.start) == (2.5, 2.0)
    assert (limits.slots, limits.waiting, limits.context, limits.kv_tokens) == (7, 3, 512, 320)
    assert settings.faults.failure_rate == 30.0
    assert settings.faults.failure_types == ("rate_limit", "server_error")


def test_defaults_are_quiet() -> None:
    """Without flags nothing fails, nothing takes time, and it binds to loopback only."""
    settings = parse(["--model", "m"])
    assert settings.host == "127.0.0.1"
    assert settings.names == ("m",)
    assert settings.cancels is Cancels.ALWAYS
    assert settings.faults.fail_start is FailStart.NO
    assert settings.faults.crash_after is None
    assert settings.faults.failure_rate == settings.faults.hang_rate == settings.timing.start == 0.0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--model", "m", "--inter-token-latency", "fast"], "not a duration"),
        (["--model", "m", "--failure-injection-rate", "101"], "not a percentage"),
        (["--model", "m", "--max-num-seqs", "0"], "too small"),
        (["--model", "m", "--mode", "shout"], "invalid choice"),
        (["--model", "m", "--max-num-seq", "3"], "unrecognized arguments"),
        ([], "--model"),
    ],
)
def test_wrong_flags_exit_with_two_and_a_reason(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error, as other commands do."""
    with pytest.raises(SystemExit) as caught:
        parse(flags)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err
