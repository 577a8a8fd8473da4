"""What fields are described by, in the source and in JSON Schema."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from deploy.api.shapes import Shape
from events.codec import Attributes
from events.described import Described, descriptions
from events.spec import Spec


class Inner(Described, BaseModel):
    """Described by itself."""

    deep: int
    """How deep
    it is.
    """


class Outer(Described, BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    two_words: int = 0
    """Of two words."""
    inner: Inner = Inner(deep=1)
    """A model's own words do not replace those of the field."""
    said: Annotated[int, Field(description="said by hand")] = 0
    """Not this."""
    plain: int = 0
    """first"""
    """Only the first string is of the field."""
    bare: int = 0

    def method(self) -> None:
        """No field's."""


class Further(Outer):
    plain: int = 1
    more: str = ""
    """One more."""


def test_the_nearest_string_counts() -> None:
    """A base's stands where a class says nothing of a field that it declares anew. Classes in functions count too."""

    class Local(Described, BaseModel):
        here: int
        """Here."""

    assert descriptions(Local) == {"here": "Here."}
    assert descriptions(Further) == {
        "two_words": "Of two words.", "inner": "A model's own words do not replace those of the field.",
        "said": "Not this.", "plain": "first", "more": "One more.",
    }  # fmt: skip
    assert descriptions(Inner) == {"deep": "How deep\nit is."}


@pytest.mark.parametrize("mode", ["validation", "serialization"])
@pytest.mark.parametrize("by_alias", [True, False])
def test_the_schema_says_it(mode: Any, by_alias: bool) -> None:
    """By either name, and as pydantic itself would have it."""
    made = Further.model_json_schema(by_alias=by_alias, mode=mode)
    words = "twoWords" if by_alias else "two_words"
    said = {name: one.get("description") for name, one in made["properties"].items()}
    assert said == {
        words: "Of two words.", "inner": "A model's own words do not replace those of the field.",
        "said": "said by hand", "plain": "first", "bare": None, "more": "One more.",
    }  # fmt: skip
    inner = made["$defs"]["Inner"]
    assert (inner["description"], inner["properties"]["deep"]["description"]) == (
        "Described by itself.", "How deep\nit is.",
    )  # fmt: skip


@pytest.mark.parametrize("base", [Spec, Shape, Attributes])
def test_sources_are_not_read_before_somebody_asks(base: type[BaseModel]) -> None:
    """pydantic would read and parse each class's at its making: an eighth of a process's start."""
    assert issubclass(base, Described)
    assert not base.model_config.get("use_attribute_docstrings")
