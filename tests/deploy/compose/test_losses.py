"""What the event log lost is told, once, and only when something was lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deploy.compose.losses import Losses
from events.clock import SystemClock
from events.log import LogStats


class Log:
    """It counts."""

    def __init__(self) -> None:
        self.counts = LogStats()

    def stats(self) -> LogStats:
        """As set."""
        return self.counts


def test_each_loss_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing lost, nothing said; then what was lost since, and in all."""
    log = Log()
    losses = Losses(log, SystemClock())
    said = []
    for dropped in (0, 7, 7, 10):
        log.counts = replace(log.counts, dropped=dropped)
        losses.look()
        said.append([record.getMessage().split(" of news")[0] for record in caplog.records])
        caplog.clear()
    assert said == [[], ["7 events"], [], ["3 events"]]
