"""What goes on: `get --watch`, colours, waiting with bars; and TLS to the admin port."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from deploy.api.settings import AdminSettings
from deploy.cli import output, waiting
from deploy.cli.main import INTERRUPTED
from events.types.replicas import ReplicaState
from tests.deploy.cli.conftest import LiveAdmin, Relume
from tests.support.admin import ECHO, Load, observed, replica
from tests.support.certificates import Authority

Steps = Callable[..., None]


@pytest.fixture
def between_looks(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """Does one step in each pause between two looks, and then presses Ctrl-C."""

    def prepare(*steps: Callable[[], object]) -> None:
        left = iter(steps)

        def pause(_: float) -> None:
            step = next(left, None)
            if step is None:
                raise KeyboardInterrupt
            step()

        monkeypatch.setattr(time, "sleep", pause)

    return prepare


def test_watch_prints_what_changed(relume: Relume, live: LiveAdmin, between_looks: Steps) -> None:
    """The header once, each model once, then only models that changed; Ctrl-C ends it with 130."""
    live.do(live.admin.apply(ECHO + "---\n" + ECHO.replace("name: echo", "name: two").replace("org/echo", "org/two")))

    def load() -> None:
        live.admin.traffic.loads = [Load("two", held=3)]

    between_looks(load, load)
    ran = relume("get", "models", "--watch", live=live)
    assert ran.code == INTERRUPTED
    assert [line.split()[0] for line in ran.out.splitlines()] == ["NAME", "echo", "two", "two"]


def test_watch_as_json_is_one_object_a_line(relume: Relume, live: LiveAdmin, between_looks: Steps) -> None:
    """Programs can follow too."""
    live.do(live.admin.apply())
    between_looks()
    ran = relume("get", "models", "-w", "-o", "json", live=live)
    assert [json.loads(line)["metadata"]["name"] for line in ran.out.splitlines()] == ["echo"]


def test_waiting_tells_each_change_and_ends_when_ready(relume: Relume, live: LiveAdmin, between_looks: Steps) -> None:
    """Piped, `apply --wait` writes a line whenever the model goes on, and ends with 0 when it is ready."""
    text = ECHO + "  scaling: {minReplicas: 1}\n"
    _, body = live.do(live.admin.apply(text))
    uid = body["items"][0]["metadata"]["uid"]  # type: ignore[index]  # the test knows the shape

    def see(state: ReplicaState) -> Callable[[], object]:
        return lambda: live.do(live.admin.say(observed(replica(state=state, uid=str(uid)), uid=str(uid))))

    between_looks(see(ReplicaState.STARTING), see(ReplicaState.STARTING), see(ReplicaState.READY))
    ran = relume("apply", "-f", "-", "--wait", stdin=text, live=live)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.splitlines() == [
        "model echo unchanged", "echo: Zero", "echo: Starting - echo-r1-0 is in phase load", "echo: Ready",
    ]  # fmt: skip


def test_waiting_for_a_model_that_fails_says_why(relume: Relume, live: LiveAdmin) -> None:
    """Failed is an answer: 1, with the reason and where to look."""
    text = ECHO + "  scaling: {minReplicas: 1}\n"
    _, body = live.do(live.admin.apply(text))
    uid = str(body["items"][0]["metadata"]["uid"])  # type: ignore[index]  # the test knows the shape
    live.do(live.admin.say(observed(uid=uid, failures=3, reason="Crashed", message="out of memory")))
    ran = relume("apply", "-f", "-", "--wait", stdin=text, live=live)
    assert ran.code == 1
    assert "out of memory" in ran.err
    assert "relume logs echo" in ran.err


@pytest.mark.parametrize(
    ("terminal", "no_color", "term", "coloured"),
    [
        (True, "", "xterm", True), (True, "1", "xterm", False), (True, "", "dumb", False), (False, "", "xterm", False),
    ],
)  # fmt: skip
def test_colours_only_on_a_terminal_that_wants_them(
    monkeypatch: pytest.MonkeyPatch,
    terminal: bool,
    no_color: str,
    term: str,
    coloured: bool,
) -> None:
    """Piped output and NO_COLOR have none."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", term)
    assert ("\x1b" in output.note("Ready", "green")) is coloured


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """An authority of certificates."""
    return Authority(tmp_path)


@pytest.fixture
def behind_tls(authority: Authority) -> Iterator[LiveAdmin]:
    """An admin server that wants client certificates."""
    certificate, key = authority.issue("localhost")
    running = LiveAdmin(AdminSettings(port=0, certificate=certificate, key=key, client_ca=authority.certificate))
    yield running
    running.close()


def test_tls(relume: Relume, behind_tls: LiveAdmin, authority: Authority) -> None:
    """With the authority and a certificate of it, yes; without either, no, and what to give is said."""
    url = f"https://localhost:{behind_tls.admin.server.address[1]}"
    certificate, key = authority.issue("operator")
    ca = str(authority.certificate)
    mine = ("--cert", str(certificate), "--key", str(key))
    assert relume("get", "models", "--admin", url, "--ca", ca, *mine).code == 0
    unknown = relume("get", "models", "--admin", url, *mine)
    assert (unknown.code, unknown.out) == (1, "")
    assert "--ca" in unknown.err
    nobody = relume("get", "models", "--admin", url, "--ca", ca)
    assert (nobody.code, nobody.out) == (1, "")
    assert relume("get", "models", "--admin", url, "--ca", str(key)).code == 2


def test_bars_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each model has a bar with its phase; words of an engine in brackets are no markup; all is on standard error."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    monkeypatch.setattr(waiting, "Console", lambda **_: console)
    status = {"state": "Starting", "readyReplicas": 0, "startingReplicas": 0, "message": "[bold] waits", "reason": ""}
    with waiting._display() as show:
        show("echo", status)
        show("echo", {**status, "state": "Ready", "readyReplicas": 1})
    text = screen.getvalue()
    assert "echo" in text
    assert "Ready, 1 ready" in text
