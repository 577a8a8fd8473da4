"""A save that is sealed in a thread, while training goes on."""

from __future__ import annotations

import threading
from typing import Callable

from preemption.trainer.saving import SaveFailed


class Sealing:
    """Runs `seal` at once, in a thread that keeps no process alive: what it has not committed never counts."""

    def __init__(self, seal: Callable[[], None]) -> None:
        self._seal = seal
        self._failed: SaveFailed | None = None
        self._broken: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="relume-sealing", daemon=True)
        self._thread.start()

    def wait(self) -> SaveFailed | None:
        """Wait for its end, which the ranks' patience bounds; why nothing was committed, if so. Raises RankLost."""
        self._thread.join()
        if self._broken is not None:
            raise self._broken
        return self._failed

    def _run(self) -> None:
        try:
            self._seal()
        except SaveFailed as error:
            self._failed = error
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._broken = error
