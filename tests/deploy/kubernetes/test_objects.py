"""Model objects written for the admin API: what the API server's no becomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from deploy.api.problem import ProblemError
from deploy.kubernetes.api import ApiError, ApiUnavailable, KubeApi
from deploy.kubernetes.objects import ObjectWriter
from deploy.kubernetes.resources import Json
from deploy.spec.check import check_as
from deploy.spec.model import Model
from deploy.spec.pool import GpuPool
from deploy.spec.training import TrainingJob
from events.types.models import Override
from events.units import Instant
from tests.support.specs import put, smallest

NUMBER = Override(replicas=2, until=Instant(1e9 + 0.25), by="admin")


class Server:
    """Says no with `error`, or takes what is written."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.calls: list[tuple[str, str, Json, Mapping[str, str]]] = []

    async def apply(self, path: str, body: Json, query: Mapping[str, str]) -> Json:
        """As it then stands there: with a uid, and what others keep in it."""
        self._take("apply", path, body, query)
        annotations = {**body["metadata"]["annotations"], "kubectl.kubernetes.io/last-applied-configuration": "{}"}
        return {**body, "metadata": {**body["metadata"], "annotations": annotations, "uid": "u1"}}

    async def merge(self, path: str, body: Json) -> Json:
        """Some fields."""
        self._take("merge", path, body, {})
        return body

    async def delete(self, path: str) -> bool:
        """Whether it was there."""
        self._take("delete", path, {}, {})
        return True

    def _take(self, verb: str, path: str, body: Json, query: Mapping[str, str]) -> None:
        self.calls.append((verb, path, body, query))
        if self.error is not None:
            raise self.error


def writer(server: Server | None) -> ObjectWriter:
    """On this server; None: it was not reached yet."""
    return ObjectWriter(lambda: cast("KubeApi | None", server), "models")


def pool(**spec: Any) -> GpuPool:
    """A document."""
    head = {"apiVersion": "relume.dev/v1alpha1", "kind": "GpuPool", "metadata": {"name": "default"}}
    return check_as(GpuPool, {**head, **({"spec": spec} if spec else {})})


def model(**metadata: Any) -> Model:
    """A document."""
    spec = {"engine": {"type": "simulated"}, "scaling": {"maxReplicas": 3}}
    head = {"apiVersion": "relume.dev/v1alpha1", "kind": "Model"}
    return check_as(Model, {**head, "metadata": {"name": "echo", **metadata}, "spec": spec})


async def test_only_what_a_person_wrote_is_applied_and_nothing_by_force() -> None:
    """Defaults are the API server's; its answer, without what is others', is the document that is declared."""
    server = Server()
    (written,) = await writer(server).write([model(annotations={"relume.dev/object": "theirs"})], dry_run=True)
    ((verb, path, body, query),) = server.calls
    assert (verb, path) == ("apply", "/apis/relume.dev/v1alpha1/namespaces/models/models/echo")
    assert body["spec"] == {"engine": {"type": "simulated", "options": {}}, "scaling": {"maxReplicas": 3}}
    assert (query["force"], query["dryRun"]) == ("false", "All")
    assert written.metadata.annotations == {"relume.dev/object": "u1"}


@pytest.mark.parametrize(("error", "status", "name", "words"), [
    (ApiError(409, "Conflict", 'conflict with "kubectl": .spec.slots'), 409, "managed-elsewhere", "kubectl"),
    (ApiError(403, "Forbidden", "may not"), 403, "forbidden", "may not"),
    (ApiError(404, "NotFound", "no such kind"), 502, "no-definition", "no such kind"),
    (ApiError(500, "Odd", "what"), 502, "api-server", "what"),
    (ApiUnavailable("refused"), 503, "api-server-away", "refused"),
])  # fmt: skip
async def test_a_no_is_told_in_our_form(error: Exception, status: int, name: str, words: str) -> None:
    """With its words, a name for programs, and what to do about it."""
    with pytest.raises(ProblemError) as caught:
        await writer(Server(error)).write([model()], dry_run=False)
    problem = caught.value.problem
    assert (problem.status, problem.type) == (status, f"urn:relume:problem:{name}")
    assert words in problem.detail
    assert problem.remedy


async def test_a_broken_rule_is_told_field_by_field() -> None:
    """Our CEL rules say "rule; remedy"."""
    causes = (
        ("spec.scaling", 'Invalid value: "object": minReplicas is above maxReplicas; lower one or raise the other'),
    )
    with pytest.raises(ProblemError) as caught:
        await writer(Server(ApiError(422, "Invalid", "is invalid", causes))).write([model()], dry_run=False)
    (field,) = caught.value.problem.problems
    assert (field.path, field.rule, field.remedy) == (
        "spec.scaling", "minReplicas is above maxReplicas", "lower one or raise the other",
    )  # fmt: skip


