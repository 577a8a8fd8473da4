"""A whole relume under mixed traffic for long: models that go to zero and back all the time, clients that leave,
replicas that are killed, a log that forgets.

RELUME_LONG_SECONDS makes it longer than the suite has time for.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.faults import Whole, faulty, metric, recorded
from tests.support.mixed_traffic import Mixed, Seen, database_bytes, until_quiet
from tests.support.running import simulated

pytestmark = [pytest.mark.slow, pytest.mark.needs("linux")]

SECONDS = float(os.environ.get("RELUME_LONG_SECONDS", "40"))
SEED = int(os.environ.get("RELUME_LONG_SEED", "7"))
MEBIBYTE = 1 << 20


def documents() -> dict[str, str]:
    """Five models: quick and slow starts, all three ways to cancel, one slot and many."""
    answers = "timeToFirstToken: 20ms, interTokenLatency: 10ms"
    kinds = [
        ("swift", f"startTime: 100ms, {answers}", "  slots: 4", {"keepAlive": "1s"}),
        ("jittery", f"startTime: 300ms, startJitter: 2s, {answers}", "  slots: 2", {"keepAlive": "2s"}),
        ("stubborn", f"startTime: 200ms, cancels: never, stopTime: 1s, {answers}", "  slots: 3", {"keepAlive": "1s"}),
        ("streamer", f"startTime: 200ms, cancels: streams, {answers}", "  slots: 1", {"keepAlive": "3s"}),
        ("fragile", f"startTime: 200ms, crashAfter: 25, {answers}", "  slots: 4", {"keepAlive": "2s"}),
    ]
    return {
        name: simulated(name, options=options, extra=slots, stableWindow="2s", **scaling)
        for name, options, slots, scaling in kinds
    }


def told(seen: Seen) -> str:
    """What a failure needs to be understood, and what a long run measures."""
    shown = seen.vitals[:: max(1, len(seen.vitals) // 20)]
    sizes = seen.database[:: max(1, len(seen.database) // 20)]
    return (
        f"seed {SEED}, {SECONDS:g} s\noutcomes {dict(seen.outcomes)}\nkills {seen.kills}\n"
        f"RSS MiB {[round(one.rss / MEBIBYTE) for one in shown]}\nfds {[one.fds for one in shown]}\n"
        f"threads {[one.threads for one in shown]}\ndatabase KiB {[size // 1024 for size in sizes]}"
    )


async def test_nothing_is_lost_and_nothing_leaks(tmp_path: Path) -> None:
    """Every request ends in an answer, a typed error or a visible break; every model comes to rest; memory, files,
    threads and the log stay bounded; and relume starts again on what the log has kept."""
    models = documents()
    # The smallest bounds there are: news older than a minute goes, and the oldest of more than a mebibyte.
    bounds = ("--events-age", "60s", "--events-bytes", "1Mi", "--cpu", "8", "--memory", "8Gi")
    whole = Whole(tmp_path, "---\n".join(models.values()), *bounds)
    async with faulty(whole) as relume:
        mixed = Mixed(relume, whole, list(models), SEED)
        async with until_quiet(relume, list(models)):
            seen = await mixed.run(SECONDS)
        sys.stderr.write(told(seen) + "\n")  # shown with -s
        assert seen.lost == [], told(seen)
        assert seen.kills, told(seen)
        served, hopeless = seen.outcomes["whole"], seen.outcomes["503 model_start_failed"]
        assert served > 0.5 * seen.outcomes.total(), told(seen)
        assert hopeless < 0.2 * served, "a kill now and then is no crash loop: " + told(seen)
        assert await metric(relume, "relume_desk_commands_failed_total") == 0
        assert await metric(relume, "relume_desk_news_pending") == 0
        settled = seen.vitals[len(seen.vitals) // 3 :]
        # A third of the way in everything has been loaded and filled once; what grows from there on is a leak.
        assert seen.vitals[-1].threads <= settled[0].threads + 2, told(seen)
        assert whole.vitals().fds <= min(one.fds for one in seen.vitals) + 64, told(seen)
        assert max(one.rss for one in settled) <= settled[0].rss + 48 * MEBIBYTE, told(seen)
        assert max(seen.database) <= 64 * MEBIBYTE, told(seen)
        declared = {event["subject"] for event in await recorded(relume, "relume.models", "model.declared")}
        assert declared == {f"model/{name}" for name in models}, "retention keeps the newest state of each key"
    async with faulty(whole) as relume:  # on what was kept
        for name in models:
            answer = await relume.chat(name)
            assert answer.status == 200, await answer.text()
    assert database_bytes(tmp_path) <= 64 * MEBIBYTE
