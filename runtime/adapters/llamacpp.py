"""llama.cpp's server in a process of its own: the embedded default engine. Needs the extra ``relume[llamacpp]``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from events.spec import Quantity, Spec
from runtime.adapters.programs import program
from runtime.adapters.slot_counts import mismatch
from runtime.core.policy import Cancels
from runtime.ports import Abilities, Launch, LaunchRequest, Probe, Sleep

_MAX_SLOTS = 256  # LLAMA_MAX_SEQ in llama.cpp's llama-cparams.h


class Pooling(StrEnum):
    """How an embedding model turns its tokens' vectors into one; `rank` makes it a reranker."""

    MEAN = "mean"
    CLS = "cls"
    LAST = "last"
    RANK = "rank"


class LlamaCppOptions(Spec):
    """Options of the llamacpp engine."""

    context_per_slot: Annotated[int, Field(ge=64, le=16_777_216)] = 2048
    """Tokens of prompt and answer that one request may use. The engine's context is this times the slots."""
    threads: Annotated[int, Field(ge=1, le=512)] = 1
    """Threads of one replica. More than one slows all of them down when the machine is busy."""
    gpu_layers: Annotated[int, Field(ge=0)] | None = None
    """Layers put on the GPU; unset: all that fit when the model has GPUs, none otherwise."""
    embedding: bool = False
    """Serve /v1/embeddings instead of text."""
    pooling: Pooling = Pooling.MEAN
    """How an embedding model pools; rank serves /v1/rerank. Used with embedding only."""
    batch_size: Annotated[int, Field(ge=32, le=65_536)] = 2048
    """Most tokens of prompts that are worked on in one step."""
    prompt_cache: Quantity = 0
    """Memory for prompts that are kept to be reused; it comes on top of the model's memory."""
    memory_map: bool = True
    """Map the weights into memory instead of reading them: replicas on a node share the pages."""
    apply_adapters: bool = True
    """LoRA adapters (weights.adapters) are applied to every request, all together. False: to those whose body asks,
    by llama.cpp's field lora: [{"id": 0, "scale": 1.0}]; ids count in the order of the declaration."""
    chat_template: str = ""
    """A built-in template's name, such as chatml, or a Jinja template; empty: the one in the weights."""
    sse_ping: Annotated[int, Field(ge=0, le=3600)] = 0
    """Seconds between SSE comments while a streamed answer has not begun; 0: none."""
    log_verbosity: Annotated[int, Field(ge=0, le=5)] = 2
    """llama.cpp's own scale: 1 errors, 2 warnings, 3 the start and each request, 4 and 5 everything."""

    @model_validator(mode="after")
    def _pooling_needs_embedding(self) -> LlamaCppOptions:
        if "pooling" in self.model_fields_set and not self.embedding:
            raise ValueError("pooling is used by embedding models only; add embedding: true or remove it")
        return self


class LlamaCpp:
    """The engine port over ``python -m runtime.engines.llamacpp_server``."""

    def launch(self, wanted: LaunchRequest) -> Launch:
        """The command; ValueError when an option is wrong or the model names no weights."""
        options = LlamaCppOptions.model_validate(dict(wanted.options))
        if not wanted.weights and wanted.weights_from is None:
            raise ValueError("spec.weights.uri: the llamacpp engine needs weights; name a GGUF file")
        if wanted.slots > _MAX_SLOTS:
            raise ValueError(
                f"spec.slots: {wanted.slots} is more than llama.cpp can run at a time; at most {_MAX_SLOTS}"
            )
        gpu_layers = options.gpu_layers if options.gpu_layers is not None else (None if wanted.gpus else 0)
        launch = program(
            "runtime.engines.llamacpp_server",
            {
                "weights": wanted.weights if wanted.weights_from is None else None,
                "weights-from": wanted.weights_from,
                "host": wanted.host,
                "port": wanted.port,
                "alias": wanted.model,
                "slots": wanted.slots,
                "context-per-slot": options.context_per_slot,
                "threads": options.threads,
                "gpu-layers": gpu_layers,
                "pooling": options.pooling.value if options.embedding else None,
                "batch-size": options.batch_size,
                "prompt-cache-mib": options.prompt_cache // 2**20,
                "no-mmap": not options.memory_map,
                "chat-template": options.chat_template or None,
                "sse-ping": options.sse_ping,
                "log-verbosity": options.log_verbosity,
                "lora-on-request": not options.apply_adapters,
            },
        )
        here = wanted.adapters if wanted.weights_from is None else ()
        adapters = [word for _, path in here for word in ("--lora", path)]
        return Launch((*launch.argv, *adapters), launch.env)

    def probe(self, wanted: LaunchRequest) -> Probe:
        """Healthy means loaded; then one token, or one vector, or one rank."""
        options = LlamaCppOptions.model_validate(dict(wanted.options))
        body: dict[str, object] = {"model": wanted.model}
        if not options.embedding:
            path = "/v1/completions"
            body |= {"prompt": "1", "max_tokens": 1, "temperature": 0}
        elif options.pooling is Pooling.RANK:
            path = "/v1/rerank"
            body |= {"query": "1", "documents": ["1"]}
        else:
            path = "/v1/embeddings"
            body |= {"input": "1"}
        return Probe(health_path="/health", warmup_path=path, warmup_body=json.dumps(body).encode())

    def abilities(self, wanted: LaunchRequest) -> Abilities:
        """A closed connection stops a streamed request only; a non-streamed one runs to its end. Without a GPU it
        sleeps as it is; with one it would keep the card's memory, so it does not."""
        sleeps = () if wanted.gpus else (Sleep(level=1),)
        return Abilities(
            cancels=Cancels.STREAMS, busy_path="/slots", metrics_path="/metrics", awaits_weights=True, sleeps=sleeps
        )

    def check_slots(self, health: Mapping[str, object], slots: int) -> str:
        """Compares with the length of ``/slots``, or ``total_slots`` of ``/props``."""
        return mismatch(health, slots, "lower contextPerSlot if memory ran short")
