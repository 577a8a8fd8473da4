"""From objects to declarations of training jobs: what is applied, paused, withdrawn, refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from deploy.kubernetes.declared_objects import RefusedObject
from deploy.kubernetes.resources import JOBS, TRAINING_JOBS
from deploy.kubernetes.training.looks import NO_IMAGE, Looks, Target
from deploy.kubernetes.training.objects import (
    CANCELLED,
    PAUSED,
    JobObjects,
    Source,
    Wanted,
    metadata_of,
    of_training_job,
)
from deploy.spec.declare_training import declare_training
from deploy.spec.kinds import Document
from events.clock import SystemClock
from events.types.training import TrainingDeclared


@dataclass
class Objects:
    """A collection as the API server has it."""

    objects: dict[str, Any] = field(default_factory=dict)


class Desk:
    """Declares at once, and tells what stands, as the log would."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.stands: dict[str, TrainingDeclared] = {}
        self.heard: Callable[[TrainingDeclared], None] = lambda _: None

    async def apply(self, documents: Sequence[Document]) -> object:
        for document in documents:
            name = document.metadata.name
            before = self.stands.get(name)
            declared = declare_training(before, document, f"uid-{len(self.done)}")
            if declared != before:
                self.done.append(f"apply {name}")
                self._stand(declared)
        return None

    async def delete_training(self, name: str) -> object:
        self.done.append(f"delete {name}")
        gone = self.stands.pop(name)
        self.heard(replace(gone, deleted=True))
        return None

    async def pause(self, name: str, *, paused: bool) -> None:
        self.done.append(f"pause {name} {paused}")
        self._stand(replace(self.stands[name], paused=paused))

    async def cancel(self, name: str) -> None:
        self.done.append(f"cancel {name}")
        self._stand(replace(self.stands[name], cancelled=True))

    async def resume(self, name: str, forgiven: int) -> None:
        self.done.append(f"resume {name} {forgiven}")
        self._stand(replace(self.stands[name], cancelled=False, paused=False))

    def _stand(self, declared: TrainingDeclared) -> None:
        self.stands[declared.job] = declared
        self.heard(declared)


def item(uid: str = "o1", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "tune", "namespace": "models", "uid": uid, "generation": 2},
        "spec": {"command": ["train"], "pod": {"image": "a:1"}, **spec},
    }  # fmt: skip


class Case:
    """Objects of two kinds, and what became of them."""

    def __init__(self) -> None:
        self.desk, self.jobs, self.others = Desk(), Objects(), Objects()
        self.told: list[tuple[str, int, str]] = []
        self.paused: bool | None = None
        self.listed = True
        self.made = JobObjects(self.desk, SystemClock(), "models", lambda *told: self.told.append(told))
        self.desk.heard = self.made.declared
        self.made.sources += [
            Source(TRAINING_JOBS, self.jobs, of_training_job, lambda: self.listed),  # type: ignore[arg-type]  # all that is asked of it
            Source(JOBS, self.others, self._enrolled, lambda: True),  # type: ignore[arg-type]  # as above
        ]

    def _enrolled(self, found: Any) -> Wanted:
        if found["spec"].get("bad"):
            raise RefusedObject("it is bad; make it better")
        return Wanted(of_training_job(found).document, paused=self.paused)

    async def settle(self) -> None:
        """Look at it; returns when that is done."""
        before = len(self.told) + len(self.desk.done)
        self.made.changed("models/tune")
        async with asyncio.timeout(30):
            for _ in range(20):
                await asyncio.sleep(0)
            while len(self.told) + len(self.desk.done) == before and self.made._dirty:  # noqa: ASYNC110 - a task of its
                await asyncio.sleep(0)


@asynccontextmanager
async def case() -> AsyncIterator[Case]:
    made = Case()
    running = asyncio.create_task(made.made.run())
    try:
        await asyncio.sleep(0)
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_an_object_is_declared_changed_and_withdrawn() -> None:
    """Once for each change; when it is gone, so is the declaration."""
    async with case() as here:
        here.jobs.objects["models/tune"] = item()
        await here.settle()
        await here.settle()
        here.jobs.objects["models/tune"] = item(members=2)
        await here.settle()
        del here.jobs.objects["models/tune"]
        await here.settle()
        assert here.desk.done == ["apply tune", "apply tune", "delete tune"]
        assert set(here.told) == {("tune", 2, "")}


async def test_annotations_hold_a_job_back_and_end_it() -> None:
    """Each is done once, and undone; without them what `relume train` said stays; another word is refused."""
    async with case() as here:
        said = here.jobs.objects["models/tune"] = item()
        for annotations in (
            {PAUSED: "true"}, {PAUSED: "true"}, {}, {PAUSED: "false"}, {CANCELLED: "true", PAUSED: "true"},
            {CANCELLED: "false", PAUSED: "true"}, {PAUSED: "yes"},
        ):  # fmt: skip
            said["metadata"]["annotations"] = annotations
            await here.settle()
        assert here.desk.done == [
            "apply tune", "pause tune True", "pause tune False", "cancel tune", "resume tune 0", "pause tune True",
        ]  # fmt: skip
        assert "neither true nor false" in here.told[-1][2]
        assert here.desk.stands["tune"].annotations == {"relume.dev/object": "o1"}


