"""MIG on one card: which instances may stand together, and where the next one goes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preemption.core.gpus.mig import MEDIA, Instance, create_order, family
from preemption.core.gpus.mig_names import (
    families_with,
    family_of,
    known_profiles,
    nearest_profile,
    profile_bytes,
    starts_beside,
)
from preemption.core.gpus.mig_table import CONFIRMED, PRODUCTS, PROFILES, SLICES

FAMILIES = sorted(PROFILES)
Layout = frozenset[Instance]


def maximal_layouts(name: str, profiles: set[str]) -> set[Layout]:
    """All placed layouts of these profiles into which no further instance fits."""
    tables = family(name)
    every = [Instance(one, start) for one in profiles for start in tables.profiles[one].starts]
    found: set[Layout] = set()

    def grow(layout: Layout, state: int) -> None:
        fitting = [one for one in every if not state & tables.profiles[one.profile].bits(one.start)]
        if not fitting:
            found.add(layout)
        for one in fitting:
            if layout | {one} not in seen:
                seen.add(layout | {one})
                grow(layout | {one}, state | tables.profiles[one.profile].bits(one.start))

    seen: set[Layout] = set()
    grow(frozenset(), 0)
    return found


def test_an_a100_has_the_layouts_that_are_known() -> None:
    """19 maximal placed layouts without the one-slice profile of double memory, 78 with it."""
    plain = {"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}
    assert len(maximal_layouts("A100-40GB", plain)) == 19
    assert len(maximal_layouts("A100-40GB", plain | {"1g.10gb"})) == 78


@pytest.mark.parametrize("name", FAMILIES)
def test_disjoint_instances_never_need_too_much_compute(name: str) -> None:
    """So the state needs memory slices only; and a state made of a layout has as many free slices as are not
    covered."""
    tables = family(name)
    for layout in maximal_layouts(name, {one for one in tables.profiles if not one.endswith("+me")}):
        state = tables.state(layout)
        covered = sum(tables.profiles[one.profile].size for one in layout)
        assert tables.free_slices(state) == tables.slices - covered


@pytest.mark.parametrize("name", FAMILIES)
def test_tables_are_consistent(name: str) -> None:
    """Every start leaves the instance inside the card; the last profile is the whole card; it fits only an empty
    one."""
    tables = family(name)
    for one in tables.profiles.values():
        assert all(0 <= start <= tables.slices - one.size for start in one.starts)
    whole = list(tables.profiles.values())[-1]
    assert (whole.size, whole.compute) == (tables.slices, SLICES.get(name, (7, 8))[0])
    assert tables.fits(whole.name)[0]
    assert not tables.fits(whole.name)[1]


@pytest.mark.parametrize(
    ("instances", "said"),
    [
        ([Instance("9g.1gb", 0)], "has no MIG profile 9g.1gb; it has 1g.5gb"),
        ([Instance("2g.10gb", 1)], "cannot start at memory slice 1"),
        ([Instance("3g.20gb", 0), Instance("4g.20gb", 0)], "overlaps another instance"),
        ([Instance("1g.5gb+me", 0), Instance("1g.5gb+me", 1)], "second \\+me instance"),
    ],
)
def test_what_is_not_legal_is_named(instances: list[Instance], said: str) -> None:
    """By the rule that is broken."""
    with pytest.raises(ValueError, match=said):
        family("A100-40GB").state(instances)


def test_a_half_at_the_front_blocks_a_four() -> None:
    """3g takes half the memory: at slice 0 it leaves no start to 4g, so it is put at slice 4."""
    tables = family("A100-40GB")
    assert not tables.starts("4g.20gb", tables.state([Instance("3g.20gb", 0)]))
    assert tables.start("3g.20gb", 0) == 4
    assert tables.starts("4g.20gb", tables.state([Instance("3g.20gb", 4)])) == [0]


@pytest.mark.parametrize(
    ("name", "profile", "most"),
    [("A100-40GB", "1g.5gb", 7), ("A100-40GB", "1g.10gb", 4), ("A100-40GB", "2g.10gb", 3), ("A100-40GB", "3g.20gb", 2),
     ("A100-40GB", "4g.20gb", 1), ("A100-40GB", "1g.5gb+me", 1), ("H200-141GB", "1g.18gb", 7),
     ("A30-24GB", "2g.12gb", 2), ("A30-24GB", "1g.6gb", 4)],
)  # fmt: skip
def test_as_many_fit_as_the_guide_says(name: str, profile: str, most: int) -> None:
    """One after the other, each at the start that is chosen for it."""
    assert family(name).room(profile, 0) == most


@given(st.sampled_from(FAMILIES), st.data())
def test_one_after_the_other_stays_legal(name: str, data: st.DataObject) -> None:
    """Whatever comes in whatever order: each chosen start is legal, and what fits by the table has a start."""
    tables, placed = family(name), list[Instance]()
    for profile in data.draw(st.lists(st.sampled_from(sorted(tables.profiles)), max_size=10)):
        state = tables.state(placed)
        start = tables.start(profile, state)
        assert (start is not None) == bool(tables.fits(profile)[state]) == bool(tables.starts(profile, state))
        if start is not None:
            placed.append(Instance(profile, start))
    tables.state(placed)


def test_a_name_alone_does_not_fix_the_slices() -> None:
    """1g.10gb is two slices of one A100 and one of the other."""
    assert [family(name).profiles["1g.10gb"].size for name in ("A100-40GB", "A100-80GB")] == [2, 1]


def test_cards_are_known_by_product_or_by_memory() -> None:
    """The product's name, else its memory, else nothing: an unknown card is not split."""
    assert all(family_of(product) == name for product, name in PRODUCTS.items())
    assert family_of("NVIDIA A100", 40960 << 20) == "A100-40GB"
    assert family_of("NVIDIA H100 SXM", 81559 << 20) == "H100-80GB"
    assert family_of("Tesla T4", 15360 << 20) is None
    assert family_of("NVIDIA H100", 60 << 30) is None
    assert set(PROFILES) >= CONFIRMED


