"""What passes between the loop and the producer's thread."""

from __future__ import annotations

from dataclasses import dataclass, field

from events.adapters.kafka.wire import Outgoing
from events.envelope import AnyEnvelope
from events.log import Position

Answer = tuple[Position, ...] | Exception
"""What became of an append."""


@dataclass(slots=True)
class Append:
    """Events of one append. `abandoned`: nobody waits any more, so what was not sent yet need not be."""

    token: int
    events: tuple[AnyEnvelope, ...]
    abandoned: bool = False
    answered: bool = False
    positions: dict[int, Position] = field(default_factory=dict)

    def take(self, index: int, position: Position) -> bool:
        """One of its events is durable; whether all are."""
        self.positions[index] = position
        return len(self.positions) == len(self.events)

    def answer(self) -> tuple[Position, ...]:
        """Where its events stand, in their order."""
        return tuple(self.positions[index] for index in range(len(self.events)))


@dataclass(frozen=True, slots=True)
class Sent:
    """A record in flight: of an append, or an offered event."""

    record: Outgoing
    envelope: AnyEnvelope
    append: Append | None
    index: int = 0


@dataclass(slots=True)
class Outcome:
    """What happened since the loop was told last."""

    answers: list[tuple[int, Answer]] = field(default_factory=list)
    appended: int = 0
    groups: int = 0
    """How often the loop was told: acknowledgements that came together count once."""
    lost: int = 0
    """Offers given up because the log was closed."""
    unencodable: int = 0
    remade: int = 0
