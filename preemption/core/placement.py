"""Where one more replica goes (the soonest, then where least is lost for others), and what is lacking when it goes
nowhere.

Of the nodes that its declaration allows, those count that reach the first token as early as the earliest one, within a
tolerance (`nearness`); where nothing is known of that, all. Of these the one counts where the fragmentation of what is
free grows least (`gradient`), then the best fit, which leaves large holes whole; of several cards those that reach each
other best (`topology`). Instances of MIG are given whole, and never as a card or a part of one. Ties end with the
node's name and the card's order, so the same ledger always gives the same placement.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from math import inf
from operator import attrgetter, itemgetter

from events.types.grants import Placement
from events.units import format_quantity
from preemption.core.gpus.topology import pick
from preemption.core.gradient import Choice, Gradient, Price, Prices
from preemption.core.inventory import MILLI, Holding, Ledger, Need, Node
from preemption.core.nearness import Soon
from preemption.core.terms import ANYWHERE, Terms, allows, refused_by_all


class Kind(StrEnum):
    """A kind of resource that may be lacking."""

    GPU = "gpu"
    CPU = "cpu"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Lack:
    """Why a replica has no place. `ever` False: no node could hold it even when empty.

    `kinds` are lacking on the nodes that come nearest; `claims` on any node that could hold it: while nothing is freed,
    these only grow. `refused`: nodes could hold it, and none may; `narrow`: some may not. `quota`: a limit beside the
    nodes says no, whatever is free.
    """

    kinds: tuple[Kind, ...]
    claims: tuple[Kind, ...]
    ever: bool
    message: str
    refused: bool = False
    narrow: bool = False
    quota: bool = False


def kinds_of(need: Need) -> tuple[Kind, ...]:
    """The kinds of resources that a replica takes."""
    wanted = ((Kind.GPU, need.any_gpu), (Kind.CPU, need.cpu_milli > 0), (Kind.MEMORY, need.memory_bytes > 0))
    return _ordered({kind for kind, takes in wanted if takes})


def contends(need: Need, other: Need, lacked: Collection[Kind]) -> bool:
    """Whether one who takes `need` takes of the kinds that another lacks. A MIG instance is no card, and none of
    another profile."""
    taken = {kind for kind in kinds_of(need) if kind in lacked}
    return bool(taken - {Kind.GPU} if need.mig_profile != other.mig_profile else taken)


def place(ledger: Ledger, need: Need, terms: Terms = ANYWHERE, soon: Soon | None = None) -> Placement | None:
    """The best place for one replica, or None when it fits nowhere now."""
    if soon is not None:
        return _soonest(ledger.nodes, need, terms, soon, ledger.gradient)
    alike, prices = ledger.alike(), ledger.gradient.prices(need)
    ranked = [(price, look) for look in alike if (price := prices[look]) is not None]
    ranked.sort(key=itemgetter(0))
    for price, looks in groupby(ranked, key=itemgetter(0)):
        nodes = (ledger.nodes[name] for _, look in looks for name in alike[look])
        able = [node for node in nodes if node.free_memory >= need.memory_bytes and allows(node, terms)]
        if able:
            return _on(min(able, key=attrgetter("name")), need, price)
    return None


def place_among(
    nodes: Iterable[Node], need: Need, terms: Terms, gradient: Gradient, soon: Soon | None = None
) -> Placement | None:
    """Likewise, on one of these nodes. `gradient`: the pool's."""
    if soon is not None:
        return _soonest({node.name: node for node in nodes}, need, terms, soon, gradient)
    return _best(nodes, need, terms, gradient)


def _best(nodes: Iterable[Node], need: Need, terms: Terms, gradient: Gradient) -> Placement | None:
    best: tuple[tuple[Price, str], Node] | None = None
    prices = gradient.prices(need)
    for node in nodes:
        price = _price(node, need, prices)
        if price is not None and (best is None or (price, node.name) < best[0]) and allows(node, terms):
            best = (price, node.name), node
    return None if best is None else _on(best[1], need, best[0][0])


def _price(node: Node, need: Need, prices: Prices) -> Price | None:
    """What it costs on this node now; None: it does not fit."""
    if node.free_cpu < need.cpu_milli or node.free_memory < need.memory_bytes or node.whole_cards < need.gpus:
        return None
    return node.price(prices)


def _on(node: Node, need: Need, price: Price) -> Placement:
    return Placement(node=node.name, gpus=_cards_on(node, need, price.card))


