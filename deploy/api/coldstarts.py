"""`relume coldstart report`: cold starts against their promise, from the events that the log still has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from aiohttp import web

from coldstart.core.budget import ANSWER, Verdict
from coldstart.core.estimate import quantile
from deploy.api import queries
from deploy.api.board import Board
from deploy.api.problem import bad_parameter
from deploy.api.weightshapes import ColdStartItem, ColdStartReport, PhaseQuantiles
from events.log import EventLog, Query
from events.names import Topic
from events.types.phases import ColdStartFinished
from events.types.replicas import Phase
from events.units import Instant, format_instant, parse_instant

_ORDER = {phase: place for place, phase in enumerate((*map(str, Phase), ANSWER))}

MOST_STARTS = 100_000
"""Cold starts that one report reads, the newest ones: some tens of megabytes."""


class ColdStarts:
    """The report."""

    def __init__(self, log: EventLog, board: Board) -> None:
        self._log = log
        self._board = board

    async def cold_starts(self, request: web.Request) -> ColdStartReport:
        """All models, or one."""
        queries.check_known(request, ("model", "since"))
        since = _since(request)
        wanted = request.query.get("model")
        model = None if wanted is None else self._board.owner(wanted) or wanted
        found: list[ColdStartFinished] = []
        async for record in self._log.read(Query(Topic.PHASES, from_time=since)):
            data = record.envelope.data
            if isinstance(data, ColdStartFinished) and model in (None, data.model):
                found.append(data)
                if len(found) > 2 * MOST_STARTS:
                    del found[:-MOST_STARTS]
        items = report(found[-MOST_STARTS:])
        return ColdStartReport(since=None if since is None else format_instant(since), items=items)


def _since(request: web.Request) -> Instant | None:
    text = request.query.get("since")
    if text is None:
        return None
    try:
        return parse_instant(text)
    except ValueError as error:
        raise bad_parameter("since", text, "an RFC 3339 time, such as 2026-11-29T18:53:42Z") from error


def report(starts: Iterable[ColdStartFinished]) -> list[ColdStartItem]:
    """By model, in the order of their names."""
    by_model: dict[str, list[ColdStartFinished]] = {}
    for one in starts:
        by_model.setdefault(one.model, []).append(one)
    return [_item(name, by_model[name]) for name in sorted(by_model)]


def took(start: ColdStartFinished) -> float:
    """Seconds from the request to its first byte."""
    return max(0.0, start.first_byte_at - start.arrived_at)


def _item(model: str, starts: Sequence[ColdStartFinished]) -> ColdStartItem:
    verdicts = Counter(one.verdict for one in starts)
    seconds = [took(one) for one in starts]
    newest = max(starts, key=lambda one: one.first_byte_at)
    return ColdStartItem(
        model=model, sla_seconds=newest.sla_seconds, starts=len(starts), met=verdicts[Verdict.MET],
        missed=verdicts[Verdict.MISSED], impossible=verdicts[Verdict.IMPOSSIBLE], unjudged=verdicts[""],
        missed_by=dict(sorted(Counter(one.missed_by for one in starts if one.missed_by).items())),
        tiers=dict(sorted(Counter(one.tier for one in starts).items())),
        p50=round(quantile(seconds, 0.5), 3), p95=round(quantile(seconds, 0.95), 3),
        least_seconds=None if newest.least_seconds is None else round(newest.least_seconds, 3),
        phases=_phases(starts),
    )  # fmt: skip


def _phases(starts: Sequence[ColdStartFinished]) -> list[PhaseQuantiles]:
    seen: dict[str, list[float]] = {}
    for one in starts:
        for phase, seconds in one.phases.items():
            seen.setdefault(phase, []).append(seconds)
    return [
        PhaseQuantiles(phase=phase, p50=round(quantile(seconds, 0.5), 3), p95=round(quantile(seconds, 0.95), 3))
        for phase, seconds in sorted(seen.items(), key=lambda one: _ORDER.get(one[0], len(_ORDER)))
    ]


def told_of(start: ColdStartFinished) -> str:
    """The newest cold start of a model against its promise, for `relume explain`."""
    parts = ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in start.phases.items())
    told = f"The last cold start took {took(start):.2f} s of the promised {start.sla_seconds:g} s"
    told += f" ({parts})." if parts else "."
    least = (
        "" if start.least_seconds is None else f" The least that it could have taken was {start.least_seconds:.2f} s"
    )
    where = f", its weights being {_WHERE[start.tier]}" if start.tier in _WHERE and least else ""
    by = f"{start.missed_by} ({_WHAT[start.missed_by]})" if start.missed_by in _WHAT else start.missed_by
    ends = {
        Verdict.MET: " The promise was kept.",
        Verdict.MISSED.value: f" The promise was missed by the phase {by}.",
        Verdict.IMPOSSIBLE.value: f" The promise could not be kept, because of the phase {by}.",
    }
    return told + (f"{least}{where}." if least else "") + ends.get(Verdict(start.verdict) if start.verdict else "", "")


_WHERE = {"sleep": "in an engine that slept", "memory": "in memory", "disk": "on the disk", "remote": "not on the node"}

_WHAT = {
    "hold": "until a start was decided", "place": "waiting for GPUs, cores or memory",
    "fetch": "weights came to the node", "read": "weights came from the disk into memory",
    "spawn": "the engine's process began", "load": "the engine loaded the weights", "wake": "the engine woke",
    "warmup": "its first token", ANSWER: "ready until the first byte",
}  # fmt: skip
"""What went on in each phase."""
