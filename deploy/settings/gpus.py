"""What `--gpus` says: a number, or cards that are made up, of which kind and how they reach each other.

4                                                four cards of no kind
8xH100-80GB:nvlink=0                             eight cards that all reach each other over NVLink
2xL40S:memory=48Gi:numa=0,2xL40S:memory=48Gi:numa=1      two on each of two NUMA nodes
1xA100-40GB:mig=3g.20gb/2*1g.5gb,1xA100-40GB     one split into three MIG instances, one whole
2xL4:memory=24Gi:turns=4                         two time-sliced cards, each of four turns
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from events.types.replicas import Card
from events.units import parse_quantity
from preemption.core.gpus.mig_names import family_of, named_bytes, profile_bytes, starts_beside
from preemption.core.gpus.mig_table import PRODUCTS, PROFILES
from preemption.core.gpus.parts import TURN

MOST: Final = 1024
"""Cards of one machine; many more than any has."""

MOST_TURNS: Final = 64
"""Of one card; NVIDIA's MPS allows 48 and 60 clients, and Google's time-sharing 48."""

MOST_MEMORY: Final = 1 << 44
"""Bytes of one card; many times what any has."""

_GROUP: Final = re.compile(r"(?P<count>[0-9]{1,4})(?:x(?P<product>[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}))?(?P<options>:.*)?")
_TIMES: Final = re.compile(r"(?:(?P<count>[0-9]{1,2})\*)?(?P<profile>.+)")
_OPTIONS: Final = ("memory", "mig", "numa", "nvlink", "turns")


@dataclass(frozen=True, slots=True)
class CardGroup:
    """Cards that are alike. `mig`: the profiles that each is split into; `turns`: how many a time-sliced one has. With
    neither it is whole."""

    count: int
    product: str = "virtual"
    memory_bytes: int = 0
    mig: tuple[str, ...] = ()
    numa: int | None = None
    nvlink: int | None = None
    turns: int = 0


def parse_gpus(text: str) -> tuple[CardGroup, ...]:
    """The cards of a declaration. ValueError: ``RULE; REMEDY``."""
    groups = tuple(_group(part.strip()) for part in text.split(","))
    if sum(group.count for group in groups) > MOST:
        raise ValueError(f"there are more than {MOST} cards; a machine has fewer")
    return groups


def checked_gpus(value: object) -> int | str:
    """A setting's value: how many, or a declaration that can be read. ValueError: ``RULE; REMEDY``."""
    text = str(value).strip()
    if re.fullmatch(r"-?[0-9]+", text):
        if not 0 <= int(text) <= MOST:
            raise ValueError(f"it must be 0 to {MOST}; write a number in between")
        return int(text)
    parse_gpus(text)
    return text


def made_up_cards(groups: tuple[CardGroup, ...]) -> tuple[Card, ...]:
    """The cards themselves, in the order in which they were declared; last the turns of time-sliced ones, the first of
    each before the second of any."""
    cards: list[Card] = []
    turns: list[tuple[int, Card]] = []
    each = (group for group in groups for _ in range(group.count))
    for index, group in enumerate(each):
        name = f"virtual-{index}"
        if group.turns:
            turns += [
                (turn, Card(id=f"{name}{TURN}{turn}", product=group.product, memory_bytes=group.memory_bytes,
                            virtual=True, link=group.nvlink, numa=group.numa, turns=group.turns))
                for turn in range(group.turns)
            ]  # fmt: skip
            continue
        if not group.mig:
            cards.append(Card(id=name, product=group.product, memory_bytes=group.memory_bytes, virtual=True,
                              link=group.nvlink, numa=group.numa))  # fmt: skip
            continue
        family = family_of(group.product, group.memory_bytes)
        cards += [
            Card(id=f"{name}-mig-{at}", product=group.product, profile=profile, virtual=True, numa=group.numa,
                 memory_bytes=0 if family is None else profile_bytes(family, profile))
            for at, profile in enumerate(group.mig)
        ]  # fmt: skip
    return (*cards, *(card for _, card in sorted(turns, key=lambda one: one[0])))


def _group(text: str) -> CardGroup:
    found = _GROUP.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no card; write such as 4, 2xA100-80GB or 1xA100-40GB:mig=3g.20gb/2*1g.5gb")
    options = _options(found["options"] or "")
    memory = _memory(options["memory"]) if "memory" in options else 0
    product, memory = _product(found["product"] or "virtual", memory)
    mig = _profiles(options["mig"], product, memory) if "mig" in options else ()
    turns = _turns(options)
    if mig and turns:
        raise ValueError("mig and turns are given together; a card is split or time-sliced, keep one")
    return CardGroup(
        int(found["count"]), product, memory, mig, _number("numa", options),
        None if mig else _number("nvlink", options), turns,
    )  # fmt: skip


def _turns(options: Mapping[str, str]) -> int:
    text = options.get("turns", "0")
    if not text.isdecimal() or not (text == "0" or 2 <= int(text) <= MOST_TURNS):
        raise ValueError(f"turns={text} is none; write turns=2 to turns={MOST_TURNS}")
    return int(text)


def _options(text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for part in filter(None, text.split(":")):
        key, sign, value = part.partition("=")
        if key not in _OPTIONS or not sign or not value:
            raise ValueError(f"{part!r} says nothing of a card; write {', '.join(f'{one}=…' for one in _OPTIONS)}")
        options[key] = value
    return options


def _product(name: str, memory: int) -> tuple[str, int]:
    """The product as the driver would name it, and its memory: of a MIG family by its name (``A100-80GB``)."""
    if name in PROFILES:
        product = next(product for product, family in PRODUCTS.items() if family == name)
        return product, memory or (PROFILES[name][-1][3] << 20) or named_bytes(name)
    return name, memory


def _memory(text: str) -> int:
    try:
        much = int(parse_quantity(text))
    except ValueError as error:
        raise ValueError(f"memory={text}: {error}") from None
    if much > MOST_MEMORY:
        raise ValueError(f"memory={text} is more than any card has; write such as memory=80Gi, at most 16Ti")
    return much


def _number(key: str, options: Mapping[str, str]) -> int | None:
    text = options.get(key)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,3}", text):
        raise ValueError(f"{key}={text} is no number; write such as {key}=0, the same for cards that belong together")
    return int(text)


def _profiles(text: str, product: str, memory: int) -> tuple[str, ...]:
    """The instances of one card, each a name. (``2*1g.5gb``: two of them.)"""
    family = family_of(product, memory)
    if family is None:
        raise ValueError(f"{product} cannot be split with MIG; name one that can: {', '.join(PROFILES)}")
    profiles: list[str] = []
    for part in text.split("/"):
        found = _TIMES.fullmatch(part)
        profiles += [part] if found is None else [found["profile"]] * int(found["count"] or 1)
    starts_beside(family, profiles)
    return tuple(profiles)