def _soonest(nodes: Mapping[str, Node], need: Need, terms: Terms, soon: Soon, gradient: Gradient) -> Placement | None:
    """The best of those on which it fits and is as early as on the earliest, within the tolerance. Where it fits on
    none that knows how early that is: of all others."""
    prices, limit = gradient.prices(need), inf
    best: tuple[tuple[Price, str], Node] | None = None
    for late, name in soon.order:
        if late > limit:
            break
        node = nodes.get(name)
        price = None if node is None else _price(node, need, prices)
        if node is None or price is None or (best and best[0] < (price, name)) or not allows(node, terms):
            continue
        if best is None:
            limit = soon.limit(late)
        best = (price, name), node
    if best is not None:
        return _on(best[1], need, best[0][0])
    return _best((node for name, node in nodes.items() if name not in soon.by_node), need, terms, gradient)


def is_free(ledger: Ledger, placement: Placement, need: Need) -> bool:
    """Whether one replica fits at this very place: its node, and exactly its cards."""
    return ledger.has_free(Holding(placement, need))


def lack(ledger: Ledger, need: Need, terms: Terms = ANYWHERE) -> Lack:
    """Why `place` finds nothing."""
    if not ledger.nodes:
        return Lack((), (), ever=False, message="no node has reported what it has yet")
    nodes = [node for _, node in sorted(ledger.nodes.items())]
    able = [node for node in nodes if could_hold(node, need)]
    if not able:
        return Lack((), (), ever=False, message=_never_message(nodes, need))
    capable = [node for node in able if allows(node, terms)]
    if not capable:
        return Lack((), (), ever=False, message=refused_by_all(able, terms), refused=True)
    missing = [_missing(node, need) for node in capable]
    fewest = min(len(kinds) for kinds in missing)
    nearest = {kind for kinds in missing if len(kinds) == fewest for kind in kinds}
    claims = {kind for kinds in missing for kind in kinds}
    message = ", ".join(_lack_message(kind, capable, need) for kind in Kind if kind in nearest)
    narrow = len(capable) < len(able)
    return Lack(_ordered(nearest), _ordered(claims), ever=True, message=message, narrow=narrow)


def _ordered(kinds: Collection[Kind]) -> tuple[Kind, ...]:
    return tuple(kind for kind in Kind if kind in kinds)


def _left(node: Node, need: Need) -> int:
    """What would be left of the kind that is taken; below zero when it does not fit."""
    if need.mig_profile:
        return len(node.free_instances(need.mig_profile)) - 1
    return _left_on_card(node, need) if need.shares else node.whole_cards - need.gpus


def _left_on_card(node: Node, need: Need) -> int:
    """What the fullest card that has room for it would have left; below zero when none has."""
    left = (free - need.part(node.kinds[card]) for card, free in node.parts.items())
    return min((one for one in left if one >= 0), default=-1)


def _cards_on(node: Node, need: Need, chosen: Choice) -> tuple[str, ...]:
    """The cards for it; of those that are given out in parts the first that is as the chosen one."""
    if need.mig_profile:
        return (node.free_instances(need.mig_profile)[0],)
    parts = node.parts
    if need.shares:
        return (next(card for card, free in parts.items() if (free, *node.kinds[card]) == chosen),)
    whole = [card for card in node.cards if parts.get(card) == MILLI]
    if not node.domains or not need.gpus:
        return tuple(whole[: need.gpus])
    picked = pick([node.domains[card] for card in whole], range(len(whole)), need.gpus)
    return tuple(whole[at] for at in picked)


def _missing(node: Node, need: Need) -> tuple[Kind, ...]:
    """What this node has too little of now."""
    short = ((Kind.GPU, _left(node, need) < 0), (Kind.CPU, node.free_cpu < need.cpu_milli),
             (Kind.MEMORY, node.free_memory < need.memory_bytes))  # fmt: skip
    return tuple(kind for kind, lacking in short if lacking)


def could_hold(node: Node, need: Need) -> bool:
    """Whether the node could hold such a replica when empty."""
    return not _never(node, need)


def _never(node: Node, need: Need) -> tuple[Kind, ...]:
    """What this node has too little of even when empty."""
    gpu = node.all_whole < need.gpus
    if need.shares:
        gpu = not _shareable(node, need)
    if need.mig_profile:
        gpu = need.mig_profile not in node.profiles.values()
    short = ((Kind.GPU, gpu), (Kind.CPU, node.cpu_milli < need.cpu_milli),
             (Kind.MEMORY, node.memory_bytes < need.memory_bytes))  # fmt: skip
    return tuple(kind for kind, lacking in short if lacking)


def _shareable(node: Node, need: Need) -> bool:
    """Whether some card of it, were it empty, has such a part."""
    return any(need.part(kind) <= kind.size for kind in node.kinds.values())


