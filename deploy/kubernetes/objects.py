"""Model objects written for the admin API: server-side apply by our one field manager, never over another's fields.

What others own (kubectl, GitOps) stays theirs: a document that says otherwise is refused with the API server's words.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from deploy.api.problem import ProblemError, refuse
from deploy.api.shapes import FieldProblem
from deploy.kubernetes.api import ApiError, ApiUnavailable, KubeApi
from deploy.kubernetes.declaring import BY, UNTIL, document
from deploy.kubernetes.resources import MODELS, Json
from deploy.kubernetes.shapes import ANNOTATION_OBJECT
from deploy.kubernetes.times import read_time
from deploy.spec.check import check_as
from deploy.spec.kinds import Document
from deploy.spec.model import Model
from events.types.models import Override
from events.units import format_instant

logger = logging.getLogger(__name__)

_APPLY: Final = {"force": "false", "fieldValidation": "Strict"}


class ModelWriter:
    """Fulfils `deploy.api.fronting.Objects`. `api`: None while there is no connection yet."""

    def __init__(self, api: Callable[[], KubeApi | None], namespace: str) -> None:
        self._connected = api
        self._namespace = namespace

    async def write(self, documents: Sequence[Document], *, dry_run: bool) -> Sequence[Document]:
        """See the port. Kinds other than Model are given back as they are."""
        return [
            await self._write(one, dry_run=dry_run) if isinstance(one, Model) else one for one in documents
        ]  # fmt: skip

    async def _write(self, model: Model, *, dry_run: bool) -> Model:
        name = model.metadata.name
        body = model.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)
        annotations = body["metadata"].get("annotations", {})
        body["metadata"]["annotations"] = {key: text for key, text in annotations.items() if key != ANNOTATION_OBJECT}
        query = _APPLY | ({"dryRun": "All"} if dry_run else {})
        try:
            found = await self._api().apply(MODELS.path(self._namespace, name), body, query)
        except (ApiError, ApiUnavailable) as error:
            raise _told(error, name) from error
        return check_as(Model, document(found))

    async def delete(self, name: str) -> bool:
        """See the port."""
        try:
            return await self._api().delete(MODELS.path(self._namespace, name))
        except (ApiError, ApiUnavailable) as error:
            raise _told(error, name) from error

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
            raise _told(error, name) from error
        except ApiUnavailable as error:
            raise _told(error, name) from error
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


def _told(error: ApiError | ApiUnavailable, name: str) -> ProblemError:
    """The API server's no, in our form."""
    if isinstance(error, ApiUnavailable):
        return refuse(
            HTTPStatus.SERVICE_UNAVAILABLE, "api-server-away", f"the object of model {name} was not written: {error}",
            remedy="try again; nothing is declared without its object",
        )  # fmt: skip
    match error.status:
        case HTTPStatus.CONFLICT:
            remedy = (
                "change these fields where they are managed (kubectl, your repository), or give them up there first"
            )
            return refuse(HTTPStatus.CONFLICT, "managed-elsewhere", f"model {name}: {error.message}", remedy=remedy)
        case HTTPStatus.UNPROCESSABLE_ENTITY | HTTPStatus.BAD_REQUEST:
            fields = [_field(path, message) for path, message in error.causes]
            return refuse(
                HTTPStatus.UNPROCESSABLE_ENTITY, "refused", f"the API server refused model {name}: {error.message}",
                remedy="mend this and apply again", fields=fields,
            )  # fmt: skip
        case HTTPStatus.FORBIDDEN:
            remedy = "relume doctor says which rights are missing; relume install gives them"
            return refuse(HTTPStatus.FORBIDDEN, "forbidden", error.message, remedy=remedy)
        case HTTPStatus.NOT_FOUND:
            remedy = "relume install --only-crds"
            return refuse(HTTPStatus.BAD_GATEWAY, "no-definition", f"model {name}: {error.message}", remedy=remedy)
    return refuse(HTTPStatus.BAD_GATEWAY, "api-server", f"model {name}: {error}", remedy="relume doctor says more")


def _field(path: str, message: str) -> FieldProblem:
    """A cause of a refusal. Our own rules say "rule; remedy" (`rules`)."""
    text = message.partition(": ")[2] or message if message.startswith("Invalid value") else message
    if text.startswith('"object": '):
        text = text.partition(": ")[2]
    rule, _, remedy = text.partition("; ")
    return FieldProblem(path=path, rule=rule, remedy=remedy)
