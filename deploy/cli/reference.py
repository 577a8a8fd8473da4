"""The reference of the command line in Markdown, made of the commands themselves.

``python -m deploy.cli.reference --write`` writes `docs/reference/cli.md`, ``--check`` fails when it is out of date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Final

import click

from deploy.cli.commands import ExampleCommand, LazyGroup
from deploy.cli.main import cli
from deploy.generated import ROOT, write_or_check

FILE: Final = ROOT / "docs" / "reference" / "cli.md"

HEAD: Final = """# The command line

Made by `python -m deploy.cli.reference --write` from the commands; do not edit.

**Exit codes.** 0: done. 1: the answer is no (not found, refused, failed, cannot reach relume). 2: wrong use. 130:
stopped by Ctrl-C.

**Output.** JSON, YAML and tables go to standard output alone; words for people go to standard error. Tables are plain
when piped, and without colours when `NO_COLOR` is set.

**Which relume.** Commands that talk to a running relume take `--admin URL` (or `RELUME_ADMIN`), `--token` (or
`RELUME_ADMIN_TOKEN`, or a file: `RELUME_ADMIN_TOKEN_FILE`), and for TLS `--ca`, `--cert` and `--key`.
"""

_TOLD_DEFAULT: Final = re.compile(r"\[default: ([^]]*)\] ?")
"""Where a help text itself tells the default."""

TALKING: Final = frozenset({"admin", "token", "token_file", "ca", "cert", "key"})
"""Options that the head explains once."""


def reference() -> str:
    """The whole page."""
    parts = [HEAD]
    for names, command in _walk(cli, ("relume",)):
        parts.append(_section(names, command))
    return "\n".join(parts)


def _walk(group: LazyGroup, prefix: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, lazy in group.lazy.items():
        command = lazy.load()
        yield (*prefix, name), command
        if isinstance(command, LazyGroup):
            yield from _walk(command, (*prefix, name))


def _section(names: tuple[str, ...], command: click.Command) -> str:
    context = click.Context(command, info_name=" ".join(names))
    usage = " ".join([*names, *command.collect_usage_pieces(context)])
    lines = [f"{'#' * len(names)} {' '.join(names)}", "", "```", usage, "```", "", _prose(command.help or "")]
    rows = [row for parameter in command.params if (row := _row(parameter, context))]
    if rows:
        lines += ["", "| option | default | meaning |", "|---|---|---|", *rows]
    if any(parameter.name in TALKING for parameter in command.params):
        lines += ["", "Talks to a running relume: `--admin` and its like (above)."]
    examples = command.examples if isinstance(command, ExampleCommand | LazyGroup) else ()
    if examples:
        lines += ["", "```bash", *examples, "```"]
    return "\n".join(lines) + "\n"


def _prose(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _row(parameter: click.Parameter, context: click.Context) -> str:
    if not isinstance(parameter, click.Option) or parameter.name in TALKING:
        return ""
    names, _ = parameter.get_help_record(context) or ("", "")
    default = parameter.default
    text = " ".join((parameter.help or "").split())
    if told := _TOLD_DEFAULT.search(text):
        default, text = told[1], text.replace(told[0], "")
    shown = f"`{default}`" if isinstance(default, str | int) and not isinstance(default, bool) else ""
    cells = (f"`{names}`", shown, text)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main(arguments: list[str] | None = None) -> int:
    """``--write`` or ``--check``; exit status 1 when --check finds a stale file."""
    return write_or_check("deploy.cli.reference", FILE, reference(), arguments)


if __name__ == "__main__":
    sys.exit(main())
