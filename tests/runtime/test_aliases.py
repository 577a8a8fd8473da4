"""What a name means."""

from __future__ import annotations

from dataclasses import replace

from events.names import ModelName
from runtime.core.aliases import Names
from runtime.core.model_slots import Declared
from tests.support.slots import declared


def model(name: str, *aliases: str) -> Declared:
    return replace(declared(aliases=aliases), model=ModelName(name))


def meaning(names: Names, name: str) -> str | None:
    found = names.resolve(name)
    return None if found is None else found.model


def test_a_models_own_name_goes_before_an_alias() -> None:
    """Declaring a model takes its name from whoever had it as an alias; deleting it gives it back."""
    names = Names()
    names.learn(model("a", "shared"))
    names.learn(model("shared"))
    assert meaning(names, "shared") == "shared"
    names.forget("shared")
    assert meaning(names, "shared") == "a"


def test_of_two_models_with_one_alias_the_first_by_name_has_it() -> None:
    """In whatever order they were read: so a restart changes nothing."""
    for order in (("b", "a"), ("a", "b")):
        names = Names()
        for name in order:
            names.learn(model(name, "shared"))
        assert meaning(names, "shared") == "a"
        names.forget("a")
        assert meaning(names, "shared") == "b"
        names.forget("b")
        assert meaning(names, "shared") is None
        assert names._aliases == {}


def test_a_declaration_replaces_the_models_aliases() -> None:
    """An alias that is left out is gone; forgetting an unknown model does nothing."""
    names = Names()
    names.learn(model("a", "old", "kept"))
    names.learn(model("a", "kept"))
    names.forget("nobody")
    assert [meaning(names, name) for name in ("a", "old", "kept")] == ["a", None, "a"]
