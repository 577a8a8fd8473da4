"""Claims in the ledger: what a victim gave up is held for the shortage that it was asked for, until it is used or not
wanted any more. Nobody else finds it free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from events.types.grants import Placement
from preemption.core.inventory import MILLI, Holding, Ledger, Need, Node
from preemption.core.lending.case import Case
from preemption.core.lending.seat import holdings_of
from preemption.core.placement import place_among
from preemption.core.terms import ANYWHERE, Terms


@dataclass(slots=True)
class _Claim:
    """The parts that one attempt freed, by name in the ledger, for one shortage. `used`: some of it went there."""

    shortage: str
    parts: dict[str, Holding]
    of_cards: bool
    used: bool = False

    @property
    def left(self) -> bool:
        """Whether cards are left of it; where none were ever held, cores or memory."""
        on_cards = any(part.placement.gpus for part in self.parts.values())
        return on_cards or (not self.of_cards and any(_is_something(part.need) for part in self.parts.values()))


class ClaimBook:
    """All claims, entered into the ledger of the pool. A part is never larger than what is free where it is."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._claims: dict[str, _Claim] = {}

    def all(self) -> tuple[str, ...]:
        """The attempts that have claims."""
        return tuple(sorted(self._claims))

    def make(self, case: Case) -> None:
        """Set aside what the victim of `case` held. Making it again changes nothing."""
        if case.id in self._claims:
            return
        parts = {f"claim/{case.id}/{name}": held for name, held in holdings_of(case.members).items()}
        self._claims[case.id] = _Claim(case.attempt.shortage, parts, bool(case.attempt.cards))
        self._enter(self._claims[case.id])

    def end(self, attempt: str) -> bool:
        """Nothing is set aside by this attempt any more; False: nothing was."""
        claim = self._claims.pop(attempt, None)
        released = [self._ledger.release(name) for name in ({} if claim is None else claim.parts)]
        return any(released)

    def used(self, attempt: str) -> bool:
        """Whether some of the claim went to its shortage."""
        claim = self._claims.get(attempt)
        return claim is not None and claim.used

    def spent(self, attempt: str) -> bool:
        """Whether nothing is left of the claim."""
        claim = self._claims.get(attempt)
        return claim is not None and claim.used and not claim.left

    def parts(self, attempt: str) -> Mapping[str, Holding]:
        """What is set aside now, by name in the ledger."""
        claim = self._claims.get(attempt)
        names = () if claim is None else claim.parts
        return {name: self._ledger.holdings[name] for name in names if name in self._ledger.holdings}

    def refresh(self) -> None:
        """Enter all parts anew: where a node has less now, there is less to set aside."""
        for claim in self._claims.values():
            self._leave(claim)
        for _, claim in sorted(self._claims.items()):
            self._enter(claim)

    def attempts(self, shortage: str) -> list[str]:
        """The attempts whose claims are for this shortage."""
        return [attempt for attempt, claim in sorted(self._claims.items()) if claim.shortage == shortage]

    def has(self, shortage: str) -> bool:
        """Whether anything is set aside for this shortage."""
        return any(claim.shortage == shortage for claim in self._claims.values())

    def find(self, shortage: str, need: Need, terms: Terms = ANYWHERE) -> Placement | None:
        """Where a replica of the shortage would go among its claims; None: nowhere."""
        mine, version = self._of(shortage), self._ledger.version
        for claim in mine:
            self._leave(claim)
        names = {part.placement.node for claim in mine for part in claim.parts.values()}
        nodes = [self._ledger.nodes[name] for name in sorted(names) if name in self._ledger.nodes]
        found = place_among(nodes, need, terms, self._ledger.gradient)
        for claim in mine:
            self._enter(claim)
        self._ledger.version = version  # all is as it was
        return found

    def take(self, shortage: str, holdings: Mapping[str, Holding]) -> None:
        """These of the shortage hold what they do from now on; its claims are less by that."""
        mine = self._of(shortage)
        for claim in mine:
            self._leave(claim)
        for name, holding in holdings.items():
            self._ledger.hold(name, holding)
            left = holding
            for claim in mine:
                left = _consume(claim, left, self._ledger.nodes.get(left.placement.node))
        for claim in mine:
            self._enter(claim)

    def _of(self, shortage: str) -> list[_Claim]:
        return [claim for _, claim in sorted(self._claims.items()) if claim.shortage == shortage]

    def _leave(self, claim: _Claim) -> None:
        for name in claim.parts:
            self._ledger.release(name)

    def _enter(self, claim: _Claim) -> None:
        for name, part in claim.parts.items():
            node = self._ledger.nodes.get(part.placement.node)
            clipped = None if node is None else _clip(node, part)
            if clipped is not None and _is_something(clipped.need):
                self._ledger.hold(name, clipped)


