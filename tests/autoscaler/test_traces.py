"""Stories: commands and the wishes that follow, in `tests/traces/autoscaler/*.txt`, in the style of etcd's raft.

A block is commands, `----`, and all output. Rewrite the output after a wanted change with
`pytest tests/autoscaler/test_traces.py --rewrite`, and read the difference before you commit it.

    model [NAME] [key=value…]       declare, with these fields of `scaling`
    delete [NAME]                   declare it deleted
    serve [running=N] [waiting=N] [for=SECONDS] [gateway=G]   a gateway tells of these levels, now and each second
    stop [gateway=G]                the gateway's requests are done
    silence [gateway=G]             from now on it says nothing
    beat gateway=G boot=B [for=SECONDS]                       it lives
    replicas [ready=N] [starting=N] [failures=N]              what there is
    activate [replicas=N] [for=SECONDS]                       somebody asks that the model be awake
    signal value=N target=N for=SECONDS
    pass SECONDS                    time passes
    restart [history=read|unread]   a new process on the same log
    history                         past demand has been read
    explain                         the last wish in sentences
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from autoscaler.explain import Records, explain
from events.types.gateways import GatewayBeat
from events.types.metrics import SignalMeasured
from events.types.requests import ActivationRequested
from tests.support.autoscaling import Run, declared, observed

TRACES = sorted((Path(__file__).parent.parent / "traces" / "autoscaler").glob("*.txt"))


class Story:
    """Runs the commands of one trace."""

    def __init__(self) -> None:
        self.run = Run(obey=False)
        self.told = 0

    def command(self, line: str) -> list[str]:
        """Do it; what it had to say, then the wishes that followed."""
        word, *rest = line.split()
        names = [part for part in rest if "=" not in part]
        options = dict(part.split("=", 1) for part in rest if "=" in part)
        act: Callable[[list[str], dict[str, str]], list[str] | None] = getattr(self, f"do_{word}")
        said = act(names, options) or []
        return [*said, *self.news()]

    def news(self) -> list[str]:
        """The wishes since the last call, a line each."""
        fresh, before = self.run.wishes[self.told :], self.run.wishes[: self.told]
        lines = []
        for when, wish in fresh:
            known = [one.replicas for _, one in before if one.uid == wish.uid]
            number = (
                f"{wish.replicas}"
                if known and known[-1] == wish.replicas
                else f"{(known or ['-'])[-1]} -> {wish.replicas}"
            )
            lines.append(f"{when:8.2f}s  {number:10} {', '.join(wish.reasons)}")
            before = [*before, (when, wish)]
        self.told = len(self.run.wishes)
        return lines

    def do_model(self, names: list[str], options: dict[str, str]) -> None:
        uid = options.pop("uid", "u")
        scaling = {key: value if value[-1] in "smhd" else int(value) for key, value in options.items()}
        self.run.put(declared(*names, uid=uid, **scaling))

    def do_delete(self, names: list[str], options: dict[str, str]) -> None:
        self.run.put(declared(*names, deleted=True))

    def do_serve(self, names: list[str], options: dict[str, str]) -> None:
        seconds = int(options.pop("for", 0))
        gateway = options.pop("gateway", "g")
        self.run.serve(gateway, seconds=seconds, **{key: int(value) for key, value in options.items()})

    def do_stop(self, names: list[str], options: dict[str, str]) -> None:
        self.run.stop(options.get("gateway", "g"))

    def do_beat(self, names: list[str], options: dict[str, str]) -> None:
        for _ in range(int(options.get("for", 1))):
            self.run.put(GatewayBeat(gateway=options["gateway"], boot=options["boot"]))
            self.run.advance(1)

    def do_replicas(self, names: list[str], options: dict[str, str]) -> None:
        counts = {key: int(value) for key, value in options.items()}
        retry_at = self.run.now + 10 if counts.get("failures") else None
        self.run.put(observed(**counts, retry_at=retry_at))  # type: ignore[arg-type]  # counts and an instant

    def do_activate(self, names: list[str], options: dict[str, str]) -> None:
        until = self.run.now + float(options["for"]) if "for" in options else None
        self.run.put(ActivationRequested(model="m", replicas=int(options.get("replicas", 1)), until=until))

    def do_signal(self, names: list[str], options: dict[str, str]) -> None:
        value, target, valid_for = (float(options[key]) for key in ("value", "target", "for"))
        self.run.put(SignalMeasured(model="m", name="outside", value=value, target=target, valid_for=valid_for))

    def do_pass(self, names: list[str], options: dict[str, str]) -> None:
        self.run.advance(float(names[0]))

    def do_restart(self, names: list[str], options: dict[str, str]) -> None:
        self.run = self.run.restart(history=options.get("history", "read") == "read")

    def do_history(self, names: list[str], options: dict[str, str]) -> None:
        self.run.read_history()

    def do_explain(self, names: list[str], options: dict[str, str]) -> list[str]:
        return [text for text in explain(Records(self.run.wish())).sentences if "allocator" not in text]


def play(text: str) -> str:
    """The trace with its output as it is today. Comments (`#`) and empty lines stay as they are."""
    story, out = Story(), []
    said: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        out.append(line)
        if line == "----":
            out += [*(said or ["(nothing)"]), ""]
            said = []
            for old in lines:
                if not old:
                    break
        elif line and not line.startswith("#"):
            said += story.command(line)
    assert not said, "commands without ---- at the end"
    return "\n".join(out).rstrip("\n") + "\n"


@pytest.mark.parametrize("path", TRACES, ids=[path.stem for path in TRACES])
def test_trace(path: Path, request: pytest.FixtureRequest) -> None:
    """The wishes of a story, and their reasons, are as written."""
    text = path.read_text()
    today = play(text)
    if request.config.getoption("--rewrite", default=False):
        path.write_text(today)
        return
    assert today == text


def test_there_are_traces() -> None:
    """An empty folder would pass everything."""
    assert len(TRACES) >= 6
