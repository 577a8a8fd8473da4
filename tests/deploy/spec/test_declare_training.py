"""From one declaration of a training job to the next: uid, revision, generation, pause, cancellation, deletion."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deploy.spec.declare_training import (
    cancel,
    declare_training,
    delete_training,
    document_of_training,
    pause,
    resume,
)
from deploy.spec.problem import SpecRefused
from events.types.training import TrainingDeclared
from preemption.declared_training import read_training
from tests.support.skew import LATER, with_later, without
from tests.support.specs import full_training, put, smallest, smallest_training


def first(name: str = "tune") -> TrainingDeclared:
    return declare_training(None, smallest_training(name), "uid-1")


def test_the_first_declaration() -> None:
    """It has the new uid, revision 1, and the whole spec with its defaults as YAML says them."""
    declared = first()
    assert (declared.uid, declared.revision, declared.generation) == ("uid-1", 1, 1)
    assert (declared.paused, declared.cancelled, declared.deleted) == (False, False, False)
    assert declared.spec["checkpoint"] == {
        "channels": ["file", "signal"], "signal": "SIGUSR1", "ackTimeout": "10s", "saveTimeout": "2m", "grace": "30s",
    }  # fmt: skip


def test_the_same_again_is_the_same_object() -> None:
    """Nothing changed, also when defaults are written out or durations are written otherwise."""
    declared = first()
    assert declare_training(declared, smallest_training(), "uid-2") is declared
    same = put(smallest_training(), "spec.checkpoint.saveTimeout", "120s")
    assert declare_training(declared, same, "uid-2") is declared


@pytest.mark.parametrize(
    ("path", "value", "revised"),
    [
        ("spec.command", ["python", "other.py"], True),
        ("spec.environment", {"LR": "1"}, True),
        ("spec.folder", "/data", True),
        ("spec.resources.gpus", 2, True),
        ("spec.members", 3, True),
        ("spec.elasticity", {"minMembers": 1}, False),
        ("spec.priority", 7, False),
        ("spec.preemption.protected", True, False),
        ("spec.maxFailures", 9, False),
        ("spec.checkpoint.grace", "9s", False),
        ("metadata.labels", {"a": "b"}, False),
        ("metadata.annotations", {"a": "b"}, False),
    ],
)
def test_a_change_counts_the_generation_and_maybe_the_revision(path: str, value: object, revised: bool) -> None:
    """What processes are made of counts the revision up; everything counts the generation up; the uid stays."""
    declared = declare_training(first(), put(smallest_training(), path, value), "uid-2")
    assert (declared.uid, declared.generation, declared.revision) == ("uid-1", 2, 2 if revised else 1)


def test_fields_that_are_new_in_this_release_are_no_other_job() -> None:
    """What an earlier release wrote lacks them, which means their defaults: the next run has the same revision."""
    declared = first()
    for place in (("members",), ("resources", "gpus"), ("resources",)):
        earlier = replace(declared, spec=without(declared.spec, [place]))
        again = declare_training(earlier, smallest_training(), "uid-2")
        assert (again.spec, again.revision, again.generation) == (declared.spec, 1, 2), place
        assert declare_training(earlier, put(smallest_training(), "spec.members", 7), "uid-2").revision == 2
    later = replace(declared, spec=with_later(declared.spec, [("resources",)]), further={LATER: 1})
    assert declare_training(later, smallest_training(), "uid-2").revision == 2
    assert pause(later, paused=True).further == {LATER: 1}


def test_a_pause_outlives_changes_and_is_taken_back() -> None:
    """Pausing twice is pausing once; a changed document does not resume the job."""
    paused = pause(first(), paused=True)
    assert (paused.paused, paused.generation) == (True, 2)
    assert pause(paused, paused=True) is paused
    changed = declare_training(paused, put(smallest_training(), "spec.priority", 1), "uid-2")
    assert changed.paused
    assert not pause(changed, paused=False).paused


def test_what_is_cancelled_stays_so() -> None:
    """No document brings it back to life, and it cannot be paused; a person may resume it, or delete it."""
    gone = cancel(first())
    assert (gone.cancelled, gone.generation) == (True, 2)
    assert cancel(gone) is gone
    assert declare_training(gone, smallest_training(), "uid-2") is gone
    assert declare_training(gone, put(smallest_training(), "spec.priority", 1), "uid-2").cancelled
    with pytest.raises(ValueError, match="is cancelled"):
        pause(gone, paused=False)
    assert delete_training(gone).deleted
    back = resume(gone)
    assert (back.cancelled, back.paused, back.generation) == (False, False, 3)


def test_resuming() -> None:
    """Whatever stood in its way; failures of runs up to one are forgiven, and stay so."""
    held = pause(first(), paused=True)
    again = resume(held, forgiven=7)
    assert (again.paused, again.forgiven, again.generation) == (False, 7, held.generation + 1)
    assert resume(again, forgiven=3) is again
    assert declare_training(again, put(smallest_training(), "spec.priority", 1), "uid-2").forgiven == 7
    with pytest.raises(ValueError, match="is deleted"):
        resume(delete_training(again))


def test_purging() -> None:
    """Also what was deleted before; it is not taken back, and another job of the name is not purged."""
    gone = delete_training(first())
    assert not gone.purge
    purged = delete_training(gone, purge=True)
    assert (purged.deleted, purged.purge, purged.generation) == (True, True, gone.generation + 1)
    assert delete_training(purged) is purged
    again = declare_training(purged, smallest_training(), "uid-9")
    assert (again.purge, again.forgiven) == (False, 0)


def test_deleting_and_declaring_anew() -> None:
    """A deleted name that is declared again has a new uid and goes on with the next revision, neither paused nor
    cancelled."""
    gone = delete_training(cancel(pause(first(), paused=True)))
    assert (gone.deleted, gone.uid) == (True, "uid-1")
    assert delete_training(gone) is gone
    assert cancel(gone) is gone
    with pytest.raises(ValueError, match="is deleted"):
        pause(gone, paused=True)
    again = declare_training(gone, smallest_training(), "uid-9")
    assert (again.uid, again.revision, again.generation) == ("uid-9", 2, 1)
    assert (again.deleted, again.cancelled, again.paused) == (False, False, False)


def test_another_name_or_kind_cannot_follow() -> None:
    """The newest declaration must be of the same name, and a model's document declares no job."""
    with pytest.raises(ValueError, match="cannot follow"):
        declare_training(first("a"), smallest_training("b"), "uid-2")
    with pytest.raises(SpecRefused, match="there must be a TrainingJob here"):
        declare_training(None, smallest(), "uid-2")


@pytest.mark.parametrize("document", [smallest_training(), full_training()])
def test_a_declaration_reads_back_as_its_document(document: dict[str, object]) -> None:
    """What `get -o yaml` prints can be applied and changes nothing, and the allocator can read it."""
    declared = declare_training(None, document, "uid-1")
    assert declare_training(declared, document_of_training(declared), "uid-2") is declared
    assert read_training(declared).job == declared.job