def _consume(claim: _Claim, taken: Holding, node: Node | None) -> Holding:
    """Take what a replica holds out of the claim's parts; what of it is not from there is left."""
    for name, part in claim.parts.items():
        if part.placement.node != taken.placement.node or not _is_something(part.need):
            continue
        shared = [card for card in part.placement.gpus if card in taken.placement.gpus]
        cpu = min(part.need.cpu_milli, taken.need.cpu_milli)
        memory = min(part.need.memory_bytes, taken.need.memory_bytes)
        if not (shared or (not taken.placement.gpus and (cpu or memory))):
            continue
        claim.used = True
        left = max(0, _share(node, part.need, shared) - _share(node, taken.need, shared))
        claim.parts[name] = _less(part, shared, left, (cpu, memory))
        kept = tuple(card for card in taken.placement.gpus if card not in shared)
        rest = replace(taken.need, cpu_milli=taken.need.cpu_milli - cpu, memory_bytes=taken.need.memory_bytes - memory)
        taken = Holding(replace(taken.placement, gpus=kept), rest)
    return taken


def _less(part: Holding, shared: list[str], left: int, took: tuple[int, int]) -> Holding:
    cpu, memory = took
    if shared and left and not part.need.mig_profile:  # a part of a card: what is left of it
        need = replace(part.need, gpus=0, gpu_milli=left, gpu_bytes=0)
        gpus = part.placement.gpus
    else:
        gpus = tuple(card for card in part.placement.gpus if card not in shared)
        need = _of_cards(part.need, len(gpus))
    need = replace(need, cpu_milli=need.cpu_milli - cpu, memory_bytes=need.memory_bytes - memory)
    return Holding(replace(part.placement, gpus=gpus), need)


def _clip(node: Node, part: Holding) -> Holding:
    """The part, as far as it is free."""
    gpus = tuple(card for card in part.placement.gpus if node.free_cards.get(card, 0) >= node.takes(part.need, card))
    need = part.need if len(gpus) == len(part.placement.gpus) else _of_cards(part.need, len(gpus))
    cpu, memory = min(need.cpu_milli, max(0, node.free_cpu)), min(need.memory_bytes, max(0, node.free_memory))
    return Holding(replace(part.placement, gpus=gpus), replace(need, cpu_milli=cpu, memory_bytes=memory))


def _of_cards(need: Need, cards: int) -> Need:
    if cards:
        return need if need.shares or need.mig_profile else replace(need, gpus=cards)
    return replace(need, gpus=0, gpu_milli=0, gpu_bytes=0, mig_profile="")


def _share(node: Node | None, need: Need, cards: list[str]) -> int:
    """Thousandths that it has of each of these cards."""
    return (need.gpu_milli or MILLI) if node is None or not cards else node.takes(need, cards[0])


def _is_something(need: Need) -> bool:
    """Whether there is anything in it that a replica could want; cores and memory alone count where no card was held
    in the first place."""
    return need.any_gpu or need.cpu_milli > 0 or need.memory_bytes > 0
