"""What an engine's own metrics say, in the words of `relume.replica.metrics`.

Names are those of llama.cpp (server README), vLLM (docs, "Production metrics") and SGLang (docs, "Production metrics");
the simulated engine uses vLLM's. Only the few lines that matter are parsed: an exposition may have thousands.
"""

from __future__ import annotations

import math
import re
from typing import Final

from events.types.metrics import ReplicaMetrics

RUNNING: Final = ("vllm:num_requests_running", "llamacpp:requests_processing", "sglang:num_running_reqs")
WAITING: Final = ("vllm:num_requests_waiting", "llamacpp:requests_deferred", "sglang:num_queue_reqs")
KV_USE: Final = (
    "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "llamacpp:kv_cache_usage_ratio", "sglang:token_usage",
)  # fmt: skip
TOKENS_IN: Final = ("vllm:prompt_tokens_total", "llamacpp:prompt_tokens_total", "sglang:prompt_tokens_total")
TOKENS_OUT: Final = (
    "vllm:generation_tokens_total", "llamacpp:tokens_predicted_total", "sglang:generation_tokens_total",
)  # fmt: skip

_SAMPLE: Final = re.compile(rb"^((?:vllm|llamacpp|sglang):[a-z_]+)(?:\{[^\n]*\})?[ \t]+(\S+)", re.MULTILINE)


def read_metrics(exposition: bytes, model: str, replica: str, revision: int) -> ReplicaMetrics:
    """The numbers in a Prometheus text exposition; samples of one name (by label) are added. None: not there."""
    sums: dict[str, float] = {}
    for name, number in _SAMPLE.findall(exposition):
        try:
            value = float(number)
        except ValueError:
            continue  # not a number: as if it were not there
        if math.isfinite(value) and value >= 0:
            sums[name.decode()] = sums.get(name.decode(), 0.0) + value
    first = {
        field: next((sums[name] for name in names if name in sums), None)
        for field, names in (
            ("running", RUNNING), ("waiting", WAITING), ("kv", KV_USE), ("tokens_in", TOKENS_IN),
            ("tokens_out", TOKENS_OUT),
        )
    }  # fmt: skip
    return ReplicaMetrics(
        model=model, replica=replica, revision=revision, running=first["running"], waiting=first["waiting"],
        kv_cache_use=first["kv"], tokens_in_total=first["tokens_in"], tokens_out_total=first["tokens_out"],
    )  # fmt: skip