def test_halves_are_created_first() -> None:
    """The driver picks the places of one call by itself; in this order it finds them."""
    orders = {tuple(create_order(order)) for order in itertools.permutations(("1g.5gb", "2g.10gb", "3g.20gb"))}
    assert orders == {("3g.20gb", "2g.10gb", "1g.5gb")}


def test_media_engines_are_told_apart() -> None:
    """A card with its +me instance takes a plain one beside it and no second one."""
    tables = family("A100-40GB")
    state = tables.state([Instance("1g.5gb+me", 6)])
    assert state & MEDIA
    assert tables.start("1g.5gb+me", state) is None
    assert tables.start("1g.5gb", state) is not None


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("1g.5", "1g.5gb"), ("7g.79gb", "7g.80gb"), ("9g.80gb", "7g.80gb"), ("3G.40GB", "3g.40gb"),
     ("nvidia.com/mig-1g.10gb.me", "1g.10gb+me"), ("2g-20gb", "2g.20gb"), ("4g.40", "4g.40gb")],
)  # fmt: skip
def test_the_nearest_name_is_found(wrong: str, right: str) -> None:
    """Typing errors, the resource's spelling, and sizes that no card has."""
    assert nearest_profile(wrong) == right


def test_names_of_profiles() -> None:
    """The small first; of which cards; how much they have."""
    assert known_profiles()[0] == "1g.5gb"
    assert families_with("1g.10gb") == ("A100-40GB", "A100-80GB", "H100-80GB")
    assert (profile_bytes("A30-24GB", "2g.12gb"), profile_bytes("B200-180GB", "1g.23gb")) == (11672 << 20, 0)


@settings(max_examples=30)
@given(st.sampled_from(sorted(PROFILES)), st.data())
def test_a_layout_is_what_the_tables_allow(name: str, data: st.DataObject) -> None:
    """Starts that are found make a legal state; where none are, no order of the profiles has any."""
    profiles = data.draw(st.lists(st.sampled_from([row[0] for row in PROFILES[name]]), max_size=3))
    try:
        starts = starts_beside(name, profiles)
    except ValueError:
        for order in itertools.permutations(profiles):
            with pytest.raises(ValueError, match=r".*"):
                starts_beside(name, order)
    else:
        family(name).state(Instance(profile, start) for profile, start in zip(profiles, starts, strict=True))
