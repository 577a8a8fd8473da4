"""Cluster files: what is read, what is refused with its place, and that what is generated has the published shape."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from preemption.adapters.generated import Size, generate, make_nodes, make_pods
from preemption.adapters.openb import BadFile, read_nodes, read_pods
from preemption.adapters.submitting import in_order, saturating
from preemption.core.gpus.shapes import Task

NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_node_is_read(tmp_path: Path) -> None:
    """Thousandths and MiB become thousandths and bytes; a kind that is not there is no kind."""
    nodes = read_nodes(write(tmp_path / "n.csv", NODES + "a,96000,393216,8,G2\nb,32000,262144,0,nan\n"))
    assert [(one.name, one.cpu_milli, one.memory_bytes, len(one.cards), one.model) for one in nodes] == [
        ("a", 96000, 393216 << 20, 8, "G2"),
        ("b", 32000, 262144 << 20, 0, ""),
    ]


def test_pods_are_read(tmp_path: Path) -> None:
    """A part of a card, several whole ones (whatever is said of their parts), none, and kinds that will do."""
    rows = (
        "p0,4000,1024,1,470,,BE,Running,0,,\n"
        "p1,88000,2048,8,1000,,LS,Running,0,,\n"
        "p2,32000,1024,0,,,BE,Running,0,,\n"
        "p3,16000,1024,1,1000,V100M16|V100M32,LS,Running,0,,\n"
    )
    tasks = read_pods(write(tmp_path / "p.csv", PODS + rows))
    assert [(one.gpus, one.milli, one.models) for one in tasks] == [
        (1, 470, ()), (8, 1000, ()), (0, 1000, ()), (1, 1000, ("V100M16", "V100M32")),
    ]  # fmt: skip
    assert tasks[0] == Task(cpu_milli=4000, memory_bytes=1 << 30, gpus=1, milli=470)


def test_five_columns_are_enough(tmp_path: Path) -> None:
    """As in the files of the mixes with many cards."""
    text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,4000,1024,1,500\n"
    assert read_pods(write(tmp_path / "p.csv", text))[0].milli == 500


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PODS + "p0,4000,1024,1,1500,,,,,,\n", "line 2: gpu_milli is '1500'"),
        (PODS + "p0,4000,1024,1,470,,,,,,\np1,x,1024,1,470,,,,,,\n", "line 3: cpu_milli is 'x'"),
        (PODS + "p0,4000,-5,1,470,,,,,,\n", "memory_mib is '-5'"),
        ("name,cpu_milli,num_gpu\n", "has no column memory_mib"),
        (PODS, "has no pods"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    """File, line, column and value."""
    with pytest.raises(BadFile, match=r"p\.csv") as caught:
        read_pods(write(tmp_path / "p.csv", text))
    assert said in str(caught.value)


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    """Nodes are told apart by their names."""
    with pytest.raises(BadFile, match="line 3: sn is 'a'; it is there twice"):
        read_nodes(write(tmp_path / "n.csv", NODES + "a,1000,1024,1,\na,1000,1024,1,\n"))


def test_the_generated_cluster_has_the_published_shape() -> None:
    """Nodes and cards by kind as in the public files; pods by cards asked for within a point of the published
    shares."""
    nodes = make_nodes(Size(seed=3))
    cards = Counter[str]()
    for one in nodes:
        cards[one.model] += len(one.cards)
    assert (len(nodes), cards.total()) == (1213, 6212)
    assert cards == {"G2": 4392, "T4": 842, "G3": 312, "P100": 265, "V100M32": 204, "V100M16": 195, "A10": 2}
    pods = make_pods(Size(seed=3))
    shares = Counter("part" if n == 1 and milli < 1000 else str(n) for _, _, n, milli, _ in pods)
    for kind, share in (("0", 13.3), ("part", 37.8), ("1", 48.0)):
        assert abs(100 * shares[kind] / len(pods) - share) < 1.5


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    """The same seed writes the same bytes, and the reader takes them."""
    first, second = generate(tmp_path / "a", Size(0.02, 7)), generate(tmp_path / "b", Size(0.02, 7))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert len(read_pods(first[1])) == 163
    assert [one.name for one in read_nodes(first[0])] == [one.name for one in make_nodes(Size(0.02, 7))]


def test_submissions() -> None:
    """In order: each once. With a seed: all, shuffled, and drawn ones until enough is asked for, the same each time."""
    tasks = [Task(gpus=1, milli=milli) for milli in (100, 200, 300)]
    assert [one for one, _ in in_order(tasks)] == tasks
    drawn = saturating(tasks, capacity=10_000, seed=4, arrivals=1.3)
    assert sorted(one.milli for one, _ in drawn[:3]) == [100, 200, 300]
    assert 13_000 <= sum(one.milli for one, _ in drawn) < 13_300
    assert drawn == saturating(tasks, capacity=10_000, seed=4, arrivals=1.3)
    assert len(saturating([Task(cpu_milli=1)], capacity=1000, seed=0)) == 1
