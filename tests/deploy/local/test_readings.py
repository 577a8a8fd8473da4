"""Expositions of engines, in their own words: what runs, what waits, how full the KV cache is."""

from __future__ import annotations

import sys

import pytest

from deploy.local.readings import read_metrics
from events.types.metrics import ReplicaMetrics

VLLM = b"""# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.125
vllm:prompt_tokens_total{model_name="m"} 100.0
vllm:generation_tokens_total{model_name="m"} 200.0
vllm:num_requests_waiting_by_reason{reason="capacity"} 9.0
"""
SGLANG = b"""sglang:num_running_reqs{model_name="m"} 4
sglang:num_queue_reqs{model_name="m"} 2
sglang:token_usage{model_name="m"} 0.25
sglang:prompt_tokens_total{model_name="m"} 100
sglang:generation_tokens_total{model_name="m"} 200
"""
LLAMACPP = b"""llamacpp:requests_processing 4
llamacpp:requests_deferred 2
llamacpp:kv_cache_usage_ratio 0.25
llamacpp:prompt_tokens_total 100
llamacpp:tokens_predicted_total 200
"""
TRTLLM = b"""trtllm_num_requests_running{model_name="m",engine_type="trtllm"} 4
trtllm_num_requests_waiting{model_name="m",engine_type="trtllm"} 2
trtllm_kv_cache_utilization{model_name="m",engine_type="trtllm"} 0.25
"""
TRITON_TRTLLM = b"""nv_trt_llm_request_metrics{model="m",request_type="context",version="1"} 1
nv_trt_llm_request_metrics{model="m",request_type="scheduled",version="1"} 4
nv_trt_llm_request_metrics{model="m",request_type="max",version="1"} 512
nv_trt_llm_request_metrics{model="m",request_type="waiting",version="1"} 2
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="m",version="1"} 2000
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="m",version="1"} 0.25
"""
TRITON = b"""nv_inference_pending_request_count{model="m",version="1"} 2
nv_inference_request_success{model="m",version="1"} 2500
"""
TGI = b"""tgi_queue_size 2
tgi_batch_current_size 4
"""


@pytest.mark.parametrize(
    ("exposition", "told"),
    [
        (VLLM, (4.0, 2.0, 0.25, 100.0, 200.0)),
        (SGLANG, (4.0, 2.0, 0.25, 100.0, 200.0)),
        (LLAMACPP, (4.0, 2.0, 0.25, 100.0, 200.0)),
        (TRTLLM, (4.0, 2.0, 0.25, None, None)),
        (TRITON_TRTLLM, (4.0, 2.0, 0.25, None, None)),
        (TRITON, (None, 2.0, None, None, None)),
        (TGI, (4.0, 2.0, None, None, None)),
        (b"", (None, None, None, None, None)),
        (b"vllm:num_requests_running NaN\nvllm:num_requests_waiting many\n", (None, None, None, None, None)),
        (b'nv_trt_llm_request_metrics{model="m"} 7\n', (None, None, None, None, None)),
        (b"my_vllm:num_requests_running 7\n# vllm:num_requests_running 8\n", (None, None, None, None, None)),
        (b"vllm:num_requests_running 4\nvllm:generation_tokens_total 12", (4.0, None, None, None, None)),
        (b'tgi_queue_size{a="1"} 1.7e308\ntgi_queue_size{a="2"} 1.7e308\n',
         (None, sys.float_info.max, None, None, None)),
        (LLAMACPP.replace(b"\n", b"\r\n"), (4.0, 2.0, 0.25, 100.0, 200.0)),
        (b"\xff\xfe\x00" * 99 + b"\nllamacpp:requests_deferred{a=\"\xff}\"} 2 1700000000\n\x00",
         (None, 2.0, None, None, None)),
    ],
    ids=["vllm", "sglang", "llama.cpp", "trtllm-serve", "triton trt-llm", "triton", "tgi", "empty", "garbage",
         "without the label", "other names", "cut off", "beyond all numbers", "of another system", "not text"],
)  # fmt: skip
def test_the_words_of_engines(exposition: bytes, told: tuple[float | None, ...]) -> None:
    """Each says the same in its own names; what is not said is not known. (Expositions as the engines' documents show
    them.)"""
    running, waiting, kv, tokens_in, tokens_out = told
    assert read_metrics(exposition, "m", "m-r1-0", 1) == ReplicaMetrics(
        model="m", replica="m-r1-0", revision=1, running=running, waiting=waiting, kv_cache_use=kv,
        tokens_in_total=tokens_in, tokens_out_total=tokens_out,
    )  # fmt: skip
