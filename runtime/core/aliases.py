"""Which model a name means: a model's own name before any alias; of two models with one alias the first by name.

(So that all gateways, and one that was started again, mean the same.)
"""

from __future__ import annotations

from runtime.core.model_slots import Declared


class Names:
    """The names and aliases of the declared models."""

    def __init__(self) -> None:
        self._models: dict[str, Declared] = {}
        self._aliases: dict[str, set[str]] = {}
        """Of each alias the models that claim it."""

    def learn(self, declared: Declared) -> None:
        """A model is declared, anew or otherwise."""
        self.forget(declared.model)
        self._models[declared.model] = declared
        for alias in declared.aliases:
            self._aliases.setdefault(alias, set()).add(declared.model)

    def forget(self, model: str) -> None:
        """A model is not declared any more."""
        before = self._models.pop(model, None)
        for alias in () if before is None else before.aliases:
            claims = self._aliases.get(alias, set())
            claims.discard(model)
            if not claims:
                self._aliases.pop(alias, None)

    def resolve(self, name: str) -> Declared | None:
        """The declaration that `name` means, or None."""
        found = self._models.get(name)
        if found is None and (claims := self._aliases.get(name)):
            found = self._models[min(claims)]
        return found
