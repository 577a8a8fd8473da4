"""Places of weights behind each kind of address."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.support.s3_store import CREDENTIALS, Store, store_in
from tests.support.weight_origins import CHUNK, Place, of_file, of_hf, of_http, of_oci, of_s3

KINDS = (
    "file",
    "http",
    pytest.param("s3", marks=pytest.mark.needs("versitygw")),
    pytest.param("hf", marks=pytest.mark.needs("hf")),
    "oci",
)
REMOTE = KINDS[1:]
LISTED = (KINDS[0], *KINDS[2:])
"""Those that say what lies in a folder."""

Open = Callable[[str, dict[str, bytes], str], Place]


def made(number: int, size: int) -> bytes:
    """Incompressible, always the same, different for each number."""
    return random.Random(number).randbytes(size)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A real store that the tests of a process share."""
    with store_in(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens a place of a kind with these files, of which one is the one that is asked for."""
    monkeypatch.setenv("RELUME_TEST_S3", CREDENTIALS)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    opened: list[AbstractContextManager[Place]] = []

    def open_one(kind: str, files: dict[str, bytes], name: str) -> Place:
        plain = {"file": of_file, "http": of_http, "hf": of_hf, "oci": of_oci}
        if kind == "s3":
            context = of_s3(tmp_path, files, name, request.getfixturevalue("store"))
        else:
            context = plain[kind](tmp_path, files, name)
        opened.append(context)
        return context.__enter__()

    yield open_one
    for context in opened:
        context.__exit__(None, None, None)


@pytest.fixture
def content() -> bytes:
    """Ten chunks and a piece."""
    return made(6, 10 * CHUNK + 1234)
