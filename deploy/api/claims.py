"""Which model an alias means when several claim it.

An admin port refuses an alias that another model has. Two that declare at the same instant know nothing of each other,
and records of two models have no order: so the rule of the gateways (`runtime.core.aliases`) decides, the first by
name, and the model that lost is told so in its conditions until one of the two gives way.
"""

from __future__ import annotations

from deploy.spec.declare import aliases_of
from events.types.models import ModelDeclared


class Claims:
    """The aliases of the declared models."""

    def __init__(self) -> None:
        self._models: dict[str, tuple[str, ...]] = {}
        self._by_alias: dict[str, set[str]] = {}

    def declare(self, declared: ModelDeclared) -> None:
        """A model is declared anew, or deleted."""
        for alias in self._models.pop(declared.model, ()):
            claims = self._by_alias[alias]
            claims.discard(declared.model)
            if not claims:
                del self._by_alias[alias]
        if not declared.deleted:
            self._models[declared.model] = aliases = aliases_of(declared)
            for alias in aliases:
                self._by_alias.setdefault(alias, set()).add(declared.model)

    def owner(self, alias: str) -> str | None:
        """The model that it means; None: nobody claims it. (A model's own name goes before: ask for that first.)"""
        claims = self._by_alias.get(alias)
        return min(claims) if claims else None

    def lost(self, model: str) -> dict[str, str]:
        """Of a model's aliases those that mean another one, and which."""
        found = {}
        for alias in self._models.get(model, ()):
            owner = alias if alias in self._models else self.owner(alias)
            if owner is not None and owner != model:
                found[alias] = owner
        return found
