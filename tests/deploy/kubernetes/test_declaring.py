"""Model objects and what stands in the log about them: the object says what is declared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from deploy.kubernetes.declaring import BY, ModelObjects
from deploy.kubernetes.reflecting import Reflector
from deploy.kubernetes.settings import KubernetesSettings
from deploy.spec.declare import declare, delete, override
from deploy.spec.model import Model
from events.clock import SystemClock
from events.types.models import ModelDeclared, Override
from events.units import Instant


class Followed:
    """What a reflector has."""

    def __init__(self, **objects: dict[str, Any]) -> None:
        self.objects = {f"models/{name}": item for name, item in objects.items()}


class Log:
    """Takes declarations, and tells of each at once; of each is remembered which it was."""

    def __init__(self, **objects: dict[str, Any]) -> None:
        self.objects = ModelObjects(
            cast("Reflector", Followed(**objects)), self, SystemClock(), KubernetesSettings(namespace="models"),
            lambda name, generation, problem: None,
        )  # fmt: skip
        self.standing: ModelDeclared | None = None
        self.told: list[ModelDeclared] = []

    async def apply(self, models: list[Model]) -> object:
        (model,) = models
        self.tell(declare(self.standing, model, f"uid-{len(self.told)}"))
        return None

    async def delete(self, name: str) -> object:
        assert self.standing is not None
        self.tell(delete(self.standing))
        return None

    async def scale(self, name: str, wanted: Override | None) -> None:
        assert self.standing is not None
        self.tell(override(self.standing, wanted))

    def tell(self, event: ModelDeclared) -> None:
        """Somebody's declaration stands, if it is another."""
        if event is not self.standing:
            self.standing = event
            self.told.append(event)
            self.objects.declared(event)


def item(**spec: Any) -> dict[str, Any]:
    """A Model object."""
    return {
        "metadata": {"name": "echo", "namespace": "models", "uid": "o", "generation": 1},
        "spec": {"engine": {"type": "simulated"}, "scaling": {"maxReplicas": 3}, **spec},
    }


@pytest.fixture
async def log() -> AsyncIterator[Log]:
    """With one object, which says two replicas, and is declared."""
    made = Log(echo=item(replicas=2))
    running = asyncio.create_task(made.objects.run())
    await until(lambda: made.standing is not None and made.standing.override is not None)
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def until(true: Callable[[], bool]) -> None:
    for _ in range(1000):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError("nothing became of it")


def other_number(event: ModelDeclared) -> ModelDeclared:
    return override(event, Override(replicas=1, until=Instant(4e9), by="somebody"))


@pytest.mark.parametrize("another_hand", [delete, other_number])
async def test_what_another_hand_declares_of_a_model_its_object_says_otherwise(
    log: Log, another_hand: Callable[[ModelDeclared], ModelDeclared]
) -> None:
    """The object stands though nothing of it changed: by the log's word alone, once, and then there is rest."""
    assert log.standing is not None
    log.tell(another_hand(log.standing))
    await until(lambda: _as_its_object_says(log.standing))
    count = len(log.told)
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(log.told) == count


async def test_a_model_without_an_object_is_whose_it_is() -> None:
    """A declaration by other ways, and its end, are nobody's here."""
    made = Log()
    running = asyncio.create_task(made.objects.run())
    made.tell(declare(None, {"apiVersion": "relume.dev/v1alpha1", "kind": "Model", **_plain()}, "u"))
    assert made.standing is not None
    made.tell(delete(made.standing))
    for _ in range(50):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert len(made.told) == 2


def _plain() -> dict[str, Any]:
    return {"metadata": {"name": "echo"}, "spec": item()["spec"]}


def _as_its_object_says(event: ModelDeclared | None) -> bool:
    number = None if event is None else event.override
    return event is not None and not event.deleted and number is not None and (number.replicas, number.by) == (2, BY)
