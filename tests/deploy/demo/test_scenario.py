"""The story: starts told from changes of phase, a declaration that is valid, and what failures do to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from deploy.demo import scenario
from deploy.demo.run import DemoOptions, run
from deploy.demo.scenario import Story, StoryFailed, declaration, starts
from deploy.demo.summary import Start
from deploy.demo.traffic import Answer, ChatClient
from deploy.demo.watch import PhaseChange, Watch
from deploy.spec.load import load_bytes
from deploy.spec.model import Model
from events.clock import SystemClock
from tests.support.demo import ANSWER, FAILED


def changes(*told: tuple[float, str, str, str]) -> list[PhaseChange]:
    """(at, replica, state, phase), in order."""
    return [PhaseChange(at=at, replica=replica, state=state, phase=phase) for at, replica, state, phase in told]


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        ([], []),
        (
            changes((1, "a", "Starting", "spawn"), (2, "a", "Starting", "load"), (4, "a", "Ready", "")),
            [Start("a", {"spawn": 1, "load": 2}, 3)],
        ),
        (  # two at once
            changes((0, "a", "Starting", "spawn"), (1, "b", "Starting", "spawn"), (3, "a", "Ready", ""),
                    (7, "b", "Ready", "")),
            [Start("a", {"spawn": 3}, 3), Start("b", {"spawn": 6}, 6)],
        ),
        (  # the same phase told twice lasts on
            changes((0, "a", "Starting", "load"), (1, "a", "Starting", "load"), (3, "a", "Ready", "")),
            [Start("a", {"load": 3}, 3)],
        ),
        (  # a failed start is none, and the next one begins anew
            changes((0, "a", "Starting", "spawn"), (5, "a", "Failed", ""), (6, "a", "Starting", "spawn"),
                    (8, "a", "Ready", "")),
            [Start("a", {"spawn": 2}, 2)],
        ),
        (changes((0, "a", "Ready", ""), (1, "a", "Draining", ""), (2, "b", "Starting", "spawn")), []),
    ],
)  # fmt: skip
def test_starts_from_changes(seen: Sequence[PhaseChange], told: Sequence[Start]) -> None:
    """A phase lasts until the next change of the same replica; only starts that became ready are told."""
    assert starts(seen) == told


@pytest.mark.parametrize("weights", ["/models/m.gguf", "/my models/it's {a}: #1.gguf"])
def test_the_declaration_is_valid(weights: str) -> None:
    """As a user would write it, whatever the path of the weights."""
    loaded = load_bytes(declaration(Path(weights)).encode(), "model.yaml")
    (model,) = loaded.or_refuse()
    assert isinstance(model, Model)
    assert model.spec.weights is not None
    assert model.spec.weights.uri == Path(weights).as_uri()


class Client(ChatClient):
    """Answers from a list; the last one for ever."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def ask(self, question: str, max_tokens: int, on_text: Callable[[str], None] | None = None) -> Answer:
        self.asked += 1
        await asyncio.sleep(0)
        return self.answers[min(self.asked, len(self.answers)) - 1]


class Quiet(Watch):
    """Sees a model that grew and is gone at the end."""

    def __init__(self) -> None:
        super().__init__(cast("aiohttp.ClientSession", None), "", "m", SystemClock())

    async def sample_for_ever(self) -> None:
        await asyncio.Event().wait()

    async def follow_phases(self) -> None:
        await asyncio.Event().wait()

    async def status(self) -> dict[str, Any]:
        return {"wish": 3, "replicas": 0}


class Listener:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def chapter(self, title: str, text: str) -> None:
        self.said.append(title)

    def phase(self, change: PhaseChange) -> None:
        self.said.append(change.phase)

    def text(self, piece: str) -> None:
        self.said.append(piece)

    def note(self, text: str) -> None:
        self.said.append(text)

    def level(self, status: dict[str, Any]) -> None:
        pass


def story(monkeypatch: pytest.MonkeyPatch, client: Client, listener: Listener) -> Story:
    """A short one, without a server."""

    async def explain(_: Story, admin_url: str) -> list[str]:
        return [f"asked at {admin_url}"]

    monkeypatch.setattr(Story, "_explain", explain)
    monkeypatch.setattr(scenario, "BURST_SECONDS", 0.2)
    return Story(cast("aiohttp.ClientSession", None), client, Quiet(), listener)


async def test_a_first_request_that_fails_ends_the_story(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing more is asked, and the reason is the server's."""
    client, listener = Client([FAILED]), Listener()
    with pytest.raises(StoryFailed, match="503: no slot <b>"):
        await story(monkeypatch, client, listener).tell(SystemClock(), "")
    assert (client.asked, listener.said) == (1, ["Zero"])


async def test_failures_in_the_burst_do_not_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the twelve clients asks once and pauses; all are counted, the kind is told once."""
    client = Client([ANSWER] * 6 + [FAILED])
    told = await story(monkeypatch, client, Listener()).tell(SystemClock(), "")
    assert client.asked == 6 + scenario.BURST_CLIENTS
    assert (told.answered, told.failed) == (6, scenario.BURST_CLIENTS)
    assert told.failures == (f"503: no slot <b> ({scenario.BURST_CLIENTS} times)",)


async def test_the_whole_story(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its chapters in order, both explanations, and a held time that was not told is not taken for zero."""
    client, listener = Client([ANSWER, replace(ANSWER, held=None)]), Listener()
    told = await story(monkeypatch, client, listener).tell(SystemClock(), "URL")
    assert [one for one in listener.said if one in {"Zero", "Warm", "Burst", "Rest"}] == [
        "Zero",
        "Warm",
        "Burst",
        "Rest",
    ]
    assert told.explanations == {"Why it grew": ["asked at URL"], "Why it went to zero": ["asked at URL"]}
    assert told.burst_held.count == 0
    assert told.burst_first_token.count == told.answered - 6
    assert told.seconds_to_zero is not None


def test_without_llama_cpp_it_says_so_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """No model is fetched, no relume is started, no report is written."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("deploy.demo.run.ensure_model", lambda _: pytest.fail("fetched a model"))
    assert run(DemoOptions(out=tmp_path / "out")) == 1
    assert "pip install 'relume[llamacpp]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