def _largest_part(nodes: Sequence[Node], need: Need) -> str:
    """Why no card has such a part, even when empty."""
    kinds = {kind for node in nodes for kind in node.kinds.values()}
    if not need.gpu_bytes:
        return f"the largest turn of a time-sliced card is {max(kind.size for kind in kinds) / MILLI:g}"
    most = max(kind.usable // max(1, kind.turns) for kind in kinds)
    return f"the largest has {format_quantity(most)}" if most else "how much memory the cards here have is not known"


def _never_message(nodes: Sequence[Node], need: Need) -> str:
    """What no node has enough of, or that no node has enough of everything."""
    known = sorted({profile for node in nodes for profile in node.profiles.values()})
    if need.mig_profile and need.mig_profile not in known:
        has = (
            f"the cards here are split into {', '.join(known)}" if known else "no card here is split into MIG profiles"
        )
        return f"needs MIG profile {need.mig_profile}; {has}"
    if need.shares and any(node.kinds for node in nodes) and not any(_shareable(node, need) for node in nodes):
        return f"needs {_gpu_words(need)}; {_largest_part(nodes, need)}"
    shared = set(_never(nodes[0], need)).intersection(*(_never(node, need) for node in nodes))
    largest = {
        Kind.GPU: _cards(max(node.all_whole for node in nodes)),
        Kind.CPU: _cores(max(node.cpu_milli for node in nodes)),
        Kind.MEMORY: format_quantity(max(node.memory_bytes for node in nodes)) + " of memory",
    }
    wanted = {Kind.GPU: _gpu_words(need), Kind.CPU: _cores(need.cpu_milli),
              Kind.MEMORY: f"{format_quantity(need.memory_bytes)} of memory"}  # fmt: skip
    if not shared:
        return f"needs {', '.join(wanted[kind] for kind in kinds_of(need))} together; no node has that"
    if shared == {Kind.GPU} and not any(node.cards for node in nodes):
        return f"needs {wanted[Kind.GPU]}; no node has one"
    return ", ".join(f"needs {wanted[kind]}; the largest node has {largest[kind]}" for kind in Kind if kind in shared)


def _lack_message(kind: Kind, nodes: Sequence[Node], need: Need) -> str:
    if kind is Kind.GPU:
        return _gpu_message(nodes, need)
    if kind is Kind.CPU:
        frees, total = [max(0, node.free_cpu) for node in nodes], sum(node.cpu_milli for node in nodes)
        words = f"needs {_cores(need.cpu_milli)}; {sum(frees) / MILLI:g} of {total / MILLI:g} are free"
        return words + (f", at most {max(frees) / MILLI:g} on one node" if sum(frees) >= need.cpu_milli else "")
    frees, total = [max(0, node.free_memory) for node in nodes], sum(node.memory_bytes for node in nodes)
    free, wanted = format_quantity(sum(frees)), format_quantity(need.memory_bytes)
    words = f"needs {wanted} of memory; {free} of {format_quantity(total)} are free"
    return words + (f", at most {format_quantity(max(frees))} on one node" if sum(frees) >= need.memory_bytes else "")


def _gpu_message(nodes: Sequence[Node], need: Need) -> str:
    if need.mig_profile:
        free = sum(len(node.free_instances(need.mig_profile)) for node in nodes)
        total = sum(list(node.profiles.values()).count(need.mig_profile) for node in nodes)
        return f"needs {_gpu_words(need)}; {free} of {total} are free"
    if need.shares:
        return f"needs {_gpu_words(need)}; {_freest(nodes, need)}"
    frees, total = [node.whole_cards for node in nodes], sum(node.all_whole for node in nodes)
    words = f"needs {_gpu_words(need)}; {sum(frees)} of {total} are free"
    return words + (f", at most {max(frees)} on one node" if sum(frees) >= need.gpus else "")


def _freest(nodes: Sequence[Node], need: Need) -> str:
    """What the card has left that has most of what is asked for."""
    cards = [(node, card, max(0, free)) for node in nodes for card, free in node.parts.items()]
    if need.gpu_bytes:
        most = max((node.kinds[card].usable * free // MILLI for node, card, free in cards), default=0)
        return f"the freest card has {format_quantity(most)} left"
    return f"the freest card has {max((free for _, _, free in cards), default=0) / MILLI:g} left"


def _gpu_words(need: Need) -> str:
    if need.mig_profile:
        return f"MIG profile {need.mig_profile}"
    if need.gpu_bytes:
        return f"{format_quantity(need.gpu_bytes)} of a GPU's memory"
    return f"{need.gpu_milli / MILLI:g} of a GPU" if need.gpu_milli else _cards(need.gpus)


def _cards(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _cores(milli: int) -> str:
    return "1 core" if milli == MILLI else f"{milli / MILLI:g} cores"
