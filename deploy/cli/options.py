"""Options that many commands share: which relume is meant, and in which form the answer is wanted."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Sequence
from math import isnan
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from deploy.cli.connection import DEFAULT_URL, Connection, Target
from deploy.cli.failing import Refused

Function = Callable[..., Any]

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class NumberRange(click.FloatRange):
    """A number within bounds; NaN is within none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """See `click.ParamType.convert`."""
        number = float(super().convert(value, param, ctx))
        if isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


def talking(function: Function) -> Function:
    """The command talks to a running relume: it gets a `Connection` as its first argument."""

    @functools.wraps(function)
    def wrapped(**given: Any) -> Any:
        connection = Connection(_target(given))
        return function(connection, **given)

    return _target_options(wrapped)


def _target_options(function: Function) -> Function:
    options = (
        click.option("--admin", metavar="URL", envvar="RELUME_ADMIN", default=DEFAULT_URL, show_default=True,
                     show_envvar=True, help="Address of the admin port."),
        click.option("--token", metavar="TOKEN", envvar="RELUME_ADMIN_TOKEN", show_envvar=True,
                     help="Its token, where one is configured."),
        click.option("--token-file", type=_FILE, envvar="RELUME_ADMIN_TOKEN_FILE", show_envvar=True,
                     help="A file with the token."),
        click.option("--ca", type=_FILE, envvar="RELUME_ADMIN_CA", show_envvar=True,
                     help="Authorities (PEM) that may have signed its certificate."),
        click.option("--cert", type=_FILE, envvar="RELUME_ADMIN_CERT", show_envvar=True,
                     help="Certificate (PEM) that proves who you are."),
        click.option("--key", type=_FILE, envvar="RELUME_ADMIN_KEY", show_envvar=True, help="Its private key (PEM)."),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def _target(given: dict[str, Any]) -> Target:
    """Take the options of the target out of what a command was given."""
    token, token_file = given.pop("token"), given.pop("token_file")
    if not token and token_file is not None:
        token = token_file.read_text(encoding="utf-8").strip()
    certificate, key = given.pop("cert"), given.pop("key")
    if key is not None and certificate is None:
        raise click.UsageError("--key needs --cert")
    return Target(url=given.pop("admin"), token=token or "", ca=given.pop("ca"), certificate=certificate, key=key)


class Kind(click.Choice[str]):
    """What a command is about. A wrong one is answered with what to type."""

    def __init__(self, kinds: Sequence[str], only: str = "") -> None:
        super().__init__(kinds)
        self._only = only

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """``relume describe llama`` lacks the word ``model``; ``relume get modles`` has it wrong."""
        if self._only:
            return f"{value!r} is not {self._only!r}; write: {ctx.command_path if ctx else '...'} {self._only} {value}"
        near = difflib.get_close_matches(str(value), self.choices, n=1)
        return f"there are no {value!r}; " + (
            f"did you mean {near[0]}?" if near else f"one of {', '.join(self.choices)}"
        )


def output(*forms: str) -> Callable[[Function], Function]:
    """``-o``: the form of the answer; the first of `forms` is what it is without."""
    return click.option(
        "-o", "--output", type=click.Choice(forms), default=forms[0], show_default=True, help="Form of the answer."
    )


def model_argument(function: Function) -> Function:
    """A model's name; shells complete it from the running relume."""
    return click.argument("model", metavar="MODEL", shell_complete=complete_models)(function)


def completing(*lists: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """A completion by the names in these lists of the admin port; by none when no relume answers."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        names = (name for kind in lists for name in _names(ctx, f"/v1alpha1/{kind}"))
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]

    return complete


complete_models = completing("models")
complete_replicas = completing("replicas", "models")
complete_training = completing("training")
complete_reclaims = completing("reclaims")
complete_pools = completing("pools")


def complete_listed(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the kind that was typed before."""
    kind = str(ctx.params.get("kind") or "replicas").rstrip("s")
    by_kind = {"training": complete_training, "reclaim": complete_reclaims, "model": complete_models,
               "pool": complete_pools}  # fmt: skip
    return by_kind.get(kind, complete_replicas)(ctx, parameter, incomplete)


def _names(ctx: click.Context, path: str) -> list[str]:
    given = {name: ctx.params.get(name) for name in ("token", "token_file", "ca", "cert", "key")}
    try:
        connection = Connection(_target({**given, "admin": ctx.params.get("admin") or DEFAULT_URL}))
        return [item["metadata"]["name"] for item in connection.get(path)["items"]]
    except (Refused, click.UsageError, OSError):
        return []