async def test_a_number_stands_in_the_object_with_its_end() -> None:
    """Of a model without an object it is an override as it was; taken away, both go."""
    server = Server()
    made = await writer(server).scale("echo", NUMBER)
    assert made is not None
    assert (made.replicas, made.until, made.by) == (2, NUMBER.until, "spec.replicas")
    body = server.calls[0][2]
    assert body["spec"] == {"replicas": 2}
    assert body["metadata"]["annotations"]["relume.dev/replicas-until"].startswith("2001-09-09T01:46:40.25")
    assert await writer(server).scale("echo", None) is None
    assert server.calls[1][2] == {
        "metadata": {"annotations": {"relume.dev/replicas-until": None}}, "spec": {"replicas": None},
    }  # fmt: skip
    assert await writer(Server(ApiError(404, "NotFound", "none"))).scale("echo", NUMBER) == NUMBER


async def test_before_the_api_server_was_reached_nothing_is_written() -> None:
    """503: it is declared nowhere, and may be tried again."""
    for call in (
        writer(None).write([model()], dry_run=False),
        writer(None).delete("echo"),
        writer(None).scale("a", None),
    ):
        with pytest.raises(ProblemError) as caught:
            await call
        assert caught.value.problem.status == 503


async def test_a_training_job_is_written_held_back_and_deleted() -> None:
    """As a model is; a pause and an end are annotations. Without an object they are nobody's but the log's."""
    server = Server()
    head = {"apiVersion": "relume.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "tune"}}
    job = check_as(TrainingJob, {**head, "spec": {"command": ["train"], "pod": {"image": "a:1"}}})
    (written,) = await writer(server).write([job], dry_run=False)
    path = "/apis/relume.dev/v1alpha1/namespaces/models/trainingjobs/tune"
    assert server.calls.pop()[:2] == ("apply", path)
    assert isinstance(written, TrainingJob)
    assert (written.spec, written.metadata.annotations) == (job.spec, {"relume.dev/object": "u1"})
    await writer(server).hold_training("tune", paused=True)
    await writer(server).hold_training("tune", paused=False, cancelled=False)
    held = [body["metadata"]["annotations"] for _, _, body, _ in server.calls]
    assert held == [
        {"relume.dev/paused": "true"}, {"relume.dev/paused": "false", "relume.dev/cancelled": "false"},
    ]  # fmt: skip
    assert await writer(server).delete_training("tune")
    assert server.calls[-1][:2] == ("delete", path)
    await writer(Server(ApiError(404, "NotFound", "none"))).hold_training("tune", paused=True)
    for error, status in ((ApiError(403, "Forbidden", "may not"), 403), (ApiUnavailable("refused"), 503)):
        with pytest.raises(ProblemError) as caught:
            await writer(Server(error)).hold_training("tune", paused=True)
        assert caught.value.problem.status == status
        assert "training job tune" in caught.value.problem.detail or status == 403


async def test_a_pool_is_written_as_a_model_is() -> None:
    """What a person wrote of it, also when that is nothing; a no names the pool."""
    server = Server()
    for document, spec in ((pool(), {}), (pool(reclaim={"budgetPerHour": 3}), {"reclaim": {"budgetPerHour": 3}})):
        (written,) = await writer(server).write([document], dry_run=False)
        verb, path, body, query = server.calls.pop()
        assert (verb, path) == ("apply", "/apis/relume.dev/v1alpha1/namespaces/models/gpupools/default")
        assert (body["spec"], query["force"], "dryRun" in query) == (spec, "false", False)
        assert isinstance(written, GpuPool)
        assert (written.spec, written.metadata.annotations) == (document.spec, {"relume.dev/object": "u1"})
    assert await writer(server).delete_pool("default")
    with pytest.raises(ProblemError, match="pool default"):
        await writer(Server(ApiError(409, "Conflict", "theirs"))).write([pool()], dry_run=False)


async def test_what_does_nothing_on_kubernetes_is_refused_before_anything_is_written() -> None:
    """Replicas that sleep, batches: path, value, rule and remedy are told; nothing else is written either."""
    server = Server()
    sleeper = put(smallest(), "spec.coldStart", {"sleep": {"level": 1}})
    both = check_as(Model, put(sleeper, "spec.batching", {"rule": "fixed"}))
    with pytest.raises(ProblemError) as caught:
        await writer(server).write([pool(), both], dry_run=True)
    sleep, batching = caught.value.problem.problems
    assert (sleep.path, sleep.remedy) == ("spec.coldStart.sleep", "leave coldStart.sleep out")
    assert "level" in (sleep.value or "")
    assert "no replica sleeps" in sleep.rule
    assert (batching.path, batching.remedy.split(";")[0]) == ("spec.batching", "leave batching out")
    assert "fixed" in (batching.value or "")
    assert "no front gathers" in batching.rule
    assert server.calls == []
