"""`relume completion`: scripts that let a shell complete commands, options, and names of the running relume."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from deploy.cli.commands import command
from deploy.cli.failing import Refused

VARIABLE = "_RELUME_COMPLETE"
"""What click looks for in the environment of a program named relume."""


@command("completion", (
    'eval "$(relume completion bash)"       # in ~/.bashrc',
    'eval "$(relume completion zsh)"        # in ~/.zshrc',
    "relume completion fish > ~/.config/fish/completions/relume.fish",
))  # fmt: skip
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell."""
    from deploy.cli.main import cli  # noqa: PLC0415 - main imports this module by name

    found = get_completion_class(shell)
    if found is None:
        raise Refused(f"there is no completion for {shell}", remedy="use bash, zsh or fish")
    click.echo(found(cli, {}, "relume", VARIABLE).source())
