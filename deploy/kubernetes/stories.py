"""What is known of each model, for its status: a fold of declarations, wishes, grants and states."""

from __future__ import annotations

from deploy.api.status import Facts
from events.clock import Clock
from events.types.decisions import WishDecided
from events.types.grants import GrantDecided
from events.types.models import ModelDeclared
from events.types.replicas import ReplicasObserved, ReplicaState, ReplicaStatus


class Stories:
    """All models."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._declared: dict[str, ModelDeclared] = {}
        self._wishes: dict[str, WishDecided] = {}
        self._grants: dict[str, GrantDecided] = {}
        self._observed: dict[str, ReplicasObserved] = {}
        self._ending: dict[str, frozenset[str]] = {}

    def fold(self, data: object) -> str | None:
        """Take an event in; the model that it is about."""
        match data:
            case ModelDeclared():
                self._declared[data.model] = data
            case WishDecided():
                self._wishes[data.model] = data
            case GrantDecided():
                self._grants[data.model] = data
            case _:
                return None
        return data.model

    def observed(self, state: ReplicasObserved) -> tuple[ReplicaStatus, ...]:
        """What the replicas of a model are now; those that another hand ends, when they are first seen so."""
        self._observed[state.model] = state
        ending = {one.replica: one for one in state.replicas if one.state is ReplicaState.DRAINING and one.reason}
        before = self._ending.pop(state.model, frozenset())
        if ending:
            self._ending[state.model] = frozenset(ending)
        return tuple(one for name, one in ending.items() if name not in before)

    def facts(self, model: str) -> Facts | None:
        """What is known now; None: it is not declared."""
        declared = self._declared.get(model)
        if declared is None:
            return None
        return Facts(
            declared=declared, now=self._clock.now(), wish=self._wishes.get(model), grant=self._grants.get(model),
            observed=self._observed.get(model),
        )  # fmt: skip
