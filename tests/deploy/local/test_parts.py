"""Small parts of the local cluster: environment, cores, ports, declarations, engines' metrics, memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.addresses import NoFreePort, Ports, is_conflict
from deploy.local.cores import Cores
from deploy.local.declared import InvalidDeclaration, local_path, read_declaration
from deploy.local.environment import MARK_DATA, MARK_REPLICA, Marks, child_environment
from deploy.local.readings import read_metrics
from deploy.local.usage import measure_trees, parse_stat, parse_status
from events.types.metrics import ReplicaMetrics
from events.types.models import ModelDeclared
from runtime.core.policy import Timeouts

MARKS = Marks(replica="m-r1-0", data_dir="/data", port=4242, cpu=1.5, cards=("GPU-1", "virtual-0"), devices=("GPU-1",))


def test_no_secret_of_ours_reaches_an_engine() -> None:
    """Only names on the list go through; keys, tokens and our own settings do not."""
    ours = {
        "PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "OPENAI_API_KEY": "s", "AWS_SECRET_ACCESS_KEY": "s",
        "RELUME_ADMIN_TOKEN_FILE": "/t", "HF_TOKEN": "s", "LD_PRELOAD": "/x.so", "PYTHONPATH": "/x",
    }  # fmt: skip
    made = child_environment(ours, MARKS, {})
    assert set(made) & set(ours) == {"PATH", "HOME", "LC_ALL"}
    assert "s" not in made.values()


def test_engine_variables_and_marks() -> None:
    """An engine's own variables win over ours, but neither over the marks nor over the cards."""
    engine = {"PATH": "/opt", "HF_TOKEN": "given on purpose", "CUDA_VISIBLE_DEVICES": "all", MARK_REPLICA: "other"}
    made = child_environment({"PATH": "/bin"}, MARKS, engine)
    assert made["PATH"] == "/opt"
    assert made["HF_TOKEN"] == "given on purpose"
    assert (made[MARK_REPLICA], made[MARK_DATA]) == ("m-r1-0", "/data")
    assert (made["CUDA_VISIBLE_DEVICES"], made["RELUME_GPUS"]) == ("GPU-1", "GPU-1,virtual-0")
    assert (made["OMP_NUM_THREADS"], made["RELUME_PORT"]) == ("2", "4242")


def test_no_cards() -> None:
    """A replica without real cards sees none, whatever the machine has."""
    made = child_environment({"CUDA_VISIBLE_DEVICES": "0,1"}, Marks("m-r1-0", "/data", 1, 0.0, ("virtual-0",)), {})
    assert (made["CUDA_VISIBLE_DEVICES"], made["NVIDIA_VISIBLE_DEVICES"]) == ("", "void")
    assert "OMP_NUM_THREADS" not in made


def test_cores_are_shared_out() -> None:
    """Each replica gets as many cores as its share rounded up, those that carry least, and gives them back."""
    cores = Cores((0, 1, 2, 3))
    for name, cpu in (("a", 1.0), ("b", 1.5), ("c", 1.0), ("d", 0.5), ("e", 0.0), ("f", 9.0)):
        cores.take(name, cpu)
    assert [cores.of(name) for name in "abcdef"] == [(0,), (1, 2), (3,), (1,), (), ()]
    cores.give_back("a")
    cores.take("g", 1.0)
    assert cores.of("g") == (0,)
    with pytest.raises(KeyError):
        cores.give_back("a")


def test_no_affinity() -> None:
    """Where the system does not let cores be chosen, none are."""
    cores = Cores(())
    cores.take("a", 2.0)
    assert cores.of("a") == ()


def test_ports_do_not_repeat() -> None:
    """Many starts at once get different ports."""
    ports = Ports()
    chosen = [ports.choose() for _ in range(200)]
    assert len(set(chosen)) == 200
    with pytest.raises(NoFreePort):
        Ports("203.0.113.1").choose()  # an address that is not ours (RFC 5737)


@pytest.mark.parametrize(
    ("line", "conflict"),
    [
        ("OSError: [Errno 98] Address already in use", True),
        ("OSError: [Errno 48] Address already in use", True),
        ("couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080", True),
        ("error: listen EADDRINUSE: address already in use :::8080", True),
        ("CUDA out of memory", False),
        ("the model binds to 98 layers", False),
    ],
)
def test_port_conflicts(line: str, conflict: bool) -> None:
    """Python's, Node's and llama.cpp's words for a taken port are known; others are no conflict."""
    assert is_conflict(("loading", line)) is conflict


