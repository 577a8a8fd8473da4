"""Which notice stands for a run, whatever it is carried by."""

from __future__ import annotations

from events.types.training import NoticeGiven, NoticeMode
from preemption.trainer.notice import UNFENCED, Mode, Notice


class Notices:
    """The notice of one run. `goes_on`: whatever is asked, it is to save and go on, since whoever made its processes
    would start them again at once."""

    def __init__(self, *, goes_on: bool = False) -> None:
        self._goes_on = goes_on
        self._stands: Notice | None = None

    @property
    def stands(self) -> str:
        """The id of the notice that holds; empty: none."""
        return "" if self._stands is None or self._stands.mode is Mode.WITHDRAWN else self._stands.id

    def give(self, notice: NoticeGiven, epoch: int) -> None:
        """This one holds from now on."""
        stays = self._goes_on or notice.mode is NoticeMode.SAVE_AND_CONTINUE
        mode = Mode.SAVE_AND_CONTINUE if stays else Mode.SAVE_AND_EXIT
        self._stands = Notice(notice.id, epoch, notice.reason, notice.deadline, mode)

    def withdraw(self) -> None:
        """It holds no more."""
        if self._stands is not None:
            given = self._stands
            self._stands = Notice(given.id, given.epoch, given.reason, given.deadline_unix, Mode.WITHDRAWN)

    def resume(self, notice: str) -> None:
        """An earlier relume has told this one, and it holds as far as is known."""
        self._stands = Notice(notice, UNFENCED)
