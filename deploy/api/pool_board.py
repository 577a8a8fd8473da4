"""The board of pools: their declarations, who leads them, and what people said of single cards."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from deploy.api.book import Book
from deploy.api.shapes import Metadata
from events.envelope import AnyEnvelope
from events.types.grants import LeadershipTaken
from events.types.pools import CardMarked, PoolDeclared
from preemption.core.reclaim.pool_policy import DEFAULT, PoolPolicy
from preemption.declared_pool import read_pool

logger = logging.getLogger(__name__)

POOL: Final = "default"
"""The pool that relume's allocators lead unless they say another."""


class PoolBoard:
    """All pools that are declared. `book`: their declarations."""

    def __init__(self) -> None:
        self.book = Book(_name_of, self._declare)
        self.led = POOL
        """The pool that was taken last: the one that cards are placed in."""
        self.marks: dict[tuple[str, str], CardMarked] = {}
        """By node and card."""
        self._leaders: dict[str, str] = {}
        self._policies: dict[str, PoolPolicy] = {}

    def apply(self, envelope: AnyEnvelope, offset: int) -> None:
        """Take in what happened; what is not about pools is passed over."""
        data = envelope.data
        if isinstance(data, PoolDeclared):
            self.book.hear(data, offset)
        elif isinstance(data, LeadershipTaken):
            self._leaders[data.pool] = data.leader
            self.led = data.pool
        elif isinstance(data, CardMarked):
            self.marks[data.node, data.card] = data

    def names(self) -> list[str]:
        """Pools that are declared, in order."""
        return sorted(name for name in self._policies if self.declared(name) is not None)

    def declared(self, name: str) -> PoolDeclared | None:
        """The declaration that stands; None: there is none, and the defaults hold."""
        newest = self.book.newest(name)
        return None if newest is None or newest.deleted else newest

    def leader(self, name: str) -> str | None:
        """Who took it last."""
        return self._leaders.get(name)

    @property
    def policy(self) -> PoolPolicy:
        """The settings of the pool that is led."""
        return self.policy_of(self.led)

    def policy_of(self, name: str) -> PoolPolicy:
        """The settings of a pool."""
        return self._policies.get(name, DEFAULT)

    def cordoned(self) -> Mapping[tuple[str, str], CardMarked]:
        """Cards that people keep out of use, by node and card."""
        return {where: mark for where, mark in self.marks.items() if mark.cordoned}

    def _declare(self, _: PoolDeclared | None, declared: PoolDeclared) -> None:
        try:
            self._policies[declared.pool] = read_pool(declared)
        except ValueError as error:  # another release wrote it: what stood before goes on
            self._policies.setdefault(declared.pool, DEFAULT)
            logger.warning("a declaration is left aside: %s", error)


def pool_metadata(declared: PoolDeclared) -> Metadata:
    """Who the declaration is about."""
    return Metadata(
        name=declared.pool, labels=dict(declared.labels), annotations=dict(declared.annotations), uid=declared.uid,
        generation=declared.generation, revision=declared.revision,
    )  # fmt: skip


def _name_of(declared: PoolDeclared) -> str:
    return declared.pool
