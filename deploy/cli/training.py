"""`relume train`: training jobs that lend their GPUs to models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from deploy.cli.applying import DURATION, applied, delete_all, send_documents
from deploy.cli.commands import Lazy, LazyGroup, command
from deploy.cli.connection import Connection, Question, segment
from deploy.cli.failing import Refused
from deploy.cli.getting import show_items
from deploy.cli.options import complete_training, output, talking
from deploy.cli.output import say, show_json
from deploy.cli.streams import Stream, print_streams


@click.group("train", cls=LazyGroup, lazy={
    "submit": Lazy("deploy.cli.training:submit", "Declare training jobs from files, and say how to follow them."),
    "ls": Lazy("deploy.cli.training:list_jobs", "List training jobs, with steps and checkpoints."),
    "describe": Lazy("deploy.cli.training_story:describe", "Tell the whole story of one job."),
    "logs": Lazy("deploy.cli.training:logs", "Show what a job writes."),
    "pause": Lazy("deploy.cli.training:pause", "Have jobs save and give their GPUs back."),
    "resume": Lazy("deploy.cli.training:resume", "Let jobs go on that were paused, cancelled, or failed."),
    "cancel": Lazy("deploy.cli.training:cancel", "End jobs; they stay listed."),
    "delete": Lazy("deploy.cli.training:delete", "End jobs for good, and forget them."),
}, examples=(
    "relume train submit -f train.yaml",
    "relume train ls -o wide",
    "relume train logs tune -f",
))  # fmt: skip
def train() -> None:
    """Run training jobs that lend their GPUs: told in time, they save, yield, and go on at the same step."""


@command("submit", (
    "relume train submit -f train.yaml",
    "relume train submit -f jobs/ --dry-run # say what would happen",
    "relume train submit -f train.yaml --wait --timeout 1h",
    "sed s/tune/tune-2/ train.yaml | relume train submit -f -",
))  # fmt: skip
@click.option("-f", "--file", "files", multiple=True, required=True, metavar="FILE", help="File, folder, or - .")
@click.option("--dry-run", is_flag=True, help="Say what would happen; change nothing.")
@click.option("--wait", is_flag=True, help="Wait until the jobs run, or have finished.")
@click.option("--timeout", type=DURATION, default="10m", show_default=True, help="Longest wait.")
@output("text", "json")
@talking
def submit(  # noqa: PLR0913 - one parameter an option
    connection: Connection, files: Sequence[str], output: str, timeout: float, *, dry_run: bool, wait: bool
) -> None:
    """Declare training jobs: all documents of all files, or none. Submitting the same again changes nothing."""
    from deploy.cli.checking import read_files  # noqa: PLC0415 - reading files takes pydantic
    from deploy.spec.training import TrainingJob  # noqa: PLC0415 - as above

    documents = read_files(files)
    others = [one.metadata.name for one in documents if not isinstance(one, TrainingJob)]
    if others:
        raise Refused(
            f"{', '.join(others)}: no training job", remedy="declare files of several kinds with: relume apply"
        )
    result = send_documents(connection, documents, dry_run=dry_run)
    if output == "json":
        show_json(result)
    else:
        _say_submitted(result["items"], dry_run=dry_run)
    if wait and not dry_run:
        from deploy.cli.waiting import wait_until_settled  # noqa: PLC0415 - only with --wait

        wait_until_settled(connection, result["items"], timeout)


def _say_submitted(items: Sequence[dict[str, Any]], *, dry_run: bool) -> None:
    for item in items:
        name = item["metadata"]["name"]
        say(applied(item, dry_run=dry_run))
        if item["action"] == "created" and not dry_run:
            say(f"  follow it: relume train logs {name} -f    how it is: relume train describe {name}")


@command("ls", ("relume train ls", "relume train ls -o wide", "relume train ls -o json"))
@output("table", "wide", "json", "yaml")
@talking
def list_jobs(connection: Connection, output: str) -> None:
    """List training jobs.

    SAVED is the step of the newest checkpoint, AGE how old it is. GOODPUT is the share of the GPU-seconds held that
    went into steps that are kept; the last line tells that of all jobs together, and what the rest went into.
    """
    answer = connection.get("/v1alpha1/training")
    show_items(answer["items"], "training", output)
    say_goodput(answer, output)


@command("logs", (
    "relume train logs tune                 # all members of a job",
    "relume train logs tune -f              # and what they write from now on",
    "relume train logs tune --member tune-1 --tail 1000",
))  # fmt: skip
@click.argument("name", shell_complete=complete_training)
@click.option("--member", help="Only this member, such as tune-1.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes.")
@click.option("--tail", type=click.IntRange(0, 10_000), default=100, show_default=True, help="The last so many lines.")
@talking
def logs(connection: Connection, name: str, member: str | None, tail: int, *, follow: bool) -> None:
    """Show what the members of a job write, each line with its member where there are several."""
    members = [member] if member else members_of(connection.get(f"/v1alpha1/training/{segment(name)}"))
    path = f"/v1alpha1/training/{segment(name)}/logs"
    print_streams(connection, {one: Stream(path, {"member": one}) for one in members}, tail, follow=follow)


def say_goodput(answer: dict[str, Any], output: str) -> None:
    """The goodput of all jobs below a table."""
    from deploy.cli.training_story import goodput  # noqa: PLC0415 - it imports this module

    if output in ("table", "wide"):
        for line in goodput(answer["goodput"]):
            say(f"all jobs: {' '.join(line.split())}")


def members_of(item: dict[str, Any]) -> list[str]:
    """The members that run or ran last; all that are declared before the first run."""
    seen = [one["name"] for one in item["status"]["processes"]]
    return seen or [f"{item['metadata']['name']}-{index}" for index in range(item["status"]["members"])]


@command("pause", ("relume train pause tune", "relume train pause tune sweep-1 sweep-2"))
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_training)
@output("text", "json")
@talking
def pause(connection: Connection, names: Sequence[str], output: str) -> None:
    """Have jobs save and give their GPUs back, until they are resumed."""
    _each(connection, names, ("PUT", "pause", "paused: it saves and gives its GPUs back"), output)


@command("resume", ("relume train resume tune",))
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_training)
@output("text", "json")
@talking
def resume(connection: Connection, names: Sequence[str], output: str) -> None:
    """Let jobs go on at the step at which they saved, as soon as there are GPUs for them: those that were paused or
    cancelled, and those that failed as often as they may."""
    _each(connection, names, ("DELETE", "pause", "resumed: it goes on when there are GPUs for it"), output)


@command("cancel", ("relume train cancel tune",))
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_training)
@output("text", "json")
@talking
def cancel(connection: Connection, names: Sequence[str], output: str) -> None:
    """End jobs. They are told to save, and stay listed; resume lets them go on."""
    _each(connection, names, ("PUT", "cancel", "cancelled: what runs of it ends"), output)


@command("delete", ("relume train delete tune", "relume train delete tune --purge # its checkpoints too"))
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_training)
@click.option("--ignore-missing", is_flag=True, help="A job that is not declared is no error.")
@click.option("--purge", is_flag=True, help="Remove the folders that jobs of these names have of their own, too.")
@talking
def delete(connection: Connection, names: Sequence[str], *, ignore_missing: bool, purge: bool) -> None:
    """End jobs for good, and forget them. What they have saved stays where it is.

    With --purge the folders that relume made for them go once they have ended, with all checkpoints in them; also those
    of jobs that were deleted before. A folder that a job's declaration names is its user's, and stays.
    """
    delete_all(connection, "training", names, ignore_missing=ignore_missing, query={"purge": "true"} if purge else None)


def _each(connection: Connection, names: Sequence[str], how: tuple[str, str, str], output: str) -> None:
    """Do the same to each job: method, last part of the path, and what is said of it."""
    method, part, words = how
    items = []
    for name in names:
        body = b"{}" if method == "PUT" else None
        items.append(connection.ask(Question(method, f"/v1alpha1/training/{segment(name)}/{part}", body=body)))
        if output != "json":
            say(f"training job {name} {words}")
    if output == "json":
        show_json({"items": items})
