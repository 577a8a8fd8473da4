"""TLS on both ports with a certificate authority of one's own, and the admin port's token, by the clients of users."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import openai
import pytest
import pytest_asyncio

from deploy.demo.server import Server
from tests.support.certificates import Authority
from tests.support.openai_clients import HELLO
from tests.support.running import simulated

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
]

TOKEN = "0123456789abcdef0123456789abcdef"


@dataclass
class Secured:
    """A relume that speaks TLS only; `folder` holds the certificates and the token."""

    server: Server
    folder: Path
    trusting: ssl.SSLContext

    @property
    def base_url(self) -> str:
        """For OpenAI's client, by the name in the certificate."""
        return self.server.gateway_url.replace("127.0.0.1", "localhost") + "/v1"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def secured(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Secured]:
    """One model behind two TLS ports; the admin port wants a token."""
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder)
    certificate, key = authority.issue("localhost")
    (folder / "token").write_text(TOKEN + "\n")
    (folder / "models.yaml").write_text(simulated(options="timeToFirstToken: 5ms", keepAlive="60s"))
    arguments = ["-f", str(folder / "models.yaml"), "--admin-token-file", str(folder / "token")]
    for port in ("gateway", "admin"):
        arguments += [f"--{port}-tls-cert", str(certificate), f"--{port}-tls-key", str(key)]
    server = Server(folder, tuple(arguments))
    await server.start()
    try:
        yield Secured(server, folder, ssl.create_default_context(cafile=str(authority.certificate)))
    finally:
        await server.stop()


async def test_the_openai_client_over_tls(secured: Secured) -> None:
    """Both clients talk https to the data port, whole and streamed, once they trust the authority."""
    assert secured.base_url.startswith("https://localhost:")

    def ask() -> None:
        http = openai.DefaultHttpxClient(verify=secured.trusting)
        with openai.OpenAI(base_url=secured.base_url, api_key="tests", http_client=http) as client:
            assert client.chat.completions.create(model="echo", messages=HELLO).choices[0].message.content

    await asyncio.to_thread(ask)
    http = openai.DefaultAsyncHttpxClient(verify=secured.trusting)
    async with openai.AsyncOpenAI(base_url=secured.base_url, api_key="tests", http_client=http) as client:
        stream = await client.chat.completions.create(model="echo", messages=HELLO, max_tokens=7, stream=True)
        pieces = [chunk.choices[0].delta.content async for chunk in stream if chunk.choices[0].delta.content]
        assert len(pieces) == 7
        # Longer than one TLS record, so that records are put together again on both sides.
        vectors = await client.embeddings.create(model="echo", input=["x" * 100_000] * 8)
        assert len(vectors.data) == 8


async def test_a_client_that_does_not_trust_the_authority(secured: Secured) -> None:
    """Whoever does not know the authority gets no connection, and plain HTTP gets no answer; the port goes on."""
    async with openai.AsyncOpenAI(base_url=secured.base_url, api_key="tests", max_retries=0) as client:
        with pytest.raises(openai.APIConnectionError):
            await client.models.list()
    plain = secured.base_url.replace("https://", "http://")
    async with openai.AsyncOpenAI(base_url=plain, api_key="tests", max_retries=0) as client:
        with pytest.raises(openai.APIConnectionError):
            await client.models.list()
    http = openai.DefaultAsyncHttpxClient(verify=secured.trusting)
    async with openai.AsyncOpenAI(base_url=secured.base_url, api_key="tests", http_client=http) as client:
        assert [model.id async for model in await client.models.list()] == ["echo"]


async def test_the_admin_port_wants_its_token(secured: Secured) -> None:
    """Without the token, or with a wrong one: 401. With it: the answer. The health of the process needs none."""
    url = secured.server.admin_url
    assert url.startswith("https://")
    connector = aiohttp.TCPConnector(ssl=secured.trusting)
    async with aiohttp.ClientSession(connector=connector) as session:
        for given, wanted in ((None, 401), ("wrong" * 8, 401), (TOKEN, 200)):
            headers = {} if given is None else {"Authorization": f"Bearer {given}"}
            async with session.get(f"{url}/v1alpha1/models", headers=headers) as answer:
                assert answer.status == wanted
                assert (wanted == 401) == ("WWW-Authenticate" in answer.headers)
        async with session.get(f"{url}/healthz") as answer:
            assert answer.status == 200


async def test_the_command_line_over_tls(secured: Secured) -> None:
    """`relume get` shows its token and checks the certificate; without either it says what is missing, and exits 1."""
    code, told, _ = await _relume(
        secured, "get", "models", "-o", "json", "--ca", "ca.pem", "--token-file", "token"
    )  # fmt: skip
    assert code == 0
    assert [item["metadata"]["name"] for item in json.loads(told)["items"]] == ["echo"]
    code, told, words = await _relume(secured, "get", "models", "--ca", "ca.pem")
    assert (code, told) == (1, "")
    assert "token" in words
    code, told, words = await _relume(secured, "get", "models", "--token-file", "token")
    assert (code, told) == (1, "")
    assert "certificate" in words


async def _relume(secured: Secured, *arguments: str) -> tuple[int | None, str, str]:
    """The exit code, standard output and standard error of a command that talks to `secured`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deploy.cli.main", *arguments, "--admin", secured.server.admin_url, cwd=secured.folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    told, words = await process.communicate()
    return process.returncode, told.decode(), words.decode()
