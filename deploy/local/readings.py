"""What an engine's own metrics say, in the words of `relume.replica.metrics`.

Names are those of llama.cpp (server README), vLLM and SGLang (docs, "Production metrics"), trtllm-serve and Triton with
TensorRT-LLM (the model server protocol of Kubernetes' Gateway API inference extension), Triton (docs, "Metrics") and
TGI (docs, "Monitoring"); the simulated engine uses vLLM's. Only the few lines that matter are parsed: an exposition may
have thousands.
"""

from __future__ import annotations

import math
import re
import sys
from typing import Final

from events.types.metrics import ReplicaMetrics

_TRITON: Final = "nv_trt_llm_request_metrics"
RUNNING: Final = (
    "vllm:num_requests_running", "llamacpp:requests_processing", "sglang:num_running_reqs",
    "trtllm_num_requests_running", f"{_TRITON}/scheduled", "tgi_batch_current_size",
)  # fmt: skip
WAITING: Final = (
    "vllm:num_requests_waiting", "llamacpp:requests_deferred", "sglang:num_queue_reqs", "trtllm_num_requests_waiting",
    f"{_TRITON}/waiting", "nv_inference_pending_request_count", "tgi_queue_size",
)  # fmt: skip
KV_USE: Final = (
    "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "llamacpp:kv_cache_usage_ratio", "sglang:token_usage",
    "trtllm_kv_cache_utilization", "nv_trt_llm_kv_cache_block_metrics/fraction",
)  # fmt: skip
TOKENS_IN: Final = ("vllm:prompt_tokens_total", "llamacpp:prompt_tokens_total", "sglang:prompt_tokens_total")
TOKENS_OUT: Final = (
    "vllm:generation_tokens_total", "llamacpp:tokens_predicted_total", "sglang:generation_tokens_total",
)  # fmt: skip
_KINDS: Final = {_TRITON: "request_type", "nv_trt_llm_kv_cache_block_metrics": "kv_cache_block_type"}
"""Names of which one label says what is counted: with its value behind a slash they stand above."""

_NAMES: Final = {
    name.partition("/")[0] for names in (RUNNING, WAITING, KV_USE, TOKENS_IN, TOKENS_OUT) for name in names
}
_SAMPLE: Final = re.compile(
    rb"^(%b)(\{[^\n]*\})?[ \t]+(\S+)" % b"|".join(re.escape(name.encode()) for name in sorted(_NAMES)), re.MULTILINE
)


def read_metrics(exposition: bytes, model: str, replica: str, revision: int) -> ReplicaMetrics:
    """The numbers in a Prometheus text exposition; samples of one name (by label) are added, but of a use the fullest
    counts: an engine of several ranks tells of each. None: not there. A last line that does not end was cut off in the
    middle, and so perhaps its number."""
    sums: dict[str, float] = {}
    for raw, labels, number in _SAMPLE.findall(exposition, 0, exposition.rfind(b"\n") + 1):
        try:
            value = float(number)
        except ValueError:
            continue  # not a number: as if it were not there
        if math.isfinite(value) and value >= 0:
            name = _with_kind(raw.decode(), labels)
            before = sums.get(name, 0.0)
            sums[name] = max(before, value) if name in KV_USE else min(before + value, sys.float_info.max)
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


def _with_kind(name: str, labels: bytes) -> str:
    """The name, with the value of the label that says what is counted."""
    label = _KINDS.get(name)
    if label is None:
        return name
    found = re.search(rb'[{,]\s*%b="([^"]*)"' % label.encode(), labels)
    return f"{name}/{'' if found is None else found[1].decode(errors='replace')}"
