"""Commands that need no running relume: validate, schema, completion, up's options, bench, demo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from deploy.settings.settings import Settings
from tests.deploy.cli.conftest import LiveAdmin, Relume
from tests.support.admin import ECHO


def test_validate(relume: Relume, tmp_path: Path) -> None:
    """Valid: names and 0. Wrong: every problem with file and line, and 1; the same as JSON."""
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(ECHO)
    bad.write_text(ECHO.replace("simulated", "simulatd") + "  priority: high\n")
    assert relume("validate", "-f", str(good)).err == "valid: echo\n"
    ran = relume("validate", "-f", str(good), "-f", str(bad))
    assert (ran.code, ran.out) == (1, "")
    assert f"{bad}:5" in ran.err
    assert "simulated" in ran.err
    ran = relume("validate", "-f", str(bad), "-o", "json")
    answer = json.loads(ran.out)
    assert (ran.code, answer["valid"]) == (1, False)
    assert {problem["path"] for problem in answer["problems"]} == {"spec.engine.type", "spec.priority"}
    assert all(problem["rule"] and problem["remedy"] for problem in answer["problems"])
    assert relume("validate", "-f", "-", stdin=ECHO).code == 0


def test_schema_accepts_what_validate_accepts(relume: Relume) -> None:
    """The printed JSON Schema is one, and an example of ours fits it."""
    schema = json.loads(relume("schema").out)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(YAML(typ="safe").load(ECHO), schema)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(relume: Relume, shell: str) -> None:
    """A script that asks relume itself."""
    out = relume("completion", shell).out
    assert "_RELUME_COMPLETE" in out
    assert "relume" in out


def test_completion_offers_commands() -> None:
    """What the script asks for is answered: `relume ex<TAB>` is explain."""
    environment = {**os.environ, "_RELUME_COMPLETE": "bash_complete", "COMP_WORDS": "relume ex", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "deploy.cli.main"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["plain,explain"]


def test_up_has_an_option_for_each_setting(relume: Relume) -> None:
    """Each setting is an option with its help and its environment variable."""
    out = " ".join(relume("up", "--help").out.split())
    for name in Settings.model_fields:
        assert f"--{name.replace('_', '-')} " in out
        assert f"RELUME_{name.upper()}" in out


def test_up_passes_settings_and_files_on(relume: Relume, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The command line stands before the environment; files go on in order; the exit code comes back."""
    seen: list[tuple[Settings, tuple[str, ...]]] = []

    def run(settings: Settings, files: tuple[str, ...]) -> int:
        seen.append((settings, files))
        return 3

    monkeypatch.setattr("deploy.compose.up.run", run)
    monkeypatch.setenv("RELUME_ADMIN_PORT", "9001")
    monkeypatch.setenv("RELUME_GPUS", "7")
    ran = relume(
        "up", "-f", "a.yaml", "-f", "b.yaml", "--gpus", "2", "--data-dir", str(tmp_path), "--events", "memory:"
    )
    assert ran.code == 3
    ((settings, files),) = seen
    assert (settings.gpus, settings.admin_port, settings.data_dir, settings.events) == (2, 9001, tmp_path, "memory:")
    assert files == ("a.yaml", "b.yaml")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--gateway-port", "http"), "--gateway-port"), (("--gpus", "-1"), "RELUME_GPUS"),
        (("--admin-host", "0.0.0.0"), "admin_token_file"), (("--drain-bound", "soon"), "500ms, 90s"),
        (("--gateway-port", "1", "--admin-port", "1"), "both 1"),
    ],
)  # fmt: skip
def test_wrong_settings_are_wrong_use(relume: Relume, arguments: tuple[str, ...], says: str) -> None:
    """Exit code 2, with the option, its variable, the rule and the remedy."""
    ran = relume("up", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err


def test_bench_is_handed_its_arguments(relume: Relume, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`relume bench` runs the module `bench` with everything that follows; without it, it says where it is."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    ran = relume("bench")
    assert ran.code == 1
    assert "make bench" in ran.err
    monkeypatch.undo()
    (tmp_path / "bench.py").write_text("import sys; sys.exit(4 if sys.argv[1:] == ['--help', 'x'] else 5)")
    monkeypatch.chdir(tmp_path)  # `python -m` looks here first: not at the real one
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert relume("bench", "--help", "x").code == 4


def test_completion_offers_names_of_the_running_relume(live: LiveAdmin) -> None:
    """`relume explain e<TAB>` is a model that is declared; without a relume nothing is offered, and nothing said."""
    live.do(live.admin.apply())
    words = {"_RELUME_COMPLETE": "bash_complete", "COMP_WORDS": "relume explain e", "COMP_CWORD": "2"}
    offered = []
    for url in (live.admin.url, "http://127.0.0.1:9"):
        environment = {**os.environ, **words, "RELUME_ADMIN": url}
        done = subprocess.run(
            [sys.executable, "-m", "deploy.cli.main"], env=environment, capture_output=True, text=True, check=False
        )
        assert done.stderr == ""
        offered.append(done.stdout.split())
    assert offered == [["plain,echo"], []]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("get", "modles"), "did you mean models?"), (("get", "foo"), "one of models"),
        (("describe", "echo"), "write: relume describe model echo"),
        (("delete", "echo"), "write: relume delete model echo"),
        (("scale", "echo", "many"), "write 0 to 500, or auto"),
    ],
)  # fmt: skip
def test_wrong_words_are_answered_with_right_ones(relume: Relume, arguments: tuple[str, ...], says: str) -> None:
    """Wrong use, exit code 2, and what to type instead."""
    ran = relume(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
