"""`relume reclaims`: GPUs that training jobs had to give to models."""

from __future__ import annotations

import click

from deploy.cli.commands import Lazy, LazyGroup, command
from deploy.cli.connection import Connection, segment
from deploy.cli.getting import show_items
from deploy.cli.options import complete_models, complete_reclaims, complete_training, output, talking
from deploy.cli.output import say, show_json
from deploy.cli.training import say_goodput


@click.group("reclaims", cls=LazyGroup, lazy={
    "ls": Lazy("deploy.cli.reclaims:list_reclaims", "List reclaims, the newest last."),
    "explain": Lazy("deploy.cli.reclaims:explain", "Tell one from its beginning: why, each stage, what it cost."),
}, examples=("relume reclaims ls", "relume reclaims explain r-42"))  # fmt: skip
def reclaims() -> None:
    """See which GPUs training jobs had to give to models, why those, and what that cost."""


@command("ls", (
    "relume reclaims ls",
    "relume reclaims ls --job tune -o wide",
    "relume reclaims ls --since 7d          # read back from the log, page by page: it says how to go on",
    "relume reclaims ls -o json",
))  # fmt: skip
@click.option("--job", help="Only those that have this job yield.", shell_complete=complete_training)
@click.option("--model", help="Only those for this model.", shell_complete=complete_models)
@click.option("--limit", type=click.IntRange(1, 10_000), default=200, show_default=True, help="At most so many.")
@click.option("--since", metavar="WHEN", help="Read back from the log: a duration (7d: so long ago), or a time.")
@click.option("--until", metavar="WHEN", help="With --since: those before this only.")
@output("table", "wide", "json", "yaml")
@talking
def list_reclaims(  # noqa: PLR0913 - one parameter an option
    connection: Connection, job: str | None, model: str | None, limit: int, *, since: str | None, until: str | None,
    output: str,
) -> None:  # fmt: skip
    """List reclaims, the newest last. SAVED is the step that was saved, LOST what it cost in GPU-seconds so far.

    Without --since these are the newest 1,000 that ended, and those that go on. With it the log is read back, for as
    long as it keeps them: by the time of their newest state, the newest --limit of the span.
    """
    if until and not since:
        raise click.UsageError("--until goes with --since")
    asked = {"job": job, "model": model, "limit": limit, "since": _moment(since), "until": _moment(until)}
    answer = connection.get("/v1alpha1/reclaims", asked)
    show_items(answer["items"], "reclaims", output)
    say_goodput(answer, output)
    if answer.get("before") and output in ("table", "wide"):
        say(f"there are older ones: relume reclaims ls --since {since} --until {answer['before']}")


def _moment(when: str | None) -> str | None:
    """A duration ago, or a time as it is."""
    if when is None or when[:1].isdigit() is False or "T" in when:
        return when
    from events.clock import SystemClock  # noqa: PLC0415 - beside its only use
    from events.units import Instant, format_instant, parse_duration  # noqa: PLC0415 - as above

    try:
        return format_instant(Instant(SystemClock().now() - parse_duration(when)))
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@command("explain", ("relume reclaims explain r-42", "relume reclaims explain r-42 -o json"))
@click.argument("name", metavar="ID", shell_complete=complete_reclaims)
@output("text", "json")
@talking
def explain(connection: Connection, name: str, output: str) -> None:
    """Tell a reclaim from its beginning: who needed what since when, why this job and no other, each stage with its
    time, what it cost."""
    answer = connection.get(f"/v1alpha1/reclaims/{segment(name)}/explain")
    if output == "json":
        show_json(answer)
    else:
        click.echo("\n".join(answer["sentences"]))
