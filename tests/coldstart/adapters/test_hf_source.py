"""The hub: commits are pinned, hits ask nobody, tokens go nowhere else, and refusals say what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coldstart.adapters.sources import source_for
from coldstart.cache.wanting import Got, Progress, Wanted
from coldstart.cache.weights import WeightCache
from coldstart.core.cache.errors import SourceOffline, SourceRefused, SourceUnavailable, UnsupportedSource
from coldstart.core.cache.policy import RoomPolicy
from coldstart.core.cache.wanted import Access
from events.clock import SystemClock
from tests.coldstart.adapters.conftest import made
from tests.support.fake_hub import Hub, running
from tests.support.weight_origins import CHUNK, QUICK

pytestmark = pytest.mark.needs("hf")

FILES = {"config.json": b"{}", "model.safetensors": made(3, 2 * CHUNK + 9), "onnx/model.onnx": made(4, 5000)}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """One that asks for a token."""
    (tmp_path / "hub").mkdir()
    monkeypatch.setenv("MODELS_TOKEN", "hush-hush")
    with running(Hub(tmp_path / "hub", token="hush-hush")) as serving:
        yield serving


def wanted(hub: Hub, address: str = "hf://org/model") -> Wanted:
    return Wanted(address, access=Access(credentials="env:MODELS_TOKEN", endpoint=hub.endpoint))


def fetch(folder: Path, what: Wanted) -> Got:
    policy = replace(QUICK, retries=2)
    got = WeightCache(folder, policy, RoomPolicy(), SystemClock()).fetch(
        what, source_for(what, policy, SystemClock()), Progress()
    )
    got.use.end()
    return got


def test_the_token_goes_to_the_hub_alone(hub: Hub, tmp_path: Path) -> None:
    """Not to where it redirects, nor into any file."""
    hub.commit(FILES)
    got = fetch(tmp_path / "w", wanted(hub))
    assert {path for path, sent in hub.seen if sent} >= {"/api/models/org/model/revision/main"}
    assert {sent for path, sent in hub.seen if path.startswith("/cdn/")} == {None}
    kept = b"".join(path.read_bytes() for path in (tmp_path / "w").rglob("*.json") if path.is_file())
    assert b"hush" not in kept
    assert got.manifest.source == "hf://org/model"


def test_a_branch_is_read_at_its_commit(hub: Hub, tmp_path: Path) -> None:
    """Whoever pushes meanwhile does not mix two commits; afterwards the new one is fetched, and only what changed."""
    first = hub.commit(FILES)
    old = fetch(tmp_path / "w", wanted(hub))
    assert old.manifest.version == first
    second = hub.commit({**FILES, "config.json": b'{"a": 1}'})
    new = fetch(tmp_path / "w", wanted(hub))
    assert (new.hit, new.manifest.version, new.transferred) == (False, second, len(b'{"a": 1}'))
    assert (new.path / "config.json").read_bytes() == b'{"a": 1}'


def test_a_pinned_commit_asks_nobody_on_a_hit(hub: Hub, tmp_path: Path) -> None:
    """Not even whether it is the newest: what it names cannot change."""
    commit = hub.commit(FILES)
    pinned = wanted(hub, f"hf://org/model@{commit}")
    fetch(tmp_path / "w", pinned)
    asked = len(hub.seen)
    again = fetch(tmp_path / "w", pinned)
    assert (again.hit, again.note, len(hub.seen)) == (True, "", asked)
    some = replace(pinned, include=("*.json",))
    fetch(tmp_path / "w", some)
    asked = len(hub.seen)
    assert fetch(tmp_path / "w", some).hit
    assert len(hub.seen) == asked


def test_offline(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is here is a hit; what is not is refused in words that say so, without a question."""
    commit = hub.commit(FILES)
    fetch(tmp_path / "w", wanted(hub))
    fetch(tmp_path / "w", wanted(hub, f"hf://org/model@{commit}"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    asked = len(hub.seen)
    assert fetch(tmp_path / "w", wanted(hub, f"hf://org/model@{commit}")).note == ""
    branch = fetch(tmp_path / "w", wanted(hub))
    assert branch.hit
    assert "HF_HUB_OFFLINE" in branch.note
    with pytest.raises(SourceOffline, match="not in the cache"):
        fetch(tmp_path / "w", wanted(hub, "hf://org/model/config.json"))
    assert len(hub.seen) == asked


def test_a_folder_of_a_repository(hub: Hub, tmp_path: Path) -> None:
    """Names are relative to it; a revision may be a branch with a slash."""
    hub.commit(FILES, branch="refs/pr/1")
    got = fetch(tmp_path / "w", wanted(hub, "hf://org/model@refs%2Fpr%2F1/onnx"))
    assert [path.name for path in got.path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("hf://org/other", "no such repository"), ("hf://org/model@nowhere", "no revision nowhere"),
        ("hf://org/model/missing.bin", "has no missing.bin"),
    ],
)  # fmt: skip
def test_refusals_say_what_is_missing(hub: Hub, tmp_path: Path, address: str, says: str) -> None:
    """Repository, revision, file."""
    hub.commit(FILES)
    with pytest.raises(SourceRefused, match=says):
        fetch(tmp_path / "w", wanted(hub, address))


def test_a_gated_repository(hub: Hub, tmp_path: Path) -> None:
    """Its owner must let one in; the token is in no error."""
    hub.commit(FILES)
    hub.gated = True
    with pytest.raises(SourceRefused, match="let you in") as refused:
        fetch(tmp_path / "w", wanted(hub))
    assert "hush" not in str(refused.value)
    hub.gated, hub.token = False, "another"
    with pytest.raises(SourceRefused, match="does not open it"):
        fetch(tmp_path / "w", wanted(hub))


def test_a_hub_that_is_busy_is_asked_again(hub: Hub, tmp_path: Path) -> None:
    """429 and 500 pass; for ever, they are told as such."""
    hub.commit(FILES)
    hub.failing = [429, 500]
    assert not fetch(tmp_path / "w", wanted(hub)).hit
    hub.failing = [500] * 20
    with pytest.raises(SourceUnavailable, match="500"):
        fetch(tmp_path / "elsewhere", wanted(hub))


@pytest.mark.parametrize("address", ["hf://", "hf://justone", "hf:///org/name", "hf://org/na me!/x"])
def test_addresses_that_are_none(hub: Hub, tmp_path: Path, address: str) -> None:
    """Are refused before anything is asked."""
    with pytest.raises(UnsupportedSource):
        fetch(tmp_path / "w", wanted(hub, address))
    assert hub.questions == 0
