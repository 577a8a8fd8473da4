"""The choice of a model's authority: the same everywhere, even, and moved as little as can be."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from runtime.core.members import Member, View
from runtime.core.rendezvous import Authorities, choose, weight

NAMES = st.lists(st.from_regex(r"[a-z0-9-]{1,12}", fullmatch=True), min_size=1, max_size=8, unique=True)
MODELS = [f"model-{index}" for index in range(300)]


def members(names: list[str], boot: str = "1") -> list[Member]:
    return [Member(name, boot) for name in names]


def test_weights_never_change() -> None:
    """Two releases run side by side: these are for ever."""
    assert weight("llama", "gw-1") == 0x9D5F9284709C7AF9
    chosen = [choose(model, members(["a", "b", "c"])) for model in ("llama", "echo", "qwen")]
    assert [one.gateway for one in chosen if one is not None] == ["b", "c", "b"]


@given(names=NAMES)
def test_the_order_in_which_gateways_are_known_does_not_matter(names: list[str]) -> None:
    """Nor their boots: a restart moves nothing."""
    for model in MODELS[:20]:
        forth, back = choose(model, members(names)), choose(model, members(names[::-1], boot="2"))
        assert forth is not None
        assert back is not None
        assert forth.gateway == back.gateway


@given(names=NAMES, newcomer=st.from_regex(r"new-[a-z0-9]{1,8}", fullmatch=True))
def test_whoever_comes_takes_only_for_itself(names: list[str], newcomer: str) -> None:
    """A model moves to the newcomer or not at all; when it goes, all is as before."""
    before = {model: choose(model, members(names)) for model in MODELS}
    after = {model: choose(model, members([*names, newcomer])) for model in MODELS}
    moved = {model for model in MODELS if before[model] != after[model]}
    assert {after[model] for model in moved} <= {Member(newcomer, "1")}


def test_models_are_spread_evenly() -> None:
    """Of 3,000 models each of three gateways has a third, within what chance allows."""
    names = members(["gw-1", "gw-2", "gw-3"])
    counts = Counter(choose(f"m{index}", names) for index in range(3000))
    assert all(900 < count < 1100 for count in counts.values()), counts


def test_leaving_gateways_take_nothing() -> None:
    """And when all leave, nobody is an authority."""
    a, b = members(["a", "b"])
    assert Authorities(View((a,), (b,))).of("llama") == a
    assert Authorities(View((), (a, b))).of("llama") is None
