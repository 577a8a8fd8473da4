"""The trainer's side of relume: lend a GPU, and lose no step when it is wanted back.

This package needs nothing but Python 3.9, is part of relume, and is also published alone as `relume-trainer`.
"""

from preemption.trainer.board import FolderBoard, RankLost, Ranks
from preemption.trainer.guard import CheckpointGuard, Preempted
from preemption.trainer.saving import RestoreFailed, SaveFailed
from preemption.trainer.settings import GuardSettings

__all__ = [
    "CheckpointGuard",
    "FolderBoard",
    "GuardSettings",
    "Preempted",
    "RankLost",
    "Ranks",
    "RestoreFailed",
    "SaveFailed",
]
