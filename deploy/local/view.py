"""What was declared and granted, as the cluster knows it: a fold of `relume.models` and `relume.grants`.

Fencing: a grant whose epoch is smaller than the newest leadership's is refused, since its writer leads no more. While
the log is read for the first time all grants count: what stands there as a key's newest value was valid when it was
written, and a leader that came later writes only what it changes. A grant for another uid than the declared one is
void.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from deploy.local.declared import Declared, InvalidDeclaration, read_declaration
from deploy.local.plan import Granted
from events.envelope import AnyEnvelope, Envelope
from events.log import Record
from events.names import ModelName
from events.types.grants import GrantDecided, LeadershipTaken
from events.types.models import ModelDeclared
from events.units import Seconds
from runtime.spec import TimeoutsSpec

KEPT_REVISIONS: Final = 4
"""Of a model: the one that is rolled out, the one before, and two that a slow follower may still name."""
DEFAULT_TOTAL: Final = Seconds(TimeoutsSpec().total)
"""For a declaration that is not known or cannot be read."""


@dataclass(slots=True)
class ModelView:
    """One model. `revisions` of the newest uid only; a text in place of a declaration says why it is invalid."""

    uid: str = ""
    revision: int = 0
    generation: int = 0
    deleted: bool = False
    revisions: dict[int, Declared | str] = field(default_factory=dict)
    grant: Envelope[GrantDecided] | None = None

    @property
    def valid_grant(self) -> GrantDecided | None:
        """The grant, if it is for what is declared."""
        if self.grant is None or self.grant.data.uid != self.uid:
            return None
        return self.grant.data


class View:
    """All models. Used on the event loop only. `node`: whose replicas count; None: those of all nodes."""

    def __init__(self, node: str | None, drain_bound: Seconds) -> None:
        self.models: dict[ModelName, ModelView] = {}
        self.epoch = 0
        self.refused_grants = 0
        self._node = node
        self._drain_bound = drain_bound
        self._live = False

    def begin_live(self) -> None:
        """The log has been read to its end: from now on grants are fenced."""
        self._live = True

    def fold(self, record: Record) -> ModelName | None:
        """Take a record in; the model about which something changed, if any."""
        match record.envelope.data:
            case LeadershipTaken():
                self.epoch = max(self.epoch, record.position.offset)
            case ModelDeclared():
                return self._declared(record.envelope.data)
            case GrantDecided():
                return self._granted(record.envelope)
        return None

    def _declared(self, event: ModelDeclared) -> ModelName | None:
        model = self.models.setdefault(ModelName(event.model), ModelView())
        if event.uid != model.uid:
            model.uid, model.revisions = event.uid, {}
        elif event.generation < model.generation:
            return None  # read again from the history
        model.revision, model.generation, model.deleted = event.revision, event.generation, event.deleted
        if not event.deleted or event.revision not in model.revisions:
            model.revisions[event.revision] = _read(event)
        for old in sorted(model.revisions)[:-KEPT_REVISIONS]:
            del model.revisions[old]
        return ModelName(event.model)

    def _granted(self, envelope: AnyEnvelope) -> ModelName | None:
        grant: GrantDecided = envelope.data
        model = self.models.setdefault(ModelName(grant.model), ModelView())
        epoch = envelope.epoch or 0
        held = 0 if model.grant is None else model.grant.epoch or 0
        if epoch < held or (self._live and epoch < self.epoch):
            self.refused_grants += 1
            return None
        model.grant = envelope
        return ModelName(grant.model)

    def granted(self, name: ModelName) -> Granted:
        """What the plan needs: the replicas that count; none for what is not declared, or by a void grant."""
        model = self.models.get(name, ModelView())
        declared = model.revisions.get(model.revision)
        total = declared.timeouts.total if isinstance(declared, Declared) else DEFAULT_TOTAL
        grant = model.valid_grant
        return Granted(
            uid=model.uid,
            replicas=tuple(
                one for one in (grant.replicas if grant else ()) if self._node in (None, one.placement.node)
            ),
            drain_bound=Seconds(min(total, self._drain_bound)),
            revision=model.revision,
            sleep=declared.sleep if isinstance(declared, Declared) and not model.deleted else None,
            asleep=None if grant is None else grant.asleep,
        )


def _read(event: ModelDeclared) -> Declared | str:
    try:
        return read_declaration(event)
    except InvalidDeclaration as invalid:
        return str(invalid)
