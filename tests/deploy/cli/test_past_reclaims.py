"""`relume reclaims ls --since`: what the board has let go, read back from the log."""

from __future__ import annotations

import pytest

from tests.deploy.cli.conftest import LiveAdmin, Relume
from tests.support.training_events import resumed


@pytest.mark.parametrize("since", ["7d", "2020-01-01T00:00:00Z"])
def test_older_ones_are_a_page_away(live: LiveAdmin, relume: Relume, since: str) -> None:
    """The last line says how to go on; a time may be a duration ago."""
    for index in range(3):
        live.do(live.admin.say(resumed(f"r{index}")))
    ran = relume("reclaims", "ls", "--since", since, "--limit", "2", live=live)
    assert [line.split()[0] for line in ran.out.splitlines()] == ["ID", "r1", "r2"]
    again = ran.err.splitlines()[-1].removeprefix("there are older ones: relume ").split()
    older = relume(*again, live=live)
    assert [line.split()[0] for line in older.out.splitlines()] == ["ID", "r0"]
    assert "older" not in older.err


@pytest.mark.parametrize("arguments", [["--until", "1h"], ["--since", "7"]])
def test_wrong_use_is_told(live: LiveAdmin, relume: Relume, arguments: list[str]) -> None:
    """A number without a unit is no duration; an end needs a beginning."""
    assert relume("reclaims", "ls", *arguments, live=live).code == 2
