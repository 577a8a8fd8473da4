"""How commands are declared: with examples in their help, and loaded only when they are used."""

from __future__ import annotations

import difflib
import gc
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class ExampleCommand(click.Command):
    """A command whose help ends with examples."""

    examples: Sequence[str] = ()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Examples as they are typed."""
        write_examples(self.examples, formatter)
        super().format_epilog(ctx, formatter)


def write_examples(examples: Sequence[str], formatter: click.HelpFormatter) -> None:
    """A section of the help."""
    if examples:
        with formatter.section("Examples"):
            for example in examples:
                formatter.write(f"{'':{formatter.current_indent}}{example}\n")


def command(name: str, examples: Sequence[str], **settings: Any) -> Callable[[F], ExampleCommand]:
    """Declare a command with examples; its docstring is its help."""

    def declare(function: F) -> ExampleCommand:
        made = click.command(name, cls=ExampleCommand, **settings)(function)
        made.examples = tuple(examples)
        return made

    return declare


@contextmanager
def importing() -> Iterator[None]:
    """No collection of garbage while much is imported: nearly all of it stays, and looking at it again and again was a
    tenth of the time (measured: 1.8 s of CPU instead of 2.0 for all of relume on a busy machine)."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@dataclass(frozen=True, slots=True)
class Lazy:
    """Where a command is (``module:name``) and what it does, so that help needs no import of it."""

    place: str
    help: str

    def load(self) -> click.Command:
        """Import it."""
        module, _, name = self.place.partition(":")
        with importing():
            loaded = getattr(importlib.import_module(module), name)
        assert isinstance(loaded, click.Command), self.place
        return loaded


class LazyGroup(click.Group):
    """A group whose commands are imported when they are named; an unknown name is answered with the nearest."""

    def __init__(self, *args: Any, lazy: Mapping[str, Lazy], examples: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.lazy = dict(lazy)
        self.examples = tuple(examples)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Their names, in the order of the table: what is used first stands first."""
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Import and give it."""
        found = self.lazy.get(cmd_name)
        return found.load() if found else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """The table of commands, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.help) for name, lazy in self.lazy.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Examples as they are typed."""
        write_examples(self.examples, formatter)
        super().format_epilog(ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; wrong use says which is meant."""
        if args and not args[0].startswith("-") and args[0] not in self.lazy:
            near = difflib.get_close_matches(args[0], self.lazy, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"There is no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)
