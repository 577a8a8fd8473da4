"""Boards on the frameworks' own stores: one rank writes, another reads, and a store that is gone says so."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import torch.distributed as dist

from preemption.trainer import RankLost, Ranks
from preemption.trainer.adapters.torch import StoreBoard
from tests.support.trainer_runs import ROOT
from tests.trainers.runs import BOUND, free_port


def connect(host: dist.TCPStore) -> StoreBoard:
    """Another rank's connection."""
    return StoreBoard(dist.PrefixStore("relume", dist.TCPStore("127.0.0.1", host.port, is_master=False)))


def test_torchs_store_carries_what_ranks_say() -> None:
    """What is not there is None, a value may be written over, and a meeting comes together."""
    host = dist.TCPStore("127.0.0.1", free_port(), is_master=True)
    one, two = connect(host), connect(host)
    assert one.get("a") is None
    one.put("a", "ä 1")
    one.put("a", "ä 2")
    assert two.get("a") == "ä 2"
    other = threading.Thread(target=Ranks(1, 2, two).gather, args=("one", 10.0))
    other.start()
    assert Ranks(0, 2, one).gather("zero", 10.0) == ["zero", "one"]
    other.join()


def test_torchs_store_that_is_gone_is_a_lost_rank() -> None:
    """Its errors are the board's, which are tried again until patience ends."""
    host = dist.TCPStore("127.0.0.1", free_port(), is_master=True)
    board = connect(host)
    board.put("a", "1")
    del host
    with pytest.raises(OSError, match="torch's store"):
        board.get("b")
    with pytest.raises(RankLost, match="torch's store"):
        Ranks(0, 2, board).gather("zero", 0.2)


COORDINATED = """
import sys, jax
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]), initialization_timeout=60)
from preemption.trainer.adapters.jax import ranks
ranks = ranks()
assert (ranks.rank, ranks.world) == (int(sys.argv[2]), 2)
assert ranks.board.get("nothing") is None
ranks.board.put("twice", "1")
ranks.board.put("twice", "2")
assert ranks.board.get("twice") == "2"
print(ranks.gather(f"rank {ranks.rank}", 60.0))
"""


def test_jaxs_coordination_service_carries_what_processes_say() -> None:
    """Two processes of `jax.distributed` come together on it."""
    place = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-W", "ignore", "-c", COORDINATED, place]
    both = [
        subprocess.Popen([*command, str(rank)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    for process in both:
        said, trouble = process.communicate(timeout=BOUND)
        assert said == "['rank 0', 'rank 1']\n", trouble
