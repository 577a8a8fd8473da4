"""A person's word that a card is empty, held against what the adapter still waits to see.

A card of a run that has ended is given to nobody until it is seen empty. Where a process could not be killed, or the
card cannot be looked at, that may never be; then a person looks, and says so. The word counts for runs that had ended
when it was said.
"""

from __future__ import annotations

from dataclasses import replace

from events.types.pools import CardMarked
from events.types.training import RunState, TrainingObserved


class Words:
    """The newest words by card, and the runs that have ended and are not seen empty. Bounded by cards and by jobs."""

    def __init__(self) -> None:
        self._empty: dict[tuple[str, str], float] = {}
        self._waiting: dict[str, TrainingObserved] = {}

    def say(self, mark: CardMarked) -> list[TrainingObserved]:
        """A word about a card; the runs that are empty by it."""
        if mark.cordoned:
            self._empty.pop((mark.node, mark.card), None)
            return []
        self._empty[mark.node, mark.card] = mark.at
        seen = [self.seen(one) for one in list(self._waiting.values())]
        return [one for one in seen if one.empty_at is not None]

    def seen(self, observed: TrainingObserved) -> TrainingObserved:
        """What is seen of a job, with its cards seen empty if people said so of all of them after its end."""
        if observed.state is not RunState.ENDED or observed.empty_at is not None or observed.ended_at is None:
            self._waiting.pop(observed.job, None)
            return observed
        cards = [(member.node, card) for member in observed.members for card in member.gpus]
        said = [self._empty.get(card, 0.0) for card in cards]
        if not cards or min(said) < observed.ended_at:
            self._waiting[observed.job] = observed
            return observed
        self._waiting.pop(observed.job, None)
        return replace(observed, empty_at=max(said))
