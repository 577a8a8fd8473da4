"""Ranks: named by the environment, on a board that may be away; and the order of batches among them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preemption.trainer import RankLost, Ranks
from preemption.trainer.adapters.batches import Batches
from preemption.trainer.board import BoardUsed, FolderBoard, LocalBoard


def test_without_a_launcher_it_is_the_only_one() -> None:
    """No variable, or a world of one."""
    assert Ranks.from_environment({}).world == 1
    assert Ranks.from_environment({"RANK": "0", "WORLD_SIZE": "1"}).world == 1


def test_a_launchers_ranks_meet_in_the_folder_that_relume_names(tmp_path: Path) -> None:
    """Two ranks of one start gather; those of a restart by torchrun do not see what the first ones wrote."""
    said = {"WORLD_SIZE": "2", "RELUME_BOARD": str(tmp_path), "TORCHELASTIC_RUN_ID": "a/b"}
    first = [Ranks.from_environment({**said, "RANK": str(rank), "TORCHELASTIC_RESTART_COUNT": "0"}) for rank in (0, 1)]
    helper = threading.Thread(target=first[1].gather, args=("one", 10.0))
    helper.start()
    assert first[0].gather("zero", 10.0) == ["zero", "one"]
    helper.join()
    again = Ranks.from_environment({**said, "RANK": "0", "TORCHELASTIC_RESTART_COUNT": "1"})
    with pytest.raises(RankLost):
        again.gather("zero", 0.05)


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"WORLD_SIZE": "2", "RANK": "1"}, "RELUME_BOARD"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE"),
        ({"WORLD_SIZE": "2", "RANK": "2", "RELUME_BOARD": "b"}, "rank: must be"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    environment: dict[str, str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several ranks that each take themselves for the only one would overwrite each other."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=says):
        Ranks.from_environment(environment)


class Flaky(LocalBoard):
    """Away for the first calls."""

    def __init__(self, away: int) -> None:
        super().__init__()
        self.away = away

    def put(self, key: str, value: str) -> None:
        self.trip()
        super().put(key, value)

    def get(self, key: str) -> str | None:
        self.trip()
        return super().get(key)

    def trip(self) -> None:
        self.away -= 1
        if self.away >= 0:
            raise OSError("stale file handle")


def test_a_board_that_comes_back_lost_nobody() -> None:
    """Writing and reading are tried again, until patience ends."""
    ranks = Ranks(0, 2, Flaky(3))
    ranks.board.away = 3  # type: ignore[attr-defined] # it is Flaky
    ranks.put("meeting/1/1", "one", 5.0)
    assert ranks.gather("zero", 5.0) == ["zero", "one"]
    with pytest.raises(RankLost, match="stale file handle"):
        Ranks(0, 2, Flaky(10_000)).gather("zero", 0.05)


def test_halls_are_apart() -> None:
    """What a thread meets about is not heard by the loop's meetings."""
    board = LocalBoard()
    zero, one = Ranks(0, 2, board), Ranks(1, 2, board)
    zero.beside("seal").put("seal/1/0", "sealed", 1.0)
    board.put("meeting/1/0", "trained")
    assert one.gather("x", 1.0) == ["trained", "x"]
    assert one.beside("seal").gather("y", 1.0) == ["sealed", "y"]


@given(st.integers(1, 200), st.integers(1, 8), st.integers(1, 4), st.integers(0, 50), st.integers(0, 9))
def test_batches_go_on_anywhere_and_share_without_overlap(
    samples: int, size: int, world: int, start: int, seed: int
) -> None:
    """From any step on, the order is that of a whole run; ranks share each batch, and an epoch repeats no sample."""
    if samples < size * world:
        with pytest.raises(ValueError, match="make no batch"):
            Batches(samples, size, seed=seed, share=(0, world))
        return
    whole = [iter(Batches(samples, size, seed=seed, share=(rank, world))) for rank in range(world)]
    rests = [iter(Batches(samples, size, seed=seed, start=start, share=(rank, world))) for rank in range(world)]
    per_epoch = samples // (size * world)
    seen = [[next(one) for one in whole] for _ in range(start + per_epoch)]
    assert [[next(one) for one in rests] for _ in range(per_epoch)] == seen[start:]
    epoch = [index for batch in seen[:per_epoch] for part in batch for index in part]
    assert len(set(epoch)) == len(epoch) == per_epoch * size * world


def test_a_board_of_an_earlier_start_is_refused(tmp_path: Path) -> None:
    """Else a rank would follow what was agreed on then: one would go on at another step than the others."""
    FolderBoard(tmp_path).put("meeting/1/0", "34")
    with pytest.raises(BoardUsed, match="make a new one for each start"):
        Ranks(0, 2, FolderBoard(tmp_path)).follow("38", 10.0)

    FolderBoard(tmp_path).put("meeting/2/1", "")
    second = Ranks(1, 2, FolderBoard(tmp_path))
    assert second.follow("", 10.0) == "34"
    with pytest.raises(BoardUsed, match="rank 1 finds meeting/2/1"):
        second.gather("", 10.0)
