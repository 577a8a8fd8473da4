"""``python -m runtime.engines.llamacpp_server``: one llama.cpp server, until SIGTERM.

It listens at once and answers 503 on ``/health`` while it loads; with ``--weights-from`` it first waits to hear where
its weights are (`runtime.engines.awaiting`). SIGTERM keeps its default effect and ends the process
at once, also in the middle of a load: whoever stops a replica drains it first. (Closing the server with a stream in
flight would hang, so nothing here tries to.) Exit codes: 1 the weights could not be loaded, 2 wrong use, 3 the engine
is not installed.
"""

from __future__ import annotations

import argparse
import signal
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

from runtime.engines.awaiting import NoWeights, wait

_MAGIC = b"GGUF"
_VERSIONS = range(2, 5)  # 2 and 3 are in use; 1 is no longer read by llama.cpp

_POOLING = {"mean": "MEAN", "cls": "CLS", "last": "LAST", "rank": "RANK"}


class BadWeights(Exception):
    """The weights cannot be served; the text says which file and why."""


def find_weights(given: str) -> Path:
    """The GGUF file to load: the one given, or the only one (of a split model: the first part) in a folder."""
    path = Path(given)
    if path.is_dir():
        found = sorted(file for file in path.rglob("*.gguf") if file.is_file())
        first_parts = [file for file in found if "-00001-of-" in file.name]
        whole = [file for file in found if "-of-" not in file.name and not file.name.startswith("mmproj")]
        candidates = first_parts or whole
        if len(candidates) != 1:
            names = ", ".join(file.name for file in candidates[:5]) or "none"
            raise BadWeights(f"{path} must hold exactly one GGUF model; found {names}; give the file's own path")
        path = candidates[0]
    if not path.is_file():
        raise BadWeights(f"{path} does not exist; check spec.weights.uri")
    return path


def check_gguf(path: Path) -> None:
    """Refuse what is not GGUF before llama.cpp is loaded (magic and version: GGUF specification, header)."""
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise BadWeights(f"{path} cannot be read: {error.strerror}") from error
    if len(head) < 8 or head[:4] != _MAGIC:
        raise BadWeights(f"{path} is not a GGUF file (it begins with {head[:4]!r}); llama.cpp reads GGUF only")
    (version,) = struct.unpack("<I", head[4:])
    if version not in _VERSIONS:
        raise BadWeights(f"{path} is GGUF version {version}; versions 2 and 3 can be read")


def parser() -> argparse.ArgumentParser:
    """The program's flags."""
    flags = argparse.ArgumentParser(prog="relume-llamacpp", description="One llama.cpp server for relume.")
    weights = flags.add_mutually_exclusive_group(required=True)
    weights.add_argument("--weights", help="a GGUF file, or a folder with one")
    weights.add_argument("--weights-from", type=int, metavar="DESCRIPTOR", help="a socket that will say where they are")
    flags.add_argument("--host", default="127.0.0.1")
    flags.add_argument("--port", type=int, required=True)
    flags.add_argument("--alias", required=True, help="the model's name in answers")
    flags.add_argument("--slots", type=int, default=1)
    flags.add_argument("--context-per-slot", type=int, default=2048)
    flags.add_argument("--threads", type=int, default=1)
    flags.add_argument("--gpu-layers", type=int, default=None, help="unset: as many as fit")
    flags.add_argument("--pooling", choices=sorted(_POOLING), default=None, help="serve embeddings, pooled so")
    flags.add_argument("--batch-size", type=int, default=2048)
    flags.add_argument("--prompt-cache-mib", type=int, default=0)
    flags.add_argument("--no-mmap", action="store_true")
    flags.add_argument("--chat-template", default="")
    flags.add_argument("--sse-ping", type=int, default=0)
    flags.add_argument("--log-verbosity", type=int, default=2)
    flags.add_argument(
        "--lora", action="append", default=[], help="an adapter (GGUF), or a folder with one; repeatable"
    )
    flags.add_argument("--lora-on-request", action="store_true", help="apply adapters where a request asks for them")
    return flags


def await_weights(args: argparse.Namespace) -> None:
    """Import llama.cpp, which takes most of the time until it listens, and wait for the paths of its weights."""
    import xllamacpp  # noqa: F401, PLC0415 - as in `serve`

    paths = wait(args.weights_from)
    args.weights, args.lora = paths.weights, list(paths.adapters)


def serve(args: argparse.Namespace, weights: Path) -> None:
    """Load and serve; returns never, or raises RuntimeError when llama.cpp refuses."""
    import xllamacpp  # noqa: PLC0415 - an optional extra; its absence is reported by `main`

    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    params.model_alias = {args.alias}
    params.hostnames = [args.host]
    params.port = args.port
    params.n_parallel = args.slots
    params.n_ctx = args.slots * args.context_per_slot  # llama.cpp divides it among the slots
    params.n_batch = args.batch_size
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = args.threads
    # One HTTP thread stays with each open connection: a running and a pooled one for each slot, and the probes.
    params.n_threads_http = 2 * args.slots + 8
    params.warmup = False  # the one-token probe is the warm-up
    params.endpoint_metrics = params.endpoint_slots = True
    params.ui = False
    params.cors_origins = ""  # replicas are asked by the gateway, never by a page in a browser
    params.cache_ram_mib = args.prompt_cache_mib
    params.cache_idle_slots = args.prompt_cache_mib > 0
    params.sse_ping_interval = args.sse_ping or -1
    params.verbosity = args.log_verbosity
    params.load_mode = xllamacpp.llama_load_mode.LLAMA_LOAD_MODE_NONE if args.no_mmap else params.load_mode
    if args.gpu_layers is not None:
        params.n_gpu_layers = args.gpu_layers
        params.fit_params = False  # what was asked for, or a clear failure
    if args.chat_template:
        params.chat_template = args.chat_template
    if args.pooling:
        params.embedding = True
        params.pooling_type = getattr(xllamacpp.llama_pooling_type, f"LLAMA_POOLING_TYPE_{_POOLING[args.pooling]}")
        params.n_ubatch = args.batch_size  # an embedded text must fit one physical batch
    adapters = [find_weights(path) for path in args.lora]
    for adapter in adapters:
        check_gguf(adapter)
    scale = 0.0 if args.lora_on_request else 1.0  # of requests that do not say
    params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(adapter), scale) for adapter in adapters]
    _say(f"loading {weights} ({weights.stat().st_size} bytes), {args.slots} slots of {args.context_per_slot} tokens")
    server = xllamacpp.Server(params)  # returns when loaded; serves on threads of its own
    _say(f"serving {args.alias} at {server.listening_address}")
    while True:
        signal.pause()


def main(argv: Sequence[str] | None = None) -> int:
    """Run until killed; the last line on standard error says why it could not."""
    args = parser().parse_args(argv)
    try:
        if args.weights_from is not None:
            await_weights(args)
        weights = find_weights(args.weights)
        check_gguf(weights)
        serve(args, weights)
    except (BadWeights, NoWeights) as error:
        return _fail(1, str(error))
    except ImportError as error:
        return _fail(3, f"llama.cpp is not installed ({error}); install it with: pip install 'relume[llamacpp]'")
    except RuntimeError as error:
        return _fail(1, f"llama.cpp could not serve {args.weights} (the lines above say why): {error}")
    return 0


def _say(message: str) -> None:
    sys.stderr.write(f"relume-llamacpp: {message}\n")
    sys.stderr.flush()


def _fail(code: int, message: str) -> int:
    _say(message)
    return code


if __name__ == "__main__":
    sys.exit(main())  # llama.cpp's log thread writes what it still has when the process ends in order
