"""`relume reclaims`: GPUs that training jobs had to give to models."""

from __future__ import annotations

import click

from deploy.cli.commands import Lazy, LazyGroup, command
from deploy.cli.connection import Connection, segment
from deploy.cli.getting import show_items
from deploy.cli.options import complete_models, complete_reclaims, complete_training, output, talking
from deploy.cli.output import show_json
from deploy.cli.training import say_goodput


@click.group("reclaims", cls=LazyGroup, lazy={
    "ls": Lazy("deploy.cli.reclaims:list_reclaims", "List reclaims, the newest last."),
    "explain": Lazy("deploy.cli.reclaims:explain", "Tell one from its beginning: why, each stage, what it cost."),
}, examples=("relume reclaims ls", "relume reclaims explain r-42"))  # fmt: skip
def reclaims() -> None:
    """See which GPUs training jobs had to give to models, why those, and what that cost."""


@command("ls", ("relume reclaims ls", "relume reclaims ls --job tune -o wide", "relume reclaims ls -o json"))
@click.option("--job", help="Only those that have this job yield.", shell_complete=complete_training)
@click.option("--model", help="Only those for this model.", shell_complete=complete_models)
@click.option("--limit", type=click.IntRange(1, 10_000), default=200, show_default=True, help="At most so many.")
@output("table", "wide", "json", "yaml")
@talking
def list_reclaims(connection: Connection, job: str | None, model: str | None, limit: int, output: str) -> None:
    """List reclaims, the newest last. SAVED is the step that was saved, LOST what it cost in GPU-seconds so far."""
    answer = connection.get("/v1alpha1/reclaims", {"job": job, "model": model, "limit": limit})
    show_items(answer["items"], "reclaims", output)
    say_goodput(answer, output)


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
