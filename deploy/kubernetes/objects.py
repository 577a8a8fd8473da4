"""Objects written for the admin API: server-side apply by our one field manager, never over another's fields.

What others own (kubectl, GitOps) stays theirs: a document that says otherwise is refused with the API server's words.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

from deploy.api.declaring import refused
from deploy.api.problem import ProblemError, refuse
from deploy.api.shapes import FieldProblem
from deploy.kubernetes.api import ApiError, ApiUnavailable, KubeApi
from deploy.kubernetes.declaring import BY, UNTIL, document
from deploy.kubernetes.gpu_pools import document as pool_document
from deploy.kubernetes.not_here import check_here
from deploy.kubernetes.resources import GPU_POOLS, MODELS, TRAINING_JOBS, Json, Resource
from deploy.kubernetes.shapes import ANNOTATION_OBJECT
from deploy.kubernetes.times import read_time
from deploy.kubernetes.training.objects import CANCELLED, PAUSED, of_training_job
from deploy.spec.check import check_as
from deploy.spec.kinds import Document
from deploy.spec.model import Model
from deploy.spec.pool import GpuPool
from deploy.spec.problem import SpecRefused
from deploy.spec.training import TrainingJob
from events.types.models import Override
from events.units import format_instant

logger = logging.getLogger(__name__)

_APPLY: Final = {"force": "false", "fieldValidation": "Strict"}


class ObjectWriter:
    """Fulfils `deploy.api.fronting.Objects`. `api`: None while there is no connection yet."""

    def __init__(self, api: Callable[[], KubeApi | None], namespace: str) -> None:
        self._connected = api
        self._namespace = namespace

    async def write(self, documents: Sequence[Document], *, dry_run: bool) -> Sequence[Document]:
        """See the port."""
        for one in documents:
            if isinstance(one, Model):
                _check_here(one)
        return [await self._written(one, dry_run=dry_run) for one in documents]

    async def _written(self, one: Document, *, dry_run: bool) -> Document:
        if isinstance(one, Model):
            return check_as(Model, document(await self._write(MODELS, one, dry_run=dry_run)))
        if isinstance(one, GpuPool):
            return check_as(GpuPool, pool_document(await self._write(GPU_POOLS, one, dry_run=dry_run)))
        found = await self._write(TRAINING_JOBS, one, dry_run=dry_run)
        return check_as(TrainingJob, of_training_job(found).document)

    async def _write(self, resource: Resource, document: Document, *, dry_run: bool) -> Json:
        name = document.metadata.name
        body: dict[str, Any] = document.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)
        body.setdefault("spec", {})
        annotations = body["metadata"].get("annotations", {})
        body["metadata"]["annotations"] = {key: text for key, text in annotations.items() if key != ANNOTATION_OBJECT}
        query = _APPLY | ({"dryRun": "All"} if dry_run else {})
        try:
            return await self._api().apply(resource.path(self._namespace, name), body, query)
        except (ApiError, ApiUnavailable) as error:
            raise _told(error, _about(resource, name)) from error

    async def delete(self, name: str) -> bool:
        """See the port."""
        return await self._delete(MODELS, name)

    async def delete_pool(self, name: str) -> bool:
        """See the port."""
        return await self._delete(GPU_POOLS, name)

    async def delete_training(self, name: str) -> bool:
        """See the port."""
        return await self._delete(TRAINING_JOBS, name)

    async def hold_training(self, name: str, *, paused: bool | None = None, cancelled: bool | None = None) -> None:
        """See the port: two annotations, which people may write too."""
        said = {PAUSED: paused, CANCELLED: cancelled}
        texts = {key: str(value).lower() for key, value in said.items() if value is not None}
        try:
            await self._api().merge(TRAINING_JOBS.path(self._namespace, name), {"metadata": {"annotations": texts}})
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:  # declared by other ways than an object
                raise _told(error, _about(TRAINING_JOBS, name)) from error
        except ApiUnavailable as error:
            raise _told(error, _about(TRAINING_JOBS, name)) from error

    async def _delete(self, resource: Resource, name: str) -> bool:
        try:
            return await self._api().delete(resource.path(self._namespace, name))
        except (ApiError, ApiUnavailable) as error:
            raise _told(error, _about(resource, name)) from error

    async def scale(self, name: str, wanted: Override | None) -> Override | None:
        """See the port: `spec.replicas`, and in an annotation until when it counts."""
        until = None if wanted is None else format_instant(wanted.until)
        body: Json = {
            "metadata": {"annotations": {UNTIL: until}},
            "spec": {"replicas": None if wanted is None else wanted.replicas},
        }
        try:
            await self._api().merge(MODELS.path(self._namespace, name), body)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return wanted  # declared by other ways than an object
            raise _told(error, _about(MODELS, name)) from error
        except ApiUnavailable as error:
            raise _told(error, _about(MODELS, name)) from error
        return None if wanted is None or until is None else replace(wanted, by=BY, until=read_time(until))

    async def release(self, name: str) -> None:
        """A number whose time is over goes: the next one that a person writes there shall count."""
        try:
            await self.scale(name, None)
        except ProblemError as error:
            logger.warning("the number of model %s, whose time is over, stays in its object: %s", name, error)

    def _api(self) -> KubeApi:
        api = self._connected()
        if api is None:
            raise refuse(
                HTTPStatus.SERVICE_UNAVAILABLE, "api-server-away", "the API server has not been reached yet",
                remedy="try again; /readyz says what is missing",
            )  # fmt: skip
        return api


def _check_here(model: Model) -> None:
    try:
        check_here(model)
    except SpecRefused as problem:
        raise refused(problem.problems) from problem


def _about(resource: Resource, name: str) -> str:
    """What people call it."""
    words = {GPU_POOLS: "pool", TRAINING_JOBS: "training job"}
    return f"{words.get(resource, 'model')} {name}"


def _told(error: ApiError | ApiUnavailable, about: str) -> ProblemError:
    """The API server's no, in our form."""
    if isinstance(error, ApiUnavailable):
        return refuse(
            HTTPStatus.SERVICE_UNAVAILABLE, "api-server-away", f"the object of {about} was not written: {error}",
            remedy="try again; nothing is declared without its object",
        )  # fmt: skip
    match error.status:
        case HTTPStatus.CONFLICT:
            remedy = (
                "change these fields where they are managed (kubectl, your repository), or give them up there first"
            )
            return refuse(HTTPStatus.CONFLICT, "managed-elsewhere", f"{about}: {error.message}", remedy=remedy)
        case HTTPStatus.UNPROCESSABLE_ENTITY | HTTPStatus.BAD_REQUEST:
            fields = [_field(path, message) for path, message in error.causes]
            return refuse(
                HTTPStatus.UNPROCESSABLE_ENTITY, "refused", f"the API server refused {about}: {error.message}",
                remedy="mend this and apply again", fields=fields,
            )  # fmt: skip
        case HTTPStatus.FORBIDDEN:
            remedy = "relume doctor says which rights are missing; relume install gives them"
            return refuse(HTTPStatus.FORBIDDEN, "forbidden", error.message, remedy=remedy)
        case HTTPStatus.NOT_FOUND:
            remedy = "relume install --only-crds"
            return refuse(HTTPStatus.BAD_GATEWAY, "no-definition", f"{about}: {error.message}", remedy=remedy)
    return refuse(HTTPStatus.BAD_GATEWAY, "api-server", f"{about}: {error}", remedy="relume doctor says more")


def _field(path: str, message: str) -> FieldProblem:
    """A cause of a refusal. Our own rules say "rule; remedy" (`rules`)."""
    text = message.partition(": ")[2] or message if message.startswith("Invalid value") else message
    if text.startswith('"object": '):
        text = text.partition(": ")[2]
    rule, _, remedy = text.partition("; ")
    return FieldProblem(path=path, rule=rule, remedy=remedy)
