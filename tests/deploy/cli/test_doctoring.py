"""`relume doctor` and `relume install`: what they say of Kafka and Prometheus, and of wrong use; without a cluster."""

from __future__ import annotations

import json

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from deploy.cli.doctoring import _kafka, _prometheus
from deploy.cli.main import run
from deploy.kubernetes.packaging_doctor import State
from deploy.settings.settings import load_settings
from tests.support.kafka_broker import Broker
from tests.support.kafka_logs import LEAKS


@pytest.mark.parametrize(
    ("status", "body", "state"),
    [
        (200, {"status": "success", "data": {}}, State.OK),
        (401, {"status": "error"}, State.FAILED),
        (200, {"hello": "I am something else"}, State.FAILED),
    ],
    ids=["answers", "lets nobody in", "another server"],
)
async def test_prometheus_is_asked_a_query(status: int, body: dict[str, object], state: State) -> None:
    """Only one that answers a query is right; what it said otherwise is told, with a remedy."""
    asked = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.query["query"])
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_get("/proxy/api/v1/query", answer)
    async with TestServer(app) as server:
        check = await _prometheus(str(server.make_url("/proxy/")))
    assert asked == ["vector(1)"]
    assert (check.state, check.remedy == "") == (state, state is State.OK)
    assert state is State.OK or str(status) in check.told


async def test_a_prometheus_that_is_not_there(unused_tcp_port: int) -> None:
    """Told with where it was looked for, and where else to ask from."""
    check = await _prometheus(f"http://127.0.0.1:{unused_tcp_port}")
    assert check.state is State.FAILED
    assert str(unused_tcp_port) in check.told
    assert "own pod" in check.remedy


@pytest.mark.slow
@pytest.mark.needs("kafka")
class TestKafka:
    """On a real broker."""

    pytestmark = LEAKS

    def test_topics_that_are_missing_and_fit(self, broker: Broker) -> None:
        """A broker without topics is a warning with the command that says more; with them it is right."""
        settings = load_settings({"events": f"kafka://{broker.address}"})
        check = _kafka(settings)
        assert (check.state, check.remedy) == (State.WARNING, "relume topics check")
        assert run(["topics", "create", "--events", f"kafka://{broker.address}", "--kafka-partitions", "1"]) == 0
        assert _kafka(settings).state is State.OK


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("install",), "--image is missing"),
        (("install", "--only-crds", "--without-crds"), "nothing to do"),
        (("install", "--image", "a/b:1", "--events", "sqlite:x.db"), "is for Kafka"),
        (("install", "--image", "a/b:1", "--events", "nats://x"), "--events"),
        (("doctor", "--events", "nats://x"), "events"),
        (("doctor", "--kubeconfig", "/nowhere"), "does not exist"),
    ],
)
def test_wrong_use(words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, with what to type instead; no cluster is asked."""
    assert run([*words]) == 2
    assert told in capsys.readouterr().err


def test_objects_are_printed_without_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    """Definitions, then everything else, as YAML that can be applied."""
    from ruamel.yaml import YAML  # noqa: PLC0415 - only this test reads YAML

    assert run(["install", "-n", "here", "--image", "a/b:1", "-o", "yaml"]) == 0
    found = list(YAML(typ="safe", pure=True).load_all(capsys.readouterr().out))
    assert [one["kind"] for one in found][:2] == ["CustomResourceDefinition"] * 2
    assert {one["metadata"].get("namespace", "here") for one in found} == {"here"}
    json.dumps(found)


def test_a_cluster_that_does_not_answer(capsys: pytest.CaptureFixture[str], tmp_path, unused_tcp_port: int) -> None:
    """Exit code 1, and what to look at."""
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{unused_tcp_port}"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }  # fmt: skip
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    pytest.importorskip("kubernetes")
    assert run(["doctor", "--kubeconfig", str(path)]) == 1
    assert "does the API server run" in capsys.readouterr().err