async def test_a_kind_that_may_not_be_seen_has_not_lost_its_objects() -> None:
    """What was declared of an object stands while the API server does not say what there is; once it does, and the
    object is not there, it is withdrawn."""
    async with case() as here:
        here.jobs.objects["models/tune"] = item()
        await here.settle()
        here.listed = False
        del here.jobs.objects["models/tune"]
        await here.settle()
        assert here.desk.done == ["apply tune"]
        here.listed = True
        here.made.look_at_all()
        await here.settle()
        assert here.desk.done == ["apply tune", "delete tune"]


async def test_one_that_was_made_anew_is_another_job() -> None:
    """The declaration of the deleted object goes first."""
    async with case() as here:
        here.jobs.objects["models/tune"] = item()
        await here.settle()
        here.jobs.objects["models/tune"] = item(uid="o2")
        await here.settle()
        assert here.desk.done == ["apply tune", "delete tune", "apply tune"]


async def test_what_is_wrong_is_told_and_what_stood_stays() -> None:
    """A field that cannot be read is named, with rule and remedy."""
    async with case() as here:
        here.jobs.objects["models/tune"] = item()
        await here.settle()
        here.jobs.objects["models/tune"] = item(members=0)
        await here.settle()
        assert here.desk.done == ["apply tune"]
        assert "spec.members" in here.told[-1][2]
        assert here.made.refused == 1


async def test_a_name_belongs_to_one_object() -> None:
    """A TrainingJob goes before a Job of others, and that comes to its own when it is gone."""
    async with case() as here:
        here.jobs.objects["models/tune"] = item()
        here.others.objects["models/tune"] = item(uid="o9", members=3)
        await here.settle()
        found = here.made.object_of("tune")
        assert found is not None
        assert found[0].resource == TRAINING_JOBS
        del here.jobs.objects["models/tune"]
        await here.settle()
        assert here.desk.stands["tune"].spec["members"] == 3


async def test_another_hands_pause_is_carried_over() -> None:
    """Only where the object says something about it, and only when it differs."""
    async with case() as here:
        here.others.objects["models/tune"] = item()
        here.paused = False
        await here.settle()
        here.paused = True
        await here.settle()
        assert here.desk.done == ["apply tune", "pause tune True"]
        here.others.objects["models/tune"] = item(bad=True)
        await here.settle()
        assert here.told[-1][2] == "it is bad; make it better"


def declared(revision: int = 1, uid: str = "u1", **more: Any) -> TrainingDeclared:
    spec = more.pop("spec", {"command": ["a"], "pod": {"image": f"a:{revision}"}})
    return TrainingDeclared(job="tune", uid=uid, revision=revision, generation=revision, spec=spec, **more)


def test_looks_are_those_of_a_revision() -> None:
    """Each revision has its own; another declaration forgets them; what cannot be made is told."""
    looks = Looks()
    looks.fold(declared(annotations={"relume.dev/object": "o1"}))
    looks.fold(declared(2))
    assert [looks.of("tune", "u1", one).pod.image for one in (1, 2)] == ["a:1", "a:2"]
    owner = looks.of("tune", "u1", 1).owner
    assert owner is not None
    assert (owner.name, owner.uid) == ("tune", "o1")
    looks.fold(declared(3, spec={"command": ["a"]}))
    with pytest.raises(ValueError, match="no image is named"):
        looks.of("tune", "u1", 3)
    assert NO_IMAGE.startswith("spec.pod")
    looks.fold(declared(4, spec={"command": ["a"], "pod": {"image": "a", "port": 0}}))
    with pytest.raises(ValueError, match=r"pod\.port"):
        looks.of("tune", "u1", 4)
    looks.fold(declared(5, uid="u2", annotations={"relume.dev/training-target": "batch/v1/Job/tune"}))
    with pytest.raises(ValueError, match="not known"):
        looks.of("tune", "u1", 1)
    assert looks.target("tune", "u2") == Target("batch/v1", "Job", "tune")
    assert looks.target("tune", "u1") is None


def test_a_document_has_nothing_of_other_programs() -> None:
    """What kubectl keeps in annotations, and what would pass for ours, is left out; the uid is ours."""
    found = item()
    found["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": "{}", "relume.dev/training-target": "a/b/c", "team": "x",
    }  # fmt: skip
    assert metadata_of(found)["annotations"] == {"team": "x", "relume.dev/object": "o1"}
