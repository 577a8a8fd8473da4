"""Back-off: delays, side-by-side starts, probation."""

from __future__ import annotations

from dataclasses import replace

from deploy.local.backoff import Backoff, Failure, broke, delay, failed, lived, succeeded
from events.units import Instant, Seconds


def failure(began_at: float, reason: str = "Crashed") -> Failure:
    """A failure of a start that began then."""
    return Failure(Instant(began_at), reason, "message", ("last", "lines"))


def after(times: int, backoff: Backoff | None = None, at: float = 0.0) -> Backoff:
    """After so many failures in a row, each of a start that began after the one before."""
    backoff = backoff or Backoff()
    for number in range(times):
        backoff = failed(backoff, failure(at + number), Instant(at + number + 0.5))
    return backoff


def test_delays_double_to_five_minutes() -> None:
    """1, 2, 4, … and never more than 300 seconds, however many failures."""
    assert [delay(number) for number in range(11)] == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    assert delay(10_000) == 300


def test_a_failure_may_have_its_own_bound() -> None:
    """What others may end at any moment: 1, 2, 4 and then no longer than it says, though the count goes on."""
    state = Backoff()
    waits = []
    for number in range(6):
        passing = replace(failure(float(number)), retry_within=Seconds(15.0))
        state = failed(state, passing, Instant(number + 0.5))
        assert state.retry_at is not None
        waits.append(state.retry_at - number - 0.5)
    assert (waits, state.failures) == ([1, 2, 4, 8, 15, 15], 6)


def test_failure_says_when_and_why() -> None:
    """The count, the next try, the reason and the last lines are kept."""
    state = after(3)
    assert (state.failures, state.retry_at, state.reason, state.log_tail) == (3, 2.5 + 4, "Crashed", ("last", "lines"))


def test_starts_side_by_side_count_once() -> None:
    """A start that began before the last failure was known adds nothing but its reason."""
    first = failed(Backoff(), failure(10.0), Instant(12.0))
    second = failed(first, failure(11.0, "OOMKilled"), Instant(15.0))
    assert (second.failures, second.retry_at, second.reason) == (1, first.retry_at, "OOMKilled")
    assert failed(second, failure(14.0), Instant(16.0)).failures == 2


def test_success_clears() -> None:
    """After a success nothing stands against the next start, and there is nothing to tell."""
    state = succeeded(after(4))
    assert (state.failures, state.retry_at, state.reason, state.log_tail) == (0, None, "", ())


def test_crash_in_probation_goes_on_counting() -> None:
    """A replica that gets ready and breaks within a minute is a crash loop: 5 follows 4."""
    state = succeeded(after(4))
    state = broke(state, failure(100.0), ready_at=Instant(101.0), now=Instant(160.0))
    assert (state.failures, state.retry_at) == (5, 160.0 + 16)


def test_crash_after_probation_starts_at_once() -> None:
    """A replica that lived for a minute has earned its next start; what happened is still told."""
    state = broke(succeeded(after(4)), failure(100.0), ready_at=Instant(101.0), now=Instant(161.0))
    assert (state.failures, state.retry_at, state.reason) == (0, None, "Crashed")
    assert failed(state, failure(162.0), Instant(163.0)).failures == 1


def test_success_twice_keeps_the_count() -> None:
    """Two replicas that get ready one after the other do not shorten the probation's memory."""
    assert succeeded(succeeded(after(4))).probation == 4


def test_lived_forgets() -> None:
    """After a lived minute failures begin at one again."""
    assert failed(lived(succeeded(after(4))), failure(200.0), Instant(201.0)).failures == 1