def declared(**spec: object) -> ModelDeclared:
    """A declaration."""
    return ModelDeclared(model="m", uid="u", revision=1, generation=1, spec=spec)  # type: ignore[arg-type]  # JSON


def test_declaration() -> None:
    """What is written is read, and what is left out has its default."""
    engine = {"type": "command", "options": {"command": ["x", "{port}"]}}
    read = read_declaration(
        declared(engine=engine, slots=2, weights={"uri": "file:///a%20b"}, timeouts={"total": "9s"})
    )
    assert (read.weights, read.slots, read.options) == ("/a b", 2, engine["options"])
    assert read.timeouts == Timeouts(first_byte=60.0, idle=120.0, total=9.0)  # type: ignore[arg-type]  # plain numbers
    assert read_declaration(declared(engine=engine)).slots == 4


@pytest.mark.parametrize(
    ("spec", "where"), [({}, "spec"), ({"engine": {"type": "steam"}}, "type"), ({"engine": 3}, "spec")]
)
def test_invalid_declaration(spec: dict[str, object], where: str) -> None:
    """What cannot be run says where it is wrong."""
    with pytest.raises(InvalidDeclaration, match=where):
        read_declaration(declared(**spec))


def test_paths_of_weights() -> None:
    """Paths and file URIs are local; stores are not, and file URIs of other hosts are not."""
    assert local_path("") == ""
    assert local_path("/a/b") == "/a/b"
    assert local_path("~/b") == str(Path.home() / "b")
    assert local_path("file://localhost/b") == "/b"
    for uri in ("hf://a/b", "file://other/b", "https://x/y"):
        with pytest.raises(InvalidDeclaration, match="not a local file"):
            local_path(uri)


LLAMACPP = b"""# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 12
llamacpp:tokens_predicted_total 34
llamacpp:requests_processing 2
llamacpp:requests_deferred 1
"""
VLLM = b"""vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} NaN
vllm:kv_cache_usage_perc{engine="0",model_name="a } b"} 0.25 1700000000000
vllm:generation_tokens_total{engine="0"} 7e2
vllm:generation_tokens_created{engine="0"} 1.7e9
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LLAMACPP, {"running": 2, "waiting": 1, "tokens_in_total": 12, "tokens_out_total": 34}),
        (VLLM, {"running": 4, "kv_cache_use": 0.25, "tokens_out_total": 700}),
        (b"", {}),
        (b"\xff\xfe garbage\nvllm:num_requests_running many\n", {}),
    ],
    ids=["llama.cpp", "vLLM", "empty", "garbage"],
)
def test_metrics(text: bytes, expected: dict[str, float]) -> None:
    """Engines' own names become ours; what is not there, or no number, is unknown and not zero."""
    assert read_metrics(text, "m", "m-r1-0", 1) == ReplicaMetrics(model="m", replica="m-r1-0", revision=1, **expected)


@pytest.mark.needs("linux")
def test_a_process_named_like_a_trap() -> None:
    """Parent and CPU time are found behind the last parenthesis, whatever the process calls itself."""
    line = b"7 (a) R 1 (b) S 42 7 7 0 -1 4194304 1 0 0 0 150 50 0 0 20 0 1 0 99 0 0\n"
    assert parse_stat(7, line, 100) == (7, 42, 2.0)


def test_memory_that_counts() -> None:
    """Private and shared memory are told apart from mapped files, in the kernel's words."""
    sizes = parse_status("Name:\tx\nVmRSS:\t   900 kB\nRssAnon:\t   300 kB\nRssFile:\t  500 kB\nRssShmem:\t 100 kB\n")
    assert (sizes["RssAnon"], sizes["RssShmem"]) == (300 << 10, 100 << 10)


@pytest.mark.needs("linux")
def test_trees_are_measured(tmp_path: Path) -> None:
    """Memory and work of the processes below a root are seen; a mapped file is not memory of theirs."""
    (tmp_path / "weights").write_bytes(bytes(64 << 20))
    program = (
        "import mmap, sys; f = open(sys.argv[1], 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); "
        "sum(m[i] for i in range(0, len(m), 4096)); b = bytearray(b'x') * (32 << 20); print('up', flush=True); input()"
    )
    # a shell above it, for this process may be the parent of others, such as those that a fixture has started
    command = ["sh", "-c", '"$@"; true', "sh", sys.executable, "-c", program, str(tmp_path / "weights")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        use = measure_trees([child.pid])[child.pid]
        child.communicate(b"\n")
    assert 32 << 20 <= use.memory_bytes < 60 << 20
    assert use.cpu_seconds > 0
    assert measure_trees([child.pid]) == {}
