"""What documents of every kind have: the version, the metadata, and how a rule between fields is told as broken."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from pydantic_core import InitErrorDetails, PydanticCustomError

from events.names import DNS_LABEL_PATTERN
from events.spec import Spec

API_VERSION: Literal["relume.dev/v1alpha1"] = "relume.dev/v1alpha1"

CROSS_FIELD = "cross_field"
"""The type of errors about several fields together; their context holds `rule`, `remedy` and `beside`."""

LABEL_KEY_PATTERN = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"
LABEL_VALUE_PATTERN = r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$"
"""Kubernetes' rules for labels, so that the same file declares the same in both places."""

LabelKey = Annotated[str, StringConstraints(pattern=LABEL_KEY_PATTERN, max_length=317)]
LabelValue = Annotated[str, StringConstraints(pattern=LABEL_VALUE_PATTERN)]


class MetadataSpec(Spec):
    """Who is declared."""

    name: Annotated[str, StringConstraints(pattern=DNS_LABEL_PATTERN)]
    """Its name: a DNS label (lower case letters, digits, hyphens; at most 63)."""
    labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=64)] = Field(default_factory=dict)
    """Short words to select by; kept with the declaration."""
    annotations: Annotated[dict[LabelKey, Annotated[str, Field(max_length=4096)]], Field(max_length=64)] = Field(
        default_factory=dict
    )
    """Notes for people and other programs; kept with the declaration."""


def broken_rule(
    path: tuple[str | int, ...], value: object, rule: str, remedy: str, beside: str = ""
) -> InitErrorDetails:
    """A broken rule; `beside` is the other field that it is about."""
    words = {"rule": rule, "remedy": remedy, "beside": beside}
    return InitErrorDetails(type=PydanticCustomError(CROSS_FIELD, "{rule}; {remedy}", words), loc=path, input=value)
