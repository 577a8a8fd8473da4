"""How many requests at a time one replica bears, learned: the concurrency at which latency leaves the objectives.

Every ten seconds the view tells what a replica carried and how late answers were (`Evidence`). It is sorted by
concurrency into levels, a few an octave; each counts answers and late ones, and forgets. Where a level breaks an
objective by more than chance, the limit is half way from it down to the highest that was lately fine; after a while in
which the limit was kept, the next level up is tried again. So an engine that becomes slower is noticed, and one that
recovers too. A trial that fails costs many answers their promise, so after each one in a row the next waits twice as
long, while the promise is used up faster than it allows; an engine that has become much faster is tried without that
wait. The tokens a second that a replica made at the limit are remembered beside it.

An engine that is slow by itself breaks its promise at every level. More replicas do not mend that: once fewer at a time
were tried and took as long, nothing is limited (`in_vain`), until it is tried again.

All of it is in the decision's memory, so a decision can be taken again from its record, and a restart forgets nothing.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, exp, sqrt
from typing import Final

from autoscaler.core.policy import Objective, Promised, ScalingPolicy
from events.kinds import hot_value, value
from events.types.shared import Amount, At, Count
from events.units import Instant

STEPS: Final = (
    1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320,
    384, 448, 512, 640, 768, 896, 1024,
)  # fmt: skip
"""Concurrency of one replica, upper ends of levels: by one, then four an octave. What is above counts to the last."""

LEVELS_MOST: Final = 12
"""Levels remembered; the one with the fewest answers makes room. A model moves over a few octaves."""

ANSWERS_LEAST: Final = 20
"""Of fewer answers at a level nothing is concluded (as with burn rates)."""

ANSWERS_KEPT: Final = 400.0
"""A level counts so many at most, in proportion: what is new must weigh. At a promise for 95 % then 20 late are
allowed, and 30 are no chance: at ten answers a second an engine that is late with all is noticed in two looks."""

FADE: Final = 1800.0
"""Seconds in which what was counted fades to a third without anything new."""

CHANCE: Final = 2.0
"""Standard deviations of late answers that may be chance."""

AGAIN: Final = 600.0
"""Seconds after which the next level up is tried again, and a limit that was in vain."""

FAILED_MOST: Final = 3
"""Failed trials in a row that count: each doubles the wait for the next, to eight times `AGAIN`. Chosen: what an engine
that recovered by less than a half is kept from costs replicas, for eighty minutes at most."""

FASTER: Final = 0.5
"""An answer takes at most this part of what it took when the limit was met: the engine has recovered. Fewer at a time,
down to where a limit is tried from (`FEWER` of `FEWER`), alone make it no faster where it slows down in proportion."""

SPENT: Final = 1.0
"""While the promise is used up no faster than it allows, by the last hour, a trial that fails can be borne. Exact."""

HELD_PART: Final = 0.25
"""Answers of a time in which requests waited longer for a slot than this part of the promise prove only that they were
surely late without the wait: what the engine took is not known well enough to call them good."""

SAME: Final = 0.9
"""With fewer at a time an answer takes at least this part of what it took before: then it is not the concurrency."""

FEWER: Final = 0.75
"""So much fewer at a time is enough to tell."""

LEAST_PART: Final = 0.125
"""The limit is at least this part of the slots: what is learned must not cost more than eight times. Chosen."""

NEW: Final = 0.5
"""Weight of new times and rates against old ones of the level. Chosen."""


@value
class Evidence:
    """What one replica carried in the ten seconds up to `ended_at`, and how late answers were.

    `concurrency`: requests that ran, on average, a ready replica. `answers`, `late`: by objective of latency, in order.
    `seconds`: mean time of an answer without its wait, of the first objective. `held`: the longest wait for a slot.
    `tokens`: made a second by a replica (None: nobody says). `ready`: replicas. `spent`: how fast the promise was used
    up in the last hour; 1 is as fast as it allows (None: not known).
    """

    ended_at: At
    concurrency: Amount
    answers: tuple[Count, ...]
    late: tuple[Count, ...]
    seconds: Amount | None = None
    held: Amount = 0.0
    tokens: Amount | None = None
    ready: Count = 1
    spent: Amount | None = None


@hot_value
class Level:
    """What was seen with up to `upto` at a time on a replica; as of `at`."""

    upto: Count
    answers: tuple[Amount, ...]
    late: tuple[Amount, ...]
    seconds: Amount | None
    tokens: Amount | None
    at: At


@hot_value
class Capacity:
    """What was learned of one revision. `limit`: requests at a time that a replica bears (None: no limit was met),
    since `limited_at`; `tokens`: a second by a replica at the limit. `in_vain`: fewer at a time were tried and were as
    late. `seen_at`: the last evidence. `trying`: the limit was raised and has not been kept for long enough; `failed`:
    trials in a row that ended in a lower limit; `pace`: the longest mean time of an answer near the limit, since."""

    revision: Count
    objectives: tuple[Objective, ...]
    levels: tuple[Level, ...] = ()
    limit: Count | None = None
    limited_at: At | None = None
    tokens: Amount | None = None
    in_vain: bool = False
    seen_at: At | None = None
    trying: bool = False
    failed: Count = 0
    pace: Amount | None = None


def latencies(policy: ScalingPolicy) -> tuple[Objective, ...]:
    """The objectives that say how long an answer may take."""
    return tuple(one for one in policy.objectives if one.of is not Promised.AVAILABILITY)


def learn(
    known: Capacity | None, evidence: Evidence | None, policy: ScalingPolicy, revision: int, now: Instant
) -> Capacity | None:
    """What is known with this evidence; evidence that was learned from already changes nothing."""
    if not policy.learns or (known is None and evidence is None):
        return None
    objectives = latencies(policy)
    if known is not None and (known.revision != revision or known.objectives != objectives):
        known = None
    if evidence is None or not objectives or not now - AGAIN <= evidence.ended_at <= now:
        return known
    if known is None:
        known = Capacity(revision=revision, objectives=objectives)
    if known.seen_at is not None and evidence.ended_at <= known.seen_at <= now:
        return known
    if len(evidence.answers) != len(objectives) or len(evidence.late) != len(objectives):
        return known  # told for other objectives
    if not evidence.concurrency or not sum(evidence.answers):
        return replace(known, seen_at=evidence.ended_at)
    return _limited(_gathered(known, evidence), evidence, policy)


def bearable(policy: ScalingPolicy, known: Capacity | None) -> ScalingPolicy:
    """The policy with what a replica was learned to bear in place of its slots; the target in the same proportion."""
    if not policy.learns or known is None or known.limit is None or known.limit >= policy.slots:
        return policy
    target = max(1.0, policy.target * known.limit / policy.slots)
    return replace(policy, slots=known.limit, target=target)


def token_floor(known: Capacity | None, evidence: Evidence | None, now: Instant) -> int:
    """Replicas that the tokens of now need, at the tokens a second of the limit: they hold up, whatever the number of
    requests says. 0 where nothing of it is known."""
    if known is None or known.limit is None or not known.tokens or evidence is None or evidence.tokens is None:
        return 0
    if not now - 30.0 <= evidence.ended_at <= now:
        return 0
    return max(0, ceil(evidence.ready * evidence.tokens / known.tokens - 0.1))


def _step(concurrency: float) -> int:
    """The level of this concurrency: by the nearest integer, so that 4.02 is 4."""
    return next((step for step in STEPS if concurrency < step + 0.5), STEPS[-1])


def _gathered(known: Capacity, evidence: Evidence) -> Capacity:
    """The levels with the new evidence in its place."""
    upto = _step(evidence.concurrency)
    mine = next((one for one in known.levels if one.upto == upto), None)
    others = [one for one in known.levels if one.upto != upto]
    answers, late = tuple(map(float, evidence.answers)), tuple(map(float, evidence.late))
    if evidence.held > HELD_PART * min(one.within for one in known.objectives):
        answers = late  # only what was surely late
    seconds, tokens = evidence.seconds, evidence.tokens
    if mine is not None:
        keep = exp(-max(0.0, evidence.ended_at - mine.at) / FADE)
        answers = tuple(new + old * keep for new, old in zip(answers, mine.answers, strict=True))
        late = tuple(new + old * keep for new, old in zip(late, mine.late, strict=True))
        seconds, tokens = _mixed(mine.seconds, seconds), _mixed(mine.tokens, tokens)
    scale = min(1.0, ANSWERS_KEPT / max(1.0, *answers))
    level = Level(
        upto=upto, answers=tuple(round(one * scale, 3) for one in answers),
        late=tuple(round(one * scale, 3) for one in late), seconds=seconds, tokens=tokens, at=evidence.ended_at,
    )  # fmt: skip
    if len(others) >= LEVELS_MOST:
        others.remove(min(others, key=lambda one: (sum(one.answers), one.upto)))
    levels = tuple(sorted([*others, level], key=lambda one: one.upto))
    return replace(known, levels=levels, seen_at=evidence.ended_at)


def _mixed(old: float | None, new: float | None) -> float | None:
    if old is None or new is None:
        return old if new is None else new
    return old + NEW * (new - old)


def _limited(known: Capacity, evidence: Evidence, policy: ScalingPolicy) -> Capacity:
    """The limit as the newest evidence has it."""
    upto = _step(evidence.concurrency)
    mine = next(one for one in known.levels if one.upto == upto)
    if _breaks(mine, known.objectives):
        return _lowered(known, mine, policy)
    fine = _fine(mine, known.objectives)
    near = upto >= FEWER * FEWER * (policy.slots if known.limit is None else known.limit)
    if known.trying and fine and near and _rested(known, mine):
        known = replace(known, trying=False, failed=0)
    if known.limit is None:
        return replace(known, in_vain=False) if known.in_vain and fine else known
    if fine and near:
        if _rested(known, mine, _patience(known, mine, evidence)):
            return _raised(known, mine, policy)
        pace = max((one for one in (known.pace, mine.seconds) if one is not None), default=None)
        return replace(known, pace=pace, tokens=_tokens(known.levels, known.limit))
    return replace(known, tokens=_tokens(known.levels, known.limit))


def _rested(known: Capacity, mine: Level, patience: int = 1) -> bool:
    """Whether what is known has stood for so many times the usual while."""
    return known.limited_at is None or mine.at - known.limited_at >= AGAIN * patience


def _patience(known: Capacity, mine: Level, evidence: Evidence) -> int:
    """How many times as long as usual the limit stands. A failed trial costs answers their promise, so each doubles it:
    not where the promise bears another trial, and not where the engine has become much faster."""
    if evidence.spent is not None and evidence.spent <= SPENT:
        return 1
    if known.pace is not None and mine.seconds is not None and mine.seconds <= FASTER * known.pace:
        return 1
    return 1 << known.failed


def _lowered(known: Capacity, mine: Level, policy: ScalingPolicy) -> Capacity:
    """This level breaks an objective: a lower one is the limit (`_below`), unless it is not the number at a time."""
    at = mine.at
    if known.in_vain:
        return replace(known, in_vain=False, levels=(mine,), limited_at=at) if _rested(known, mine) else known
    if any(_as_slow(one, mine, known.objectives) for one in known.levels):
        return replace(known, limit=None, tokens=None, in_vain=True, limited_at=at, trying=False, failed=0, pace=None)
    limit = min(_below(known, mine), policy.slots if known.limit is None else known.limit)
    limit = max(limit, ceil(LEAST_PART * policy.slots), 1)
    failed = known.failed + 1 if known.trying else known.failed
    return replace(
        known, limit=limit, limited_at=at, tokens=_tokens(known.levels, limit), trying=False,
        failed=min(failed, FAILED_MOST),
    )  # fmt: skip


def _below(known: Capacity, mine: Level) -> int:
    """Half way, in levels, from the highest that was lately fine up to this one, which is not: an engine whose answers
    take longer the more it has to do passes from the one to the other in seconds. The next below where none is."""
    below = [step for step in STEPS if step < mine.upto] or [1]
    fresh = [one for one in known.levels if one.upto < mine.upto and one.at >= mine.at - AGAIN]
    fine = [one.upto for one in fresh if _fine(one, known.objectives)]
    between = [step for step in below if fine and step >= max(fine)]
    return between[(len(between) - 1) // 2] if between else below[-1]


def _raised(known: Capacity, mine: Level, policy: ScalingPolicy) -> Capacity:
    """The limit was kept for long enough: the next level up is tried."""
    limit = known.limit or 1
    higher = next((step for step in STEPS if step > limit), STEPS[-1])
    kept = tuple(one for one in known.levels if one.upto < higher)
    none = higher >= policy.slots
    return replace(
        known, limit=None if none else higher, limited_at=mine.at, levels=kept, tokens=_tokens(kept, higher),
        trying=True, pace=None,
    )  # fmt: skip


def _breaks(level: Level, objectives: tuple[Objective, ...]) -> bool:
    """Whether more answers are late than chance allows."""
    for answers, late, one in zip(level.answers, level.late, objectives, strict=True):
        allowed = answers * (1.0 - one.part)
        if answers >= ANSWERS_LEAST and late > allowed + CHANCE * sqrt(allowed) + 1.0:
            return True
    return False


def _fine(level: Level, objectives: tuple[Objective, ...]) -> bool:
    """Whether enough is known and all is kept."""
    return all(
        answers >= ANSWERS_LEAST and late <= answers * (1.0 - one.part)
        for answers, late, one in zip(level.answers, level.late, objectives, strict=True)
    )


def _as_slow(higher: Level, mine: Level, objectives: tuple[Objective, ...]) -> bool:
    """Whether an answer takes as long now as it lately took with clearly more at a time, and was late there too."""
    if higher.seconds is None or mine.seconds is None or mine.upto > FEWER * higher.upto:
        return False
    fresh = higher.at >= mine.at - AGAIN
    return fresh and mine.seconds >= SAME * higher.seconds and _breaks(higher, objectives)


def _tokens(levels: tuple[Level, ...], limit: int) -> float | None:
    """Tokens a second of a replica at the limit, or at what came nearest below it."""
    return next((one.tokens for one in reversed(levels) if one.upto <= limit and one.tokens), None)
