"""The operations on pools of GPUs and on single cards."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from aiohttp import web
from pydantic import ValidationError

from deploy.api import queries
from deploy.api.board import Board
from deploy.api.fronting import Declarer
from deploy.api.pool_board import PoolBoard, pool_metadata
from deploy.api.poolshapes import CardBody, MarkedCard, PoolItem, PoolList, PoolStatus
from deploy.api.problem import refuse, unknown
from deploy.api.shapes import Deleted
from deploy.api.training_board import TrainingBoard
from events.clock import Clock
from events.log import EventLog
from events.types.pools import CardMarked
from events.units import Instant, format_instant
from events.writer import EventWriter
from preemption.core.attempts.states import State
from preemption.core.reclaim.pool_policy import PoolPolicy

HOUR: Final = 3600.0

_GAVE_AWAY: Final = frozenset({State.DRAINING, State.LOST})


class Pools:
    """Declared pools: list, read, delete. They are applied as models are."""

    def __init__(self, boards: tuple[PoolBoard, TrainingBoard], declarations: Declarer, clock: Clock) -> None:
        self._board, self._training = boards
        self._declarations = declarations
        self._clock = clock

    async def list_pools(self, request: web.Request) -> PoolList:
        """All of them, by name."""
        queries.check_known(request, ())
        return PoolList(items=[self._item(name) for name in self._board.names()])

    async def get_pool(self, request: web.Request) -> PoolItem:
        """One."""
        queries.check_known(request, ())
        return self._item(request.match_info["name"])

    async def delete_pool(self, request: web.Request) -> Deleted:
        """Let the defaults hold again."""
        queries.check_known(request, ())
        return Deleted(metadata=await self._declarations.delete_pool(request.match_info["name"]))

    def _item(self, name: str) -> PoolItem:
        declared = self._board.declared(name)
        if declared is None:
            raise unknown("pool", name, self._board.names())
        policy = self._board.policy_of(name)
        yielded = self._yielded() if name == self._board.led else 0
        status = PoolStatus(
            leader=self._board.leader(name), yielded_last_hour=yielded,
            budget_left=max(0, policy.lending.reclaim.pool_budget - yielded), settings=settings_of(policy),
        )  # fmt: skip
        return PoolItem(metadata=pool_metadata(declared), spec=dict(declared.spec), status=status)

    def _yielded(self) -> int:
        """How many jobs gave their cards away for a shortage within the last hour."""
        since = self._clock.now() - HOUR
        found = (one for one in self._training.reclaims() if one.shortage)
        return sum(any(step.state in _GAVE_AWAY and step.at > since for step in one.history) for one in found)


class Cards:
    """What people say of single cards."""

    def __init__(self, boards: tuple[Board, PoolBoard], log: EventLog, writer: EventWriter, clock: Clock) -> None:
        self._board, self._pools = boards
        self._log = log
        self._writer = writer
        self._clock = clock

    async def cordon_card(self, request: web.Request) -> MarkedCard:
        """Place nothing new on it."""
        return await self._mark(request, cordoned=True)

    async def uncordon_card(self, request: web.Request) -> MarkedCard:
        """It may be used, and is empty: a person has looked."""
        return await self._mark(request, cordoned=False)

    async def _mark(self, request: web.Request, *, cordoned: bool) -> MarkedCard:
        queries.check_known(request, ())
        node, card = request.match_info["node"], request.match_info["card"]
        known = [f"{one.node}/{card.id}" for one in self._board.nodes() for card in one.cards]
        if f"{node}/{card}" not in known and (cordoned or (node, card) not in self._pools.marks):
            raise unknown("GPU", f"{node}/{card}", known)
        reason = _reason(await request.read()) if cordoned else ""
        mark = CardMarked(node=node, card=card, cordoned=cordoned, at=self._clock.now(), reason=reason)
        await self._log.append([self._writer.envelope(mark)])
        self._pools.marks[node, card] = mark
        return MarkedCard(
            node=node, card=card, cordoned=cordoned, at=format_instant(Instant(mark.at)), reason=mark.reason
        )


def settings_of(policy: PoolPolicy) -> dict[str, float]:
    """All numbers of a policy that a pool's document can set."""
    calls = {} if policy.calls is None else {
        "callsMost": policy.calls.most, "callsAfterSeconds": policy.calls.after,
        "callsDeadlineSeconds": policy.calls.within, "callsPauseSeconds": policy.calls.pause,
    }  # fmt: skip
    lending, reclaim, attempts = policy.lending, policy.lending.reclaim, policy.lending.attempts
    return {
        "budgetPerHour": reclaim.pool_budget, "coolDownSeconds": reclaim.cool_down, "thrashSeconds": reclaim.thrash,
        "thrashWindowSeconds": reclaim.window, "shrinkSeconds": reclaim.shrink, "waiting": reclaim.waiting,
        "reserveSharedCards": lending.reserve_shared, "reserveWholeCards": lending.reserve_whole,
        "settleFirstSeconds": lending.settle, "settleGrowth": lending.settle_growth,
        "settleLongestSeconds": lending.most_settle, "patience": lending.patience,
        "ageEverySeconds": reclaim.age_every, "ageMost": reclaim.most_boost,
        "saveSeconds": lending.save, "restoreSeconds": lending.restore, "reclaimSeconds": reclaim.yield_time,
        "drainSeconds": lending.drains, "drainLongestSeconds": lending.drain_bound,
        "stallSeconds": attempts.stall, "exitSeconds": attempts.exit, "cancelSeconds": attempts.cancel,
        "killSeconds": attempts.kill, "emptySeconds": attempts.drain, "quarantineSeconds": attempts.quarantine,
        "lostSeconds": attempts.lost, "resumeSeconds": attempts.resume,
        **calls,
        **({} if policy.cold_start_cost is None else {"coldStartCostSeconds": policy.cold_start_cost}),
        **{f"a100s {product}": worth for product, worth in sorted(policy.units.items())},
    }  # fmt: skip


def _reason(raw: bytes) -> str:
    try:
        return CardBody.model_validate_json(raw or b"{}").reason
    except ValidationError as error:
        raise refuse(
            HTTPStatus.UNPROCESSABLE_ENTITY, "refused", "the body does not say why",
            remedy='write nothing, or {"reason": "…"} with at most 1,000 characters',
        ) from error  # fmt: skip
